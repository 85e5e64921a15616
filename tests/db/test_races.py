"""Races and unknown ends of COMMITs: nothing doubled, nothing lost, nothing run twice."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import errors
from structlog.testing import capture_logs

from cronledger.rules import outcome
from tests.db.support.engine import FAILURE, MINUTE, Ledger, Runner, runners, waiting
from tests.waiting import eventually


async def wait_for_locks(runner: Runner) -> None:
    """From now on, its steps wait longer for a lock than a busy machine needs to release it."""
    async with runner.pool.connection() as c:
        c.lock_timeout = MINUTE


@pytest.mark.parametrize(
    "how", ["released", "claimed again", "cancelled", "cancelled afterwards", "retried", "swept"]
)
async def test_an_outcome_whose_answer_is_lost_counts_as_written(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The first COMMIT lands without an answer, and the second write finds its effect."""
    ledger.job(
        schedule=None, allow_stale_reentry=how != "swept", max_attempts=2, retry_backoff=["0 s"]
    )
    execution = ledger.trigger()
    async with runners(ledger.url, {}, {}) as (one, two):
        (start,) = await one.settle()
        if how == "cancelled":
            ledger.one("SELECT cancel(%s)", execution)
        real = one.finisher._send

        async def lost(*write: Any) -> Any:
            monkeypatch.undo()
            if how == "swept":
                ledger.expire()
                await two.sweep()
                return await real(*write)
            await real(*write)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(one.finisher, "_send", lost)
        if how in ("retried", "swept"):
            one.put(start, FAILURE)
        else:
            one.put(start, outcome.shutdown(end_known=True), release=True)
        with capture_logs() as logs:
            if how != "swept":
                with pytest.raises(psycopg.OperationalError):
                    await one.finisher.step()
            if how in ("claimed again", "retried"):
                assert len(await two.settle()) == 1
            elif how == "cancelled afterwards":
                ledger.one("SELECT cancel(%s)", execution)
            await one.finisher.step()
        assert one.finisher.waiting == 0
        written = how != "swept"
        assert [x.lease for x in one.written] == ([start] if written else [])
        assert [x.release for x in one.written] == (
            [how not in ("cancelled", "retried")] if written else []
        )
        assert [x["event"] for x in logs].count("lease_lost") == (0 if written else 1)
        assert one.leases.lost == (0 if written else 1)


async def test_an_outcome_without_its_values_counts_as_written_though_its_answer_was_lost(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.job(schedule=None)
    ledger.trigger()
    (start,) = await one.settle()
    real, calls = one.finisher._send, 0

    async def refused_then_lost(*write: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise errors.CheckViolation("a value is refused")
        await real(*write)
        monkeypatch.undo()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(one.finisher, "_send", refused_then_lost)
    one.put(start)
    with capture_logs() as logs:
        with pytest.raises(psycopg.OperationalError):
            await one.finisher.step()
        await one.finisher.step()
    assert [x["event"] for x in logs] == ["outcome_refused"]
    assert [x.lease for x in one.written] == [start]
    assert ledger.values("SELECT status, error_code FROM executions") == [
        ("SUCCESS", "result_invalid")
    ]


async def test_a_committed_end_is_reported_even_if_the_follow_up_fails(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.job(schedule=None)
    ledger.trigger()
    (start,) = await one.settle()

    async def fails(*_: Any) -> Any:
        raise errors.ReadOnlySqlTransaction("the server is a standby now")

    monkeypatch.setattr(one.statements, "settle_inputs", fails)
    one.finisher._follow_up.settle_later([start.claimed.key.scope])
    one.put(start)
    with pytest.raises(errors.ReadOnlySqlTransaction):
        await one.finisher.step()
    assert [x.lease for x in one.written] == [start]
    await asyncio.wait_for(one.finisher.wait_empty(), 10)
    monkeypatch.undo()
    await one.finisher.step()
    assert one.finisher._follow_up.rest is None


async def test_i6_executions_of_a_claim_that_is_cancelled_after_its_commit_are_released(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain cancels the dispatcher while it looks once more at what it parked."""
    ledger.job("a", schedule="* * * * *")
    ledger.job("b", schedule="* * * * *", overlap="wait")
    async with runners(ledger.url, {}, {}) as (one, two):
        ledger.trigger("b")
        await one.settle()
        ledger.travel(by=MINUTE)
        there = asyncio.Event()

        async def hangs(c: Any, ended: Any) -> Any:
            there.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(two.statements, "rearm_unblocked", hangs)
            claiming = asyncio.create_task(two.step())
            await there.wait()
            assert ledger.statuses("a") == ["RUNNING"]
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming
        await two.claimer.unknown_commits.resolve()
        assert ledger.statuses("a") == ["PENDING"]
        assert [s.claimed.key.job_name for s in await one.settle()] == ["a"]


async def test_i6_an_attempt_of_a_namesake_is_not_released(ledger: Ledger) -> None:
    """A runner with a fixed name was killed and started again: it cannot know what became of it."""
    ledger.job(schedule=None)
    ledger.trigger()
    async with runners(ledger.url, {"name": "fixed"}) as (before,):
        await before.settle()
    async with runners(ledger.url, {"name": "fixed"}) as (after,):
        await after.repair()
        assert await after.settle() == []
        assert ledger.statuses() == ["RUNNING"]


@pytest.mark.parametrize("steals", [False, True], ids=["heartbeat", "thief"])
async def test_i3_a_finish_that_waited_for_a_lock_reads_the_row_again(
    ledger: Ledger, one: Runner, steals: bool
) -> None:
    """Two of one batch: PostgreSQL 18.4 crashes at the second where each is locked by itself.

    The statement may pass over rows that were updated while it waited, which depends on the
    partition, and so on the date. The next step reads these rows and writes them again.
    """
    for name in ("a", "b"):
        ledger.job(name, schedule=None)
        ledger.trigger(name)
    await wait_for_locks(one)
    starts = await one.settle()
    with psycopg.connect(ledger.url) as other:
        change = "lease_token = gen_random_uuid()" if steals else "heartbeat_at = stale_after"
        other.execute(f"UPDATE cronledger.executions SET {change}".encode())
        for start in starts:
            one.put(start)
        finishing = asyncio.create_task(one.finisher.step())
        await eventually("it waits for a lock", lambda: waiting(ledger))
        other.commit()
    await finishing
    while one.finisher.waiting:
        await one.finisher.step()
    assert ledger.statuses("a") == ledger.statuses("b") == ["RUNNING" if steals else "SUCCESS"]
    assert one.leases.lost == 2 * steals


async def test_i6_a_lost_claim_is_released_though_its_row_changed_during_the_search(
    ledger: Ledger, one: Runner
) -> None:
    """PostgreSQL 18.4 passes over such a row where its partition is not the first one."""
    ledger.values(
        "SELECT cronledger_internal.create_partitions(db_now() - interval '30 d', db_now(), 604800)"
    )
    ledger.job(schedule=None)
    execution = ledger.trigger()
    await wait_for_locks(one)
    (start,) = await one.settle()
    one.claimer.unknown_commits.add([start.claimed])
    one.crash()
    with psycopg.connect(ledger.url) as other:
        other.execute("SELECT cronledger.cancel(%s)", [execution])
        settling = asyncio.create_task(one.claimer.unknown_commits.resolve())
        await eventually("it waits for a lock", lambda: waiting(ledger))
        other.commit()
    await settling
    assert ledger.statuses() == ["CANCELLED"]


async def test_the_search_for_a_lost_commit_deadlocks_with_no_client(
    ledger: Ledger, one: Runner
) -> None:
    """A client's transaction takes schedules in whatever order its statements name them."""
    for name in ("a", "b"):
        ledger.job(name, schedule=None)
        ledger.trigger(name)
    for start in await one.settle():
        one.claimer.unknown_commits.add([start.claimed])
    one.crash()
    with psycopg.connect(ledger.url) as client:
        lock = "SELECT FROM cronledger.schedules WHERE job_name = %s FOR NO KEY UPDATE"
        client.execute(lock, ["b"])
        settling = asyncio.create_task(one.claimer.unknown_commits.resolve())
        await eventually("it waits or is done", lambda: waiting(ledger) or settling.done())
        client.execute(lock, ["a"])
    await settling
    assert ledger.statuses("a") == ledger.statuses("b") == ["PENDING"]


async def test_executions_start_even_if_the_second_look_at_parked_rows_fails(
    ledger: Ledger,
) -> None:
    ledger.job("a", schedule="* * * * *")
    ledger.job("b", schedule="* * * * *", overlap="wait")
    async with runners(ledger.url, {}, {}) as (one, two):
        ledger.trigger("b")
        await one.settle()
        ledger.travel(by=MINUTE)

        async def fails(c: Any, ended: Any) -> Any:
            return await c.execute("SELECT 1 / 0")

        two.statements.rearm_unblocked = fails  # type: ignore[method-assign]
        assert [s.claimed.key.job_name for s in await two.step()] == ["a"]
        assert ledger.parked("b") == "waiting"
