"""Races and unknown ends of COMMITs: nothing doubled, nothing lost, nothing run twice."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from structlog.testing import capture_logs

from cronledger.ledger.round_trips import RoundTrips
from cronledger.rules import outcome
from tests.db.support.engine import Ledger, Runner, runners, waiting
from tests.waiting import eventually

MINUTE = timedelta(minutes=1)
FAILURE = outcome.failure(ValueError("no"))


def lose_the_answer(runner: Runner, monkeypatch: pytest.MonkeyPatch, *, lands: bool) -> None:
    """The connection breaks before the answer to the next claim's COMMIT is read.

    `lands`: the server has executed it; otherwise its backend is terminated before that.
    """
    real = runner.statements.advance_schedules

    async def breaking(c: Any, plans: Any) -> Any:
        monkeypatch.undo()
        cursor = await real(c, plans)
        if lands:
            monkeypatch.setattr(RoundTrips, "make", lost)
        else:
            await c.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return cursor

    make = RoundTrips.make

    async def lost(self: RoundTrips) -> None:
        monkeypatch.undo()
        await make(self)
        self._connection.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(runner.statements, "advance_schedules", breaking)


@pytest.mark.parametrize(
    "how",
    ["released", "claimed again", "cancelled", "cancelled afterwards", "retried", "swept"],
)
async def test_what_a_lost_answer_has_written_counts_as_written(
    ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The first COMMIT lands without an answer, and the second write finds its effect."""
    ledger.job(
        schedule=None, allow_stale_reentry=how != "swept", max_attempts=2, retry_backoff=["0 s"]
    )
    execution = ledger.trigger()
    async with runners(database_url, {}, {}) as (one, two):
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
    ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.job(schedule=None)
    ledger.trigger()
    async with runners(database_url, {}) as (one,):
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


async def test_what_is_committed_is_reported_even_if_the_follow_up_fails(
    ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.job(schedule=None)
    ledger.trigger()
    async with runners(database_url, {}) as (one,):
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


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
async def test_i6_a_commit_of_unknown_outcome_doubles_and_loses_nothing(
    ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch, lands: bool, reentrant: bool
) -> None:
    ledger.job(schedule="* * * * *", allow_stale_reentry=reentrant)
    ledger.job("due again", schedule=None, allow_stale_reentry=reentrant)
    ledger.trigger("due again")
    ledger.travel(by=MINUTE)
    async with runners(database_url, {}, {}) as (one, two):
        lose_the_answer(one, monkeypatch, lands=lands)
        with pytest.raises(psycopg.OperationalError):
            await one.step()
        assert one.held == []
        assert ledger.statuses() == (["RUNNING"] if lands else [])
        # Nobody takes what landed: it may be running, as far as others can know.
        started = await two.settle()
        assert len(started) == (0 if lands else 2)
        started += await one.settle()
    names = Counter(s.claimed.key.job_name for s in started)
    assert names == {"job": 1, "due again": 1}
    how = ledger.values(
        "SELECT attempt, max_attempts, jsonb_array_length(attempts) FROM executions"
    )
    assert how == [(2, 2, 1)] * 2 if lands else [(1, 1, 0)] * 2


async def test_i6_a_claim_that_is_cut_off_after_its_commit_goes_back(
    ledger: Ledger, database_url: str
) -> None:
    """A drain cancels the dispatcher while it looks once more at what it parked."""
    ledger.job("a", schedule="* * * * *")
    ledger.job("b", schedule="* * * * *", overlap="wait")
    async with runners(database_url, {}, {}) as (one, two):
        ledger.trigger("b")
        await one.settle()
        ledger.travel(by=MINUTE)
        there = asyncio.Event()

        async def hangs(c: Any, ended: Any) -> Any:
            there.set()
            await asyncio.sleep(60)

        two.statements.rearm_unblocked = hangs  # type: ignore[method-assign]
        claiming = asyncio.create_task(two.step())
        await there.wait()
        assert ledger.statuses("a") == ["RUNNING"]
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await two.claimer.unknown_commits.resolve()
        assert ledger.statuses("a") == ["PENDING"]
        assert [s.claimed.key.job_name for s in await one.settle()] == ["a"]


async def test_i6_what_a_namesake_started_is_not_released(
    ledger: Ledger, database_url: str
) -> None:
    """A runner with a fixed name was killed and started again: it cannot know what became of it."""
    ledger.job(schedule=None)
    ledger.trigger()
    async with runners(database_url, {"name": "fixed"}) as (before,):
        await before.settle()
    async with runners(database_url, {"name": "fixed"}) as (after,):
        await after.repair()
        assert await after.settle() == []
        assert ledger.statuses() == ["RUNNING"]
        ledger.expire()
        await after.sweep()
    assert ledger.one("SELECT error_code FROM executions") == "stale_timeout"


async def test_i2_an_unknown_commit_waits_for_the_old_backend(
    ledger: Ledger, database_url: str
) -> None:
    """A look at the tokens beside an open transaction would say that nothing landed."""
    ledger.job(schedule=None)
    ledger.trigger()
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        one.crash()
        with psycopg.connect(database_url) as old:
            old.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
            old.execute("UPDATE cronledger.executions SET updated_at = cronledger.db_now()")
            one.claimer.unknown_commits.add([start.claimed])
            settling = asyncio.create_task(one.claimer.unknown_commits.resolve())
            await eventually("it waits for a lock", lambda: waiting(ledger))
            assert not settling.done()
            old.commit()
        await settling
    assert ledger.statuses() == ["PENDING"]


@pytest.mark.parametrize("steals", [False, True], ids=["heartbeat", "thief"])
async def test_i3_a_finish_that_waited_goes_by_the_row_as_it_is_then(
    ledger: Ledger, database_url: str, steals: bool
) -> None:
    """Two of one batch: PostgreSQL 18.4 crashes at the second where each is locked by itself.

    The statement may pass over rows that were updated while it waited, which depends on the
    partition, and so on the date. The next step reads these rows and writes them again.
    """
    for name in ("a", "b"):
        ledger.job(name, schedule=None)
        ledger.trigger(name)
    async with runners(database_url, {}) as (one,):
        starts = await one.settle()
        with psycopg.connect(database_url) as other:
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


async def test_i6_what_was_changed_while_a_lost_commit_was_looked_up_goes_back(
    ledger: Ledger, database_url: str
) -> None:
    """PostgreSQL 18.4 passes over such a row where its partition is not the first one."""
    ledger.values(
        "SELECT cronledger_internal.create_partitions(db_now() - interval '30 d', db_now(), 604800)"
    )
    ledger.job(schedule=None)
    execution = ledger.trigger()
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        one.claimer.unknown_commits.add([start.claimed])
        one.crash()
        with psycopg.connect(database_url) as other:
            other.execute("SELECT cronledger.cancel(%s)", [execution])
            settling = asyncio.create_task(one.claimer.unknown_commits.resolve())
            await eventually("it waits for a lock", lambda: waiting(ledger))
            other.commit()
        await settling
    assert ledger.statuses() == ["CANCELLED"]


async def test_who_looks_up_a_commit_deadlocks_with_no_client(
    ledger: Ledger, database_url: str
) -> None:
    """A client's transaction takes schedules in whatever order its statements name them."""
    for name in ("a", "b"):
        ledger.job(name, schedule=None)
        ledger.trigger(name)
    async with runners(database_url, {}) as (one,):
        for start in await one.settle():
            one.claimer.unknown_commits.add([start.claimed])
        one.crash()
        with psycopg.connect(database_url) as client:
            lock = "SELECT FROM cronledger.schedules WHERE job_name = %s FOR NO KEY UPDATE"
            client.execute(lock, ["b"])
            settling = asyncio.create_task(one.claimer.unknown_commits.resolve())
            await eventually("it waits or is done", lambda: waiting(ledger) or settling.done())
            client.execute(lock, ["a"])
        await settling
    assert ledger.statuses("a") == ledger.statuses("b") == ["PENDING"]


async def test_i10_an_edit_that_waits_for_a_claim_takes_effect_after_the_wait(
    ledger: Ledger, database_url: str
) -> None:
    """What the clock passed while the edit waited still belongs to the old revision."""
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    editor = Ledger(database_url)
    with psycopg.connect(database_url) as claim, ThreadPoolExecutor(1) as pool:
        claim.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
        edit = pool.submit(editor.edit, schedule="*/10 * * * *")
        await eventually("it waits for a lock", lambda: waiting(ledger))
        ledger.travel(by=3 * MINUTE)
        claim.commit()
        edit.result()
    editor.close()
    async with runners(database_url, {}) as (one,):
        assert [s.claimed.revision for s in await one.settle()] == [1, 1, 1]


async def test_i7_concurrent_retries_steals_and_fresh_plans_never_overlap(
    ledger: Ledger, database_url: str
) -> None:
    """Three runners at once over scopes with something of each kind; an exclusion watches."""
    ledger.values(_ONE_RUNNING)
    shards = [f"s{n}" for n in range(8)]
    ledger.job(
        schedule="* * * * *", overlap="wait", catch_up="all", allow_stale_reentry=True,
        max_attempts=3, retry_backoff=["0 s"], scope_kind="shard", scopes=shards,
    )  # fmt: skip
    ledger.travel(by=3 * MINUTE)
    ledger.values("SELECT trigger('job', 'shard', s) FROM unnest(%s::text[]) s", shards)
    done: Counter[Any] = Counter()

    async def work(runner: Runner, number: int) -> None:
        turn = 0
        while sum(done.values()) < 4 * len(shards):
            turn += 1
            await (runner.steal() if turn % 2 else runner.step())
            for n, start in enumerate(list(runner.held)):
                if (n + number) % 3 == 0 and start.claimed.attempt == 1:
                    await runner.finish(start, FAILURE)
                elif (n + number) % 3 == 1 and start.claimed.attempt == 1:
                    runner.held.remove(start)  # it dies
                    runner.leases.remove(start.claimed.token)
                    ledger.values(
                        "UPDATE executions SET stale_after = db_now() - interval '1 s'"
                        " WHERE lease_token = %s AND status = 'RUNNING'", start.claimed.token,
                    )  # fmt: skip
                else:
                    await runner.finish(start)
                    done[start.claimed.key] += 1
            if turn % 5 == 0:
                await runner.repair()

    async with runners(database_url, {}, {}, {}) as three:
        await asyncio.wait_for(asyncio.gather(*(work(r, n) for n, r in enumerate(three))), 60)
    assert set(done.values()) == {1}
    assert ledger.statuses() == ["SUCCESS"] * 4 * len(shards)
    assert ledger.one("SELECT count(*) FROM executions WHERE attempt > max_attempts") == 0


# A second RUNNING row of a (job, scope) cannot be committed: the test fails by its error.
_ONE_RUNNING = """
CREATE TABLE cronledger.running_now (job text, scope text, PRIMARY KEY (job, scope));
CREATE FUNCTION cronledger.one_running() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.status = 'RUNNING' AND NEW.status <> 'RUNNING' THEN
        DELETE FROM cronledger.running_now WHERE (job, scope) = (OLD.job_name, OLD.scope_id);
    ELSIF NEW.status = 'RUNNING' AND (TG_OP = 'INSERT' OR OLD.status <> 'RUNNING') THEN
        INSERT INTO cronledger.running_now VALUES (NEW.job_name, NEW.scope_id);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER one_running AFTER INSERT OR UPDATE ON cronledger.executions
    FOR EACH ROW EXECUTE FUNCTION cronledger.one_running();
"""


async def test_after_the_claim_nothing_can_take_its_executions_away(
    ledger: Ledger, database_url: str
) -> None:
    """The second look at parked rows fails: the claim is committed and its executions start."""
    ledger.job("a", schedule="* * * * *")
    ledger.job("b", schedule="* * * * *", overlap="wait")
    async with runners(database_url, {}, {}) as (one, two):
        ledger.trigger("b")
        await one.settle()
        ledger.travel(by=MINUTE)

        async def fails(c: Any, ended: Any) -> Any:
            return await c.execute("SELECT 1 / 0")

        two.statements.rearm_unblocked = fails  # type: ignore[method-assign]
        assert [s.claimed.key.job_name for s in await two.step()] == ["a"]
        assert ledger.parked("b") == "waiting"
