"""The objects that the migration scripts create, read from the texts of the scripts.

The parser knows the statements that the scripts use: CREATE, DROP, and COMMENT, which every table,
column, function and view has. A test compares the result with the catalog of a migrated database.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import psycopg

from cronledger.ledger.schemas import internal


class Made(NamedTuple):
    """An object of the ledger. `name` is without the schema: `jobs`, `jobs.name` (a column, or a
    trigger of a table), `finish(bigint, uuid, jsonb)`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


# A function body may contain statements, and a literal may contain any text.
_HIDDEN = re.compile(r"--[^\n]*|(\$\w*\$).*?\1|'(?:[^']|'')*'", re.DOTALL)
_CREATED = {
    "table": r"^CREATE TABLE (?:IF NOT EXISTS )?{name}",
    "view": r"^CREATE (?:OR REPLACE )?VIEW {name}",
    "sequence": r"^CREATE SEQUENCE {name}",
    "index": r"^CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+) ON {schema}\.",
    # Some are created in a DO block if they are missing; then only their COMMENT is a statement.
    "trigger": r"^(?:CREATE [A-Z ]*|COMMENT ON )TRIGGER (\w+) (?:.* )?ON {name}",
    # Only the comment has the types of the arguments without their names.
    "function": r"^COMMENT ON FUNCTION {name} ?\((.*?)\)",
    "type": r"^COMMENT ON TYPE {name}",
    "column": r'^COMMENT ON COLUMN {name}\."?(\w+)',
}
_DROPPED = {
    "table": r"^DROP TABLE (?:IF EXISTS )?{name}",
    "view": r"^DROP VIEW (?:IF EXISTS )?{name}",
    "sequence": r"^DROP SEQUENCE (?:IF EXISTS )?{name}",
    "index": r"^DROP INDEX (?:IF EXISTS )?{name}",
    "trigger": r"^DROP TRIGGER (?:IF EXISTS )?(\w+) ON {name}",
    "function": r"^DROP FUNCTION (?:IF EXISTS )?{name} ?\((.*?)\)",
    "column": r"^ALTER TABLE {name} DROP COLUMN (?:IF EXISTS )?(\w+)",
}


_FIND = """
SELECT e.kind, e.name
FROM unnest(%(kinds)s::text[], %(names)s::text[]) e(kind, name)
CROSS JOIN LATERAL (
    SELECT split_part(e.name, '.', 1) AS relation, split_part(e.name, '.', 2) AS part,
           split_part(e.name, '(', 1) AS function,
           rtrim(split_part(e.name, '(', 2), ')') AS arguments) x
LEFT JOIN pg_namespace n ON n.nspname = %(schema)s
LEFT JOIN pg_namespace i ON i.nspname = %(internal)s
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = x.relation AND c.relkind = ANY (
    CASE e.kind WHEN 'table' THEN '{r,p}' WHEN 'view' THEN '{v}' WHEN 'sequence' THEN '{S}'
                WHEN 'index' THEN '{i,I}' ELSE '{r,p,v}' END::"char"[])
WHERE NOT CASE e.kind
    WHEN 'function' THEN EXISTS (
        SELECT FROM pg_proc p
        WHERE p.pronamespace IN (n.oid, i.oid) AND p.proname = x.function
          AND p.proargtypes::text = coalesce(
            (SELECT string_agg(to_regtype(a.type)::oid::text, ' ' ORDER BY a.n)
             FROM regexp_split_to_table(x.arguments, ', *') WITH ORDINALITY a(type, n)
             WHERE x.arguments <> ''), ''))
    WHEN 'type' THEN EXISTS (
        SELECT FROM pg_type t WHERE t.typnamespace IN (n.oid, i.oid) AND t.typname = e.name)
    WHEN 'column' THEN EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = x.part AND a.attnum > 0 AND NOT a.attisdropped)
    WHEN 'trigger' THEN EXISTS (
        SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = x.part)
    ELSE c.oid IS NOT NULL END
ORDER BY e.kind, e.name
"""


@cache
def inventory(texts: tuple[str, ...], schema: str) -> frozenset[Made]:
    """Return the objects that exist once these scripts have run one after the other."""
    made: set[Made] = set()
    for text in texts:
        for statement in _statements(text):
            dropped = set(_found(_DROPPED, statement, schema))
            if dropped:
                gone = {one.name for one in dropped if one.kind in ("table", "view")}
                made = {one for one in made - dropped if one.name.partition(".")[0] not in gone}
            made |= set(_found(_CREATED, statement, schema))
    return frozenset(made)


def lost(connection: psycopg.Connection, made: Iterable[Made], schema: str) -> tuple[Made, ...]:
    """Return the objects of `made` that are not in the database.

    Of a lost table or view, only the table or view itself is returned. Every role that may use the
    schema can call this. Raises psycopg.Error.
    """
    expected = list(made)
    rows = connection.execute(
        _FIND,
        {
            "kinds": [one.kind for one in expected],
            "names": [one.name for one in expected],
            "schema": schema,
            "internal": internal(schema),
        },
    ).fetchall()
    gone = [Made(kind, name) for kind, name in rows]
    whole = {one.name for one in gone if one.kind in ("table", "view")}
    return tuple(
        one
        for one in gone
        if one.kind not in ("column", "trigger") or one.name.partition(".")[0] not in whole
    )


def _statements(text: str) -> Iterator[str]:
    plain = _HIDDEN.sub(" ", text)
    return (" ".join(statement.split()) for statement in plain.split(";"))


def _found(patterns: dict[str, str], statement: str, schema: str) -> Iterator[Made]:
    for kind, pattern in _compiled(tuple(patterns.items()), schema):
        found = pattern.match(statement)
        if found is None:
            continue
        match kind, found.groups():
            case "function", (function, arguments):
                yield Made(kind, f"{function}({arguments})")
            case "trigger", (trigger, table):
                yield Made(kind, f"{table}.{trigger}")
            case "column", (table, column):
                yield Made(kind, f"{table}.{column}")
            case _, (plain,):
                yield Made(kind, plain)


@cache
def _compiled(
    patterns: tuple[tuple[str, str], ...], schema: str
) -> tuple[tuple[str, re.Pattern[str]], ...]:
    name = rf"(?:{schema}|{internal(schema)})\.(\w+)"
    return tuple(
        (kind, re.compile(pattern.replace("{name}", name).replace("{schema}", schema)))
        for kind, pattern in patterns
    )
