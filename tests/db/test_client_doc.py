"""docs/client.md, and the fixture `client` of docs/howto/testing.md: every snippet is run."""

import re
import sys
from types import ModuleType
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from cronledger.client import Client
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.sources.apply import apply
from cronledger.testing import Ledger
from tests.db.support import rows
from tests.db.support.frameworks import async_engine, django_connection, sqlalchemy_engine
from tests.db.support.rows import Db
from tests.docs.support.pages import run_snippets, snippets


@pytest.fixture
def page(db: Db, database_url: str) -> Any:
    """What the page defines, on a ledger with its jobs and its table."""
    for statement in snippets("client.md", "sql"):
        db.execute(statement.encode())
    module = ModuleType("documented")
    vars(module).update(run_snippets("client.md"))
    apply(database_url, list(module.app.jobs.values()), source="shop")
    return module


def numbers(db: Db) -> tuple[list[int], list[int]]:
    """The numbers of the orders, and those of the executions."""
    orders = db.execute("SELECT number FROM orders ORDER BY 1").fetchall()
    payloads = db.execute("SELECT payload FROM cronledger.executions ORDER BY id").fetchall()
    return [row["number"] for row in orders], [row["payload"]["number"] for row in payloads]


async def test_an_order_and_its_execution_are_saved_together(
    page: Any, db: Db, database_url: str
) -> None:
    page.place(database_url, 1)
    with sqlalchemy_engine(database_url) as engine, Session(engine) as session:
        page.place_in_session(session, 2)
    async with async_engine(database_url) as other, AsyncSession(other) as async_session:
        await page.place_in_async_session(async_session, 3)
    assert numbers(db) == ([1, 2, 3], [1, 2, 3])
    with pytest.raises(psycopg.errors.UniqueViolation):
        page.place(database_url, 1)
    assert numbers(db) == ([1, 2, 3], [1, 2, 3])


def test_the_same_with_django(page: Any, db: Db, database_url: str) -> None:
    with django_connection(database_url):
        page.place_in_django(4)
        with pytest.raises(Exception, match="duplicate key"):
            page.place_in_django(4)
    assert numbers(db) == ([4], [4])


def test_work_may_be_due_later(page: Any, db: Db, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        made = page.ship_tomorrow(5, connection)
    (row,) = db.execute("SELECT due_at > plan_time AS later FROM cronledger.executions").fetchall()
    assert row["later"]
    with Client(database_url) as client:
        assert client.cancel(made) == "cancelled"


def test_the_client_of_the_page_operates(page: Any, db: Db, database_url: str) -> None:
    assert page.operate(database_url) == ["cancelled", "retried"]
    rows.execution(db, "FAILED", "ship", plan_time=rows.now(db))
    (failed, upcoming) = page.yesterday(database_url)
    assert re.fullmatch(r"ship #\d+ failed: boom", failed)
    assert upcoming == "0 upcoming"
    assert page.try_to_pause(database_url, "ship") is None
    assert page.try_to_pause(database_url, "shop").startswith("job 'shop' does not exist; To list")


async def test_the_client_of_the_page_waits(page: Any, database_url: str) -> None:
    async with Replica(page.app, url=database_url, settings=Settings()):
        assert await page.operate_async(database_url) == "SUCCESS: order 8"


@pytest.mark.long
async def test_the_fixture_client_works_as_its_page_says(
    page: Any, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of this page are those of the module `myproject.jobs`."""
    monkeypatch.setitem(sys.modules, "myproject", ModuleType("myproject"))
    monkeypatch.setitem(sys.modules, "myproject.jobs", page)
    names = run_snippets("howto/testing.md", "client")
    ledger = Ledger(database_url)
    with Client(database_url) as client:
        await names["test_an_order_is_shipped"](ledger, client)
    ledger.close()
