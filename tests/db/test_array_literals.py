"""Batches are sent as array literals, and arrive in the database unchanged."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest

from cronledger.ledger.arrays import array
from tests.db.support.rows import Db

INSTANT = datetime(2026, 3, 29, 1, 2, 3, 4, UTC)
EAST = timezone(timedelta(hours=5))

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "texts": ("text[]", ["", " ", "NULL", "null", 'say "x"', "a\\b", "\\", '"', "{a,b}", "a,b",
                         "é\n\t", "\\n"]),
    "texts with NULL": ("text[]", [None, 'say "x"', "a\\b", ""]),
    "nothing but NULL": ("text[]", [None, None]),
    "no element": ("text[]", []),
    "numbers": ("bigint[]", [1, None, -(2**63)]),
    "tokens": ("uuid[]", [UUID(int=0), None, UUID(int=2**128 - 1)]),
    "instants": ("timestamptz[]", [INSTANT, None, INSTANT.replace(microsecond=0),
                                   INSTANT.astimezone(EAST)]),
    "durations": ("interval[]", [timedelta(days=40, microseconds=1), None]),
}  # fmt: skip


@pytest.mark.parametrize(("cast", "values"), COLUMNS.values(), ids=COLUMNS)
def test_an_array_literal_is_read_as_it_was(db: Db, cast: str, values: list[Any]) -> None:
    query = f"SELECT %s::{cast} AS sent".encode()
    assert db.execute(query, [array(values)]).fetchone() == {"sent": values}


def test_a_nul_is_refused_and_moves_no_element(db: Db) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        db.execute("SELECT %s::text[]", [array(["a\0b", "c"])])
