"""What the scripts create, as their texts tell it, against the catalog of a migrated database."""

import psycopg

from cronledger.ledger.inventory import Made, inventory, lost
from cronledger.ledger.migrate import check, created
from tests.db.support.rows import Db, value

CATALOG = """
SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END AS kind,
       c.relname::text AS name
FROM pg_class c
WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
  AND NOT c.relispartition
UNION ALL
SELECT 'index', i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = 'cronledger'::regnamespace AND NOT c.relispartition
  AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)
UNION ALL
SELECT 'column', c.relname || '.' || a.attname
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind IN ('r', 'p', 'v')
  AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'trigger', c.relname || '.' || t.tgname
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'cronledger'::regnamespace AND NOT t.tgisinternal AND t.tgparentid = 0
UNION ALL
SELECT 'type', t.typname FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid
WHERE t.typnamespace::regnamespace::text ~ '^cronledger' AND c.relkind = 'c'
"""
FUNCTIONS = """
SELECT count(*) FROM pg_proc p WHERE p.pronamespace::regnamespace::text ~ '^cronledger'
"""


def test_the_texts_tell_what_the_catalog_has(db: Db, database_url: str) -> None:
    """None is forgotten: a statement of a form that is not understood shows as a difference."""
    read = created()
    db.execute("SET search_path = cronledger")
    catalog = {Made(row["kind"], row["name"]) for row in db.execute(CATALOG).fetchall()}
    assert {one for one in read if one.kind != "function"} == catalog
    functions = value(db, FUNCTIONS)
    assert sum(one.kind == "function" for one in read) == functions
    state = check(database_url)
    assert (state.lost, state.damaged) == ((), ())


def test_what_is_dropped_later_is_not_expected() -> None:
    first = """
        CREATE TABLE s.t (a int, b int);  -- CREATE TABLE s.comment
        COMMENT ON TABLE s.t IS 'It is not; CREATE TABLE s.literal (a int)';
        COMMENT ON COLUMN s.t.a IS 'a'; COMMENT ON COLUMN s.t.b IS 'b';
        CREATE UNIQUE INDEX i ON s.t (a);
        CREATE FUNCTION s.f(x int DEFAULT 1) RETURNS void LANGUAGE plpgsql AS $body$
        BEGIN
            CREATE TABLE s.hidden (a int);
        END $body$;
        COMMENT ON FUNCTION s.f(int) IS 'f';
        CREATE OR REPLACE TRIGGER g BEFORE INSERT OR UPDATE OF a ON s.t
            FOR EACH ROW EXECUTE FUNCTION s.f();
        DO $$ BEGIN CREATE TRIGGER h AFTER DELETE ON s.t EXECUTE FUNCTION s.f(); END $$;
        COMMENT ON TRIGGER h ON s.t IS 'h';
        CREATE TABLE other.t (a int);
    """
    names = {"table t", "column t.a", "column t.b", "index i", "function f(int)", "trigger t.g",
             "trigger t.h"}  # fmt: skip
    assert {str(one) for one in inventory((first,), "s")} == names
    second = "ALTER TABLE s.t DROP COLUMN b; DROP INDEX s.i; DROP FUNCTION IF EXISTS s.f(int);"
    assert {str(one) for one in inventory((first, second), "s")} == {
        "table t", "column t.a", "trigger t.g", "trigger t.h",
    }  # fmt: skip
    third = "DROP TRIGGER g ON s.t; DROP TABLE s.t; CREATE VIEW s.v AS SELECT 1;"
    assert {str(one) for one in inventory((first, second, third), "s")} == {"view v"}


def test_a_lost_table_stands_for_what_was_in_it(database_url: str) -> None:
    made = {Made("table", "away"), Made("column", "away.a"), Made("trigger", "away.t"),
            Made("column", "jobs.away"), Made("function", "pruned_through(text)"),
            Made("function", "pruned_through()"), Made("function", "enqueue(nosuchtype)"),
            Made("type", "claim_candidate"), Made("view", "queues")}  # fmt: skip
    with psycopg.connect(database_url) as c:
        assert {str(one) for one in lost(c, made, "cronledger")} == {
            "table away", "column jobs.away", "function pruned_through(text)",
            "function enqueue(nosuchtype)", "view queues",
        }  # fmt: skip
        assert [str(one) for one in lost(c, {Made("table", "jobs")}, "nowhere")] == ["table jobs"]
