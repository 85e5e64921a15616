"""The objects that migrations have created, as `schema_migrations` records them.

Each migration records, in its own transaction, the tables, columns, indexes, sequences, types,
triggers, views and functions that it has added to the catalog. An object that is recorded and not
in the catalog was dropped by somebody. Objects that other programs create are not recorded.
"""

from cronledger.ledger.schemas import internal

_CATALOG = """
    WITH relations AS (
        SELECT c.oid, c.relname AS name, c.relkind AS kind
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname IN ('{schema}', '{internal}') AND NOT c.relispartition
    ), kinds (kind, title) AS (
        VALUES ('r', 'table'), ('p', 'table'), ('v', 'view'), ('S', 'sequence'), ('c', 'type')
    )
    SELECT k.title || ' ' || r.name AS object FROM relations r JOIN kinds k ON k.kind = r.kind::text
    UNION ALL
    SELECT 'column ' || r.name || '.' || a.attname
    FROM relations r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid
    WHERE r.kind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT 'index ' || r.name || '.' || c.relname
    FROM relations r JOIN pg_catalog.pg_index x ON x.indrelid = r.oid
    JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
    UNION ALL
    SELECT 'trigger ' || r.name || '.' || t.tgname
    FROM relations r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    -- Whether names of types are quoted or qualified depends on settings.
    SELECT 'function ' || p.proname || '(' || regexp_replace(
        replace(pg_catalog.oidvectortypes(p.proargtypes), '"', ''), '[a-z0-9_]+[.]', '', 'g') || ')'
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname IN ('{schema}', '{internal}')
"""

_NOTE = """\
DO $objects$ BEGIN
    PERFORM set_config('cronledger.objects', ARRAY(SELECT object FROM ({catalog}) o)::text, true);
END $objects$;
"""

_RECORD = """\
WITH before AS (
    SELECT unnest(current_setting('cronledger.objects')::text[]) AS object
), after AS MATERIALIZED ({catalog})
UPDATE {schema}.schema_migrations m SET objects = ARRAY(
    SELECT o.object FROM unnest(m.objects) o(object)
    WHERE o.object IN (SELECT object FROM after)
       OR m.name <> '{migration}' AND o.object NOT IN (SELECT object FROM before)
    UNION
    SELECT a.object FROM after a
    WHERE m.name = '{migration}' AND a.object NOT IN (SELECT object FROM before)
    ORDER BY 1);
"""

# Not `NOT IN (SELECT …)`: if its hash exceeds work_mem, the catalog is read once for each object.
_LOST = """
WITH present AS MATERIALIZED ({catalog})
SELECT m.phase, o.object FROM {schema}.schema_migrations m
CROSS JOIN LATERAL unnest(m.objects) o(object)
WHERE NOT EXISTS (SELECT FROM present p WHERE p.object = o.object) ORDER BY o.object
"""


def note(schema: str) -> str:
    """Return the statement that notes the objects before a migration of this transaction."""
    return _filled(_NOTE, schema)


def record(schema: str, migration: str) -> str:
    """Return the statement that records what the migration has added and removed since `note`.

    An object that was lost before stays in the record of its migration, except for functions and
    views, which the repeated migration has just replaced.
    """
    return _filled(_RECORD, schema).replace("{migration}", migration)


def lost(schema: str) -> str:
    """Return the query for the phase and the name of each recorded object that does not exist."""
    return _filled(_LOST, schema)


def without_parts(missing: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return these rows of `lost` without the parts of tables and views that are among them."""
    gone = {name.partition(" ")[2] for _, name in missing if name.startswith(("table ", "view "))}
    return [
        (phase, name)
        for phase, name in missing
        if not name.startswith(("column ", "index ", "trigger "))
        or name.partition(" ")[2].partition(".")[0] not in gone
    ]


def _filled(text: str, schema: str) -> str:
    text = text.replace("{catalog}", _CATALOG)
    return text.replace("{schema}", schema).replace("{internal}", internal(schema))
