"""What the loops of a replica say of trouble: once, however often it comes back."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from structlog.testing import capture_logs

from cronledger.engine import loops as module
from cronledger.engine.loops import Loops

AWAY = psycopg.OperationalError("the server closed the connection")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "BACKOFF", (0.0,))
    yield


class Steps:
    """A step that raises what it is told to, then waits to be told more."""

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)
        self.done = asyncio.Event()

    async def __call__(self) -> float | None:
        if not self._errors:
            self.done.set()
            return None
        error = self._errors.pop(0)
        if error is not None:
            raise error
        return 0.0


async def _said(steps: Steps) -> list[str]:
    made = Loops(lambda: None)
    with capture_logs() as logs:
        made.drive("one", steps)
        await asyncio.wait_for(steps.done.wait(), 5)
        await made.halt()
    return [str(entry["event"]) for entry in logs]


async def test_a_step_that_fails_now_and_then_says_so_once() -> None:
    """As on a full disk: it fails when it has something to write."""
    full = psycopg.errors.DiskFull("no space left")
    assert await _said(Steps(full, None, full, None, full)) == ["step_failed"]


async def test_another_error_is_said_at_once() -> None:
    steps = Steps(psycopg.errors.DiskFull("full"), None, ValueError("other"), None)
    assert await _said(steps) == ["step_failed", "step_failed"]


async def test_one_loop_that_is_not_answered_does_not_say_so_at_each_try() -> None:
    """As LISTEN, refused on and on while the pool's connections are answered."""
    made = Loops(lambda: None)
    turn = asyncio.Event()

    async def refused() -> float | None:
        made.answered()  # by the others
        if made.seen()["waker"].failures == 5:
            turn.set()
        raise AWAY

    with capture_logs() as logs:
        made.drive("waker", refused)
        await asyncio.wait_for(turn.wait(), 5)
        await made.halt()
    assert [entry["event"] for entry in logs] == ["database_away", "database_back"]


async def test_an_outage_is_said_although_one_loop_was_refused_before() -> None:
    made = Loops(lambda: None)
    failed = asyncio.Event()
    begin = asyncio.Event()

    async def refused() -> float | None:
        if made.seen()["waker"].failures == 1:
            made.answered()
        if made.seen()["waker"].failures == 3:
            begin.set()
        raise AWAY

    async def works() -> float | None:
        if not begin.is_set():
            await begin.wait()
            raise AWAY
        failed.set()
        return None

    with capture_logs() as logs:
        made.drive("waker", refused)
        made.drive("dispatcher", works)
        await asyncio.wait_for(failed.wait(), 5)
        await made.halt()
    said = [(entry["event"], entry.get("loop")) for entry in logs]
    assert said == [("database_away", "waker"), ("database_back", None),
                    ("database_away", "dispatcher")]  # fmt: skip


@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "stands"])
async def test_a_loop_whose_step_never_heard_of_its_cancellation_is_halted(
    monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """As one that waits for the pool when a connection comes in the tick of its cancellation."""
    monkeypatch.setattr(module, "INSIST_SECONDS", 0.01)
    made, waits, swallowed = Loops(lambda: None), asyncio.Event(), asyncio.Event()

    async def deaf() -> float | None:
        waits.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.set()
        if goes_on:
            await asyncio.Event().wait()
        return None

    made.drive("deaf", deaf)
    await waits.wait()
    await asyncio.wait_for(made.halt(), 5)
    assert swallowed.is_set()
