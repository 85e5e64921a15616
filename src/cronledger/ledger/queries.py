"""The statements in `sql/NAME.sql`, and the functions that run them.

The head of each file states what the statement guarantees, what it locks, and what zero rows mean.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from cronledger.rules.calendars import CalendarKey
from cronledger.rules.model import OF_OPERATORS, Job, ScopeKey

Row = TypeVar("Row")

_KEPT = OF_OPERATORS | {"name"}
_POLICIES = [f'"{name}"' for name in Job.model_fields if name not in _KEPT]  # `on` is reserved


@cache
def text(name: str, schema: str, package: str = "cronledger.ledger") -> str:
    """Return the statement of `sql/NAME.sql` in `package`, or else in `cronledger.ledger`, with
    schema and policies filled in.
    """
    folders = (resources.files(one) / "sql" for one in (package, "cronledger.ledger"))
    file = next(one for folder in folders if (one := folder / f"{name}.sql").is_file())
    found = file.read_text("utf-8").replace("{schema}", schema)
    found = found.replace("{excluded_policies}", ", ".join(f"EXCLUDED.{x}" for x in _POLICIES))
    return found.replace("{policies}", ", ".join(_POLICIES))


@cache
def encoded(name: str, schema: str) -> bytes:
    """Return the same as it is sent."""
    return text(name, schema).encode()


@cache
def function_call(name: str, arguments: tuple[str, ...], schema: str) -> bytes:
    """Return the statement that calls a function of the ledger with these arguments, by name."""
    given = ", ".join(f"{argument} => %({argument})s" for argument in arguments)
    return f"SELECT * FROM {schema}.{name}({given})".encode()


def scope(key: ScopeKey) -> dict[str, str]:
    """Return the parameters with which statements name a (job, scope)."""
    return {"job": key.job_name, "kind": key.scope_kind, "scope": key.scope_id}


def calendar_keys(keys: Iterable[CalendarKey]) -> dict[str, list[Any]]:
    """Return the parameters with which statements name revisions of calendars."""
    ordered = sorted(keys)
    return {
        "names": [key.name for key in ordered], "revisions": [key.revision for key in ordered]
    }  # fmt: skip


def run(
    cursor: psycopg.Cursor[Row],
    name: str,
    schema: str,
    params: Mapping[str, Any] | None = None,
    *,
    binary: bool | None = None,
) -> psycopg.Cursor[Row]:
    """Run the statement of `sql/NAME.sql` and return its cursor. Raises psycopg.Error."""
    return cursor.execute(encoded(name, schema), params or None, binary=binary)


def rows(
    connection: psycopg.Connection[Any], name: str, schema: str, params: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Run the statement of `sql/NAME.sql` and return its rows by column. Raises psycopg.Error."""
    with connection.cursor(row_factory=dict_row) as cursor:
        run(cursor, name, schema, params)
        return cursor.fetchall() if cursor.description is not None else []


async def run_async(
    cursor: psycopg.AsyncCursor[Row],
    name: str,
    schema: str,
    params: Mapping[str, Any] | None = None,
) -> psycopg.AsyncCursor[Row]:
    """Send the statement of `sql/NAME.sql` and return its cursor. Raises psycopg.Error.

    In a round trip of a step, the rows arrive when they are fetched.
    """
    return await cursor.execute(encoded(name, schema), params or None)
