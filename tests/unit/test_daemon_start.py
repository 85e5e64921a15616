"""What a process does at its start when the database goes away in the middle of it."""

import asyncio
from datetime import timedelta

import psycopg
import pytest
from psycopg import errors
from structlog.testing import capture_logs

from cronledger.process.daemon import Daemon, DaemonOptions
from cronledger.settings import Settings


def _work(seconds: float) -> Daemon:
    return Daemon(DaemonOptions(settings=Settings(), patience=timedelta(seconds=seconds)))


class Flaky:
    """Fails with these, one after the other, then is done."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.tries = 0
        self.tried = asyncio.Event()

    async def __call__(self) -> None:
        self.tries += 1
        self.tried.set()
        if self.failures:
            raise self.failures.pop(0)


@pytest.mark.long
async def test_the_start_is_begun_anew_when_the_database_went_away() -> None:
    flaky = Flaky(errors.AdminShutdown("fast"), psycopg.OperationalError("refused"))
    with capture_logs() as logs:
        assert await _work(60)._when_reachable(flaky, asyncio.Event())
    assert flaky.tries == 3
    assert [entry["event"] for entry in logs] == [
        "database_awaited", "database_awaited", "database_reached",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [
        errors.DiskFull("no space"),
        psycopg.OperationalError('connection failed: FATAL:  database "absent" does not exist'),
    ],
    ids=["another error", "a refused connection"],
)
async def test_an_error_other_than_an_absent_database_ends_the_start(
    failure: psycopg.Error,
) -> None:
    flaky = Flaky(failure)
    with capture_logs() as logs, pytest.raises(type(failure)):
        await _work(60)._when_reachable(flaky, asyncio.Event())
    assert (flaky.tries, logs) == (1, [])


async def test_reasons_that_take_turns_are_not_logged_at_each_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", lambda _: real(0))
    flaky = Flaky(*[psycopg.OperationalError(text) for text in ("refused", "starting") * 3])
    with capture_logs() as logs:
        assert await _work(60)._when_reachable(flaky, asyncio.Event())
    assert [entry.get("error") for entry in logs] == ["refused", "starting", None]


async def test_the_wait_for_the_database_ends_after_its_patience() -> None:
    flaky = Flaky(*[psycopg.OperationalError("refused")] * 100)
    with pytest.raises(psycopg.OperationalError):
        await _work(0.05)._when_reachable(flaky, asyncio.Event())
    assert flaky.tries == 2


async def test_a_signal_ends_the_wait() -> None:
    stop = asyncio.Event()
    flaky = Flaky(*[psycopg.OperationalError("refused")] * 100)
    waiting = asyncio.create_task(_work(60)._when_reachable(flaky, stop))
    await flaky.tried.wait()
    stop.set()
    assert not await waiting
