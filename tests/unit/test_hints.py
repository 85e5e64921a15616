"""The types and texts that an editor shows to the author of a handler."""

import inspect
import re
from typing import Any, assert_type, get_type_hints

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

import cronledger.declaring.app
from cronledger import App, Context
from cronledger.declaring.policies import Policies
from docs.tools import policies

app = App("hints")


@app.job()
async def with_an_async_transaction(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        assert_type(connection, AsyncConnection[TupleRow])
        cursor = await connection.execute("SELECT 1")
        assert_type(await cursor.fetchone(), tuple[Any, ...] | None)


@app.job()
def with_a_sync_transaction(ctx: Context) -> None:
    with ctx.transaction() as connection:
        assert_type(connection, Connection[TupleRow])
        assert_type(connection.execute("SELECT 1").fetchone(), tuple[Any, ...] | None)


def test_the_hints_of_a_transaction_exist() -> None:
    """`make lint` checks `assert_type` above. The names in the hints are those of psycopg."""
    hints = get_type_hints(
        cronledger.declaring.app.Transaction.__enter__, vars(psycopg) | {"TupleRow": TupleRow}
    )
    assert hints["return"] == Connection[TupleRow]
    assert list(app.jobs) == ["with_an_async_transaction", "with_a_sync_transaction"]


def test_the_policies_and_their_descriptions_are_those_of_job() -> None:
    for path, text in policies.written().items():
        assert path.read_text("utf-8") == text, "it is out of date; run `make docs`"
    described = re.search(r"Args:\n(.*?)\n\n", inspect.getdoc(App.job) or "", re.DOTALL)
    assert described is not None
    assert re.findall(r"^    (\w+): [A-Z`]", described[1], re.MULTILINE) == [
        "schedule", "name", "middleware", *Policies.__annotations__,
    ]  # fmt: skip
