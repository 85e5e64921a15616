"""Reading is bounded and read-only, and the page survives its database."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql
from starlette.testclient import TestClient

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.reports import ReadRows
from cronledger.web import reading
from cronledger.web.reading import Reader
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import expire, panel, text
from tests.web.support.logins import Logins
from tests.web.support.outages import away
from tests.web.support.patience import BEGIN


@pytest.fixture
async def reader(database_url: str, logins: Logins) -> AsyncIterator[Reader]:
    made = Reader(Access(logins.url(database_url, "viewer")), "cronledger")
    yield made
    await made.close()


@pytest.fixture
def statement(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(given: str) -> None:
        monkeypatch.setattr(queries, "text", lambda *_: given)

    return use


@pytest.mark.long
async def test_a_statement_that_takes_too_long_is_stopped(reader: Reader, statement: Any) -> None:
    statement("SELECT pg_sleep(60)")
    reader._begin = BEGIN.replace("{schema}", "cronledger").encode()
    found = await reader.read("any")
    assert found.rows is None
    assert found.problem == "Reading this took longer than 3 s, so it was stopped."


async def test_reading_changes_nothing(reader: Reader, statement: Any, db: Db) -> None:
    rows.job(db)
    statement("CREATE TEMPORARY TABLE x (y int)")
    assert "read-only transaction" in str((await reader.read("any")).problem)
    statement("SELECT cronledger.pause('job')")
    assert "permission denied for function pause" in str((await reader.read("other")).problem)


async def test_many_viewers_are_one_statement(reader: Reader, statement: Any) -> None:
    statement("SELECT random() AS drawn")
    found = await asyncio.gather(*(reader.read("any", fresh=60) for _ in range(200)))
    assert len({reading.known[0]["drawn"] for reading in found}) == 1
    others = await asyncio.gather(*(reader.read("any", fresh=60, x=n) for n in range(3)))
    assert len({reading.known[0]["drawn"] for reading in others}) == 3
    reader.expire()
    assert (await reader.read("any", fresh=60)).known != found[0].known


async def test_a_slow_panel_is_shown_while_it_is_read_again_F97(
    reader: Reader, statement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SLOW", 0.0)
    monkeypatch.setattr(reading, "RESTS", 0)
    statement("SELECT random() AS drawn")
    first = await reader.read("any", fresh=0)
    shown = await reader.read("any", fresh=0)
    assert shown.known == first.known
    while (await reader.read("any", fresh=0)).known == first.known:  # noqa: ASYNC110 - it is read
        await asyncio.sleep(0.001)
    monkeypatch.setattr(reading, "RESTS", 1_000_000)
    kept = await reader.read("any", fresh=0)
    assert (await reader.read("any", fresh=0)).known == kept.known
    reader.expire()
    assert (await reader.read("any", fresh=0)).known != kept.known


async def test_the_oldest_panels_are_forgotten(reader: Reader) -> None:
    for number in range(reading.MOST_PANELS + 10):
        reader._panel(("any", str(number)))
    assert len(reader._panels) == reading.MOST_PANELS


async def test_settings_of_the_role_do_not_change_what_is_read(
    database_url: str, logins: Logins, statement: Any, db: Db
) -> None:
    login = sql.Identifier(logins.name("viewer"))
    for setting in ("timezone = 'Asia/Tokyo'", "intervalstyle = 'iso_8601'"):
        db.execute(sql.SQL("ALTER ROLE {} SET ").format(login) + sql.SQL(setting))
    reader = Reader(Access(logins.url(database_url, "viewer")), "cronledger")
    try:
        statement("SELECT interval '90 min' AS length, current_setting('timezone') AS zone")
        (row,) = (await reader.read("any")).known
        assert (str(row["length"]), row["zone"]) == ("1:30:00", "UTC")
    finally:
        await reader.close()
        db.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(login))


def test_without_its_database_the_page_shows_its_last_data_and_recovers(
    browser: TestClient, db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RETRY", 0.0)
    rows.runner(db, "replica-1")
    assert "replica-1" in panel(browser.get("/").text, "runners")
    with away(database_url):
        expire(browser)
        page = browser.get("/")
        assert page.status_code == 200
        assert "replica-1" in panel(page.text, "runners")
        assert "This page shows what it read" in text(page.text) and 'class="calm"' not in page.text
    expire(browser)
    page = browser.get("/")
    assert "This page shows what it read" not in text(page.text)
    assert "replica-1" in panel(page.text, "runners")


def test_a_login_without_the_role_gets_the_remedy(
    browser: TestClient, db: Db, logins: Logins
) -> None:
    name = sql.Identifier(logins.name("viewer"))
    db.execute(sql.SQL("REVOKE cronledger_viewer FROM {}").format(name))
    try:
        page = text(browser.get("/").text)
    finally:
        db.execute(sql.SQL("GRANT cronledger_viewer TO {}").format(name))
    assert "permission denied for schema cronledger" in page
    assert "grant the right to the current role" in page


async def test_what_is_computed_stays_while_it_cannot_be_read_again(reader: Reader) -> None:
    def clock(read: ReadRows) -> str:
        return str(read("read_clock", {})[0]["now"])

    def fails(_: ReadRows) -> str:
        raise psycopg.errors.QueryCanceled

    def refuses(_: ReadRows) -> str:
        raise LookupError("never existed")

    first = await reader.compute("one", clock, fresh=0)
    reader.expire()  # a computation that took long is not repeated at once
    again = await reader.compute("one", fails, fresh=0)
    assert first.value is not None and first.problem is None
    assert (again.value, again.problem) == (
        first.value, "Reading this took longer than 3 s, so it was stopped.",
    )  # fmt: skip
    with pytest.raises(LookupError, match="never existed"):
        await reader.compute("other", refuses)


async def test_a_computation_that_was_given_up_reads_no_more(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await reader.compute("warm", lambda read: read("read_clock", {}))).value
    began, resume, ended = threading.Event(), threading.Event(), threading.Event()
    outcome: list[str] = []
    patience = asyncio.timeout(None)

    def slow(read: ReadRows) -> None:
        began.set()
        resume.wait(60)
        try:
            read("read_clock", {})
        except concurrent.futures.CancelledError:
            outcome.append("cancelled")
        ended.set()

    with monkeypatch.context() as patched:
        patched.setattr(reading, "asyncio", SimpleNamespace(timeout=lambda _: patience))
        computing = asyncio.create_task(reader.compute("slow", slow))
        assert await asyncio.to_thread(began.wait, 60)
        patience.reschedule(asyncio.get_running_loop().time())
        assert (await computing).problem is not None
    resume.set()
    assert await asyncio.to_thread(ended.wait, 60)
    assert outcome == ["cancelled"]
    monkeypatch.setattr(reader, "_away", (0.0, ""))
    for number in range(8):  # the connection that it had serves others
        after = await reader.compute(f"after {number}", lambda read: read("read_clock", {}))
        assert after.value is not None
