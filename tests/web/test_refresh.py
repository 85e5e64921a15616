"""The stream of events: one LISTEN for all open pages, and none without them."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from cronledger.engine.maintenance.listener import Listener
from cronledger.engine.runtime import loops
from cronledger.ledger.access import Access
from cronledger.web import refresh
from cronledger.web.refresh import EVENT, Refresh
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.waiting import eventually
from tests.web.support.browsing import expire

LISTENERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cronledger listen'"
    " AND datname = current_database() AND query LIKE 'LISTEN%%'"
)


@pytest.fixture
def never_ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "TICK", 3600.0)
    monkeypatch.setattr(refresh, "STREAM_SECONDS", 3600.0)


async def opened(stream: AsyncGenerator[str, None]) -> None:
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


async def test_a_stream_ends_although_its_listener_loses_a_cancellation(
    monkeypatch: pytest.MonkeyPatch, never_ticking: None
) -> None:
    waits = asyncio.Event()

    async def deaf(_: Listener) -> float:
        waits.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()
        return 0.0

    monkeypatch.setattr(loops, "CANCEL_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(Listener, "step", deaf)
    stream = Refresh(Access("host=nowhere"), "cronledger").stream()
    await opened(stream)
    await waits.wait()
    await asyncio.wait_for(stream.aclose(), 90)


async def test_a_process_serves_so_many_open_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "MOST_STREAMS", 1)
    made = Refresh(None, "cronledger")
    stream = made.stream()
    await opened(stream)
    assert made.is_full
    await stream.aclose()
    assert not made.is_full


MOST_BYTES = 100_000
JOBS = 40


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/jobs", "/ledger", "/job/job-07", "/runners"])
def test_an_open_page_where_little_changes_receives_little_in_a_minute_F97(
    browser: TestClient, db: Db, path: str
) -> None:
    """It reads itself at each tick, and one execution ends in this minute."""
    for number in range(JOBS):
        rows.job(db, f"job-{number:02}")
        rows.execution(db, "SUCCESS", f"job-{number:02}")
    first = browser.get(path)
    known = parts_of(first.text)
    assert len(known) > 1
    received = 0
    ticks = round(60 / refresh.TICK)
    for tick in range(ticks):
        if tick == ticks // 2:
            at = rows.now(db) - timedelta(seconds=9)
            rows.execution(db, "FAILED", "job-07", plan_time=at)
        expire(browser)
        header = " ".join(f"{name}={digest}" for name, digest in known.items())
        fresh = browser.get(path, headers={"Known-Parts": header, "Accept-Encoding": "gzip"})
        received += len(EVENT) + fresh.num_bytes_downloaded
        received += sum(len(name) + len(text) + 4 for name, text in fresh.headers.raw)
        known |= parts_of(fresh.text)
    assert received < MOST_BYTES
    assert "gzip" in first.headers["content-encoding"]


def parts_of(html: str) -> dict[str, str]:
    return dict(re.findall(r'id="([^"]+)" data-part="([^"]+)"', html))
