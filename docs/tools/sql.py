"""Generate docs/sql.md, the SQL interface, from the catalog of a migrated database."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from docs.tools.markdown import NOTE, one_line, table

GROUPS = ("viewer", "operator", "runner")
KINDS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "For viewers, operators and runners": [GROUPS],
    "For operators": [("operator",), ("operator", "runner")],
    "For replicas and workers": [("runner",)],
}
"""Titles of the lists of functions, and the group roles that may call a function in the list."""
INTRODUCTION = """\
The functions and views that people, tools and workers use, and the tables below them. The text is
that of the comments in the database: in psql, `\\df+ cronledger.NAME` and `\\d+ cronledger.NAME`
print the same. [Three roles](howto/roles.md) describes the group roles.
"""

FUNCTIONS: LiteralString = """
SELECT p.proname AS name, pg_get_function_arguments(p.oid) AS arguments,
       pg_get_function_result(p.oid) AS result, obj_description(p.oid, 'pg_proc') AS comment,
       ARRAY(SELECT g.name FROM unnest(%(groups)s::text[]) g(name)
             WHERE has_function_privilege('cronledger_' || g.name, p.oid, 'EXECUTE')) AS groups
FROM pg_proc p
WHERE p.pronamespace = 'cronledger'::regnamespace AND p.proname !~ '^_'
  AND p.prorettype <> 'trigger'::regtype
ORDER BY p.proname, p.pronargs
"""
RELATIONS: LiteralString = """
SELECT c.relname AS name, obj_description(c.oid, 'pg_class') AS comment,
       ARRAY(SELECT g.name FROM unnest(%(groups)s::text[]) g(name)
             WHERE has_table_privilege('cronledger_' || g.name, c.oid, 'SELECT')) AS groups
FROM pg_class c
WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind = ANY (%(kinds)s::"char"[])
  AND NOT c.relispartition
ORDER BY c.relname
"""
COLUMNS: LiteralString = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       col_description(a.attrelid, a.attnum) AS comment
FROM pg_attribute a
WHERE a.attrelid = %(name)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


class Function(NamedTuple):
    """A function of the schema, with the group roles that may call it."""

    name: str
    arguments: str
    result: str
    comment: str
    groups: Sequence[str]


class Relation(NamedTuple):
    """A view or a table of the schema, with the group roles that may read it."""

    name: str
    comment: str
    groups: Sequence[str]


def document(dsn: str) -> str:
    """Return the text of docs/sql.md for the schema `cronledger` of this database."""
    with psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row) as c:
        c.execute("SET search_path = cronledger, pg_catalog")
        functions = [Function(*row) for row in c.execute(FUNCTIONS, {"groups": list(GROUPS)})]
        parts = ["# SQL interface\n", NOTE, INTRODUCTION, *_functions(functions)]
        parts += ["## Views\n", *_relations(c, "v")]
        parts += ["## Tables\n", *_relations(c, "rp")]
    return "\n".join(parts)


def _functions(functions: Sequence[Function]) -> list[str]:
    """Group the functions by the group roles that may call them."""
    parts = ["## Functions\n"]
    for title, groups in KINDS.items():
        parts.append(f"### {title}\n")
        parts += [_function(one) for one in functions if tuple(one.groups) in groups]
    return parts


def _function(one: Function) -> str:
    call = f"{one.name}({one.arguments})\n  -> {one.result}"
    return f"#### {one.name}\n\n```\n{_wrapped(call)}\n```\n\n{_text(one.comment)}\n"


def _wrapped(call: str) -> str:
    return "\n".join(textwrap.fill(x, 100, subsequent_indent="    ") for x in call.split("\n"))


def _relations(c: psycopg.Connection[Any], kinds: str) -> list[str]:
    found = c.execute(RELATIONS, {"groups": list(GROUPS), "kinds": list(kinds)}).fetchall()
    parts = []
    for one in (Relation(*row) for row in found):
        who = ", ".join(one.groups) or "the owner"
        parts.append(f"### {one.name}\n\n{_text(one.comment)} Read by: {who}.\n")
        rows = c.execute(COLUMNS, {"name": one.name}).fetchall()
        cells = [(f"`{x.name}`", x.type, _text(x.comment or "")) for x in rows]
        parts.append(table(("column", "type", "meaning"), cells))
    return parts


def _text(comment: str) -> str:
    return one_line(comment).replace("<", "&lt;").replace("*", r"\*")
