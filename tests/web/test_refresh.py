"""The stream of events: one LISTEN for all open pages, and none without them."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from cronledger.ledger.access import Access
from cronledger.web import refresh
from cronledger.web.refresh import EVENT, Refresh
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.waiting import eventually

LISTENERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cronledger listen'"
    " AND datname = current_database() AND query LIKE 'LISTEN%%'"
)


@pytest.fixture
def never_ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "TICK", 3600.0)
    monkeypatch.setattr(refresh, "STREAM_SECONDS", 3600.0)


async def opened(stream: AsyncGenerator[str, None]) -> None:
    """Return once a stream is open."""
    assert (await anext(stream)).startswith("retry: ")


@pytest.mark.long
async def test_a_change_reaches_all_pages_through_one_listen(
    database_url: str, db: Db, never_ticking: None
) -> None:
    made = Refresh(Access(database_url), "cronledger")
    streams = [made.stream() for _ in range(20)]
    for stream in streams:
        await opened(stream)
    first = await asyncio.gather(*(anext(stream) for stream in streams))
    assert first == [EVENT] * 20  # the listener has connected
    assert value(db, LISTENERS) == 1
    waiting = asyncio.gather(*(anext(stream) for stream in streams))
    rows.job(db, queue="slow")
    await asyncio.to_thread(db.execute, "SELECT cronledger.pause_queue('slow')")
    assert await waiting == [EVENT] * 20
    for stream in streams:
        await stream.aclose()
    await eventually("the listener has gone", lambda: value(db, LISTENERS) == 0)


async def test_without_notifications_pages_read_themselves_at_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refresh, "TICK", 0.01)
    monkeypatch.setattr(refresh, "PAUSE", 0.0)
    stream = Refresh(None, "cronledger").stream()
    await opened(stream)
    assert [await anext(stream) for _ in range(3)] == [EVENT] * 3
    await stream.aclose()


async def test_a_stop_ends_all_streams(never_ticking: None) -> None:
    made = Refresh(None, "cronledger")
    stream = made.stream()
    await opened(stream)
    waiting = asyncio.ensure_future(anext(stream, "ended"))
    await asyncio.sleep(0)
    made.stop()
    assert await waiting == "ended"


async def test_a_process_serves_so_many_open_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "MOST_STREAMS", 1)
    made = Refresh(None, "cronledger")
    stream = made.stream()
    await opened(stream)
    assert made.is_full
    await stream.aclose()
    assert not made.is_full
