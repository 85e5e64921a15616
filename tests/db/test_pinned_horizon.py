"""A session that is idle in a transaction keeps the dead versions of rows. Claims do not read them.

The tests count the blocks that each statement reads, because times depend on the machine.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronledger.ledger.queries import encoded
from tests.bench.pinned import pinned_horizon
from tests.db.support.engine import FAILURE, Ledger, Runner, runners

JOBS = 20
FIRINGS = 60
"""The number of dead versions of each schedule, and of dead RUNNING rows of each job."""
EVERY_SECOND = "* * * * * *"


def count_blocks(runner: Runner) -> Counter[str]:
    """Return the number of blocks that each further statement of the runner reads, by its name."""
    blocks = Counter[str]()
    real = runner.statements._send

    async def send(c: Any, name: str, factory: Any, params: Mapping[str, Any]) -> Any:
        begin, end = ("SAVEPOINT s", "ROLLBACK TO s") if c.gathers else ("BEGIN", "ROLLBACK")
        text = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + encoded(name, "cronledger")
        await c.execute(begin, prepare=False)
        explained = await c.execute(text, params or None, prepare=False)
        ((plan,),) = await explained.fetchone()
        await c.execute(end, prepare=False)
        blocks[name] += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        return await real(c, name, factory, params)

    runner.statements._send = send  # type: ignore[method-assign]
    return blocks


async def fire(ledger: Ledger, runner: Runner, times: int) -> None:
    for _ in range(times):
        ledger.pass_time(timedelta(seconds=1))
        await runner.live_through()
        assert len(await runner.step()) == JOBS
        await runner.finish_all()


async def blocks_of_a_firing(ledger: Ledger, runner: Runner) -> dict[str, int]:
    """Return the least number of blocks that each statement read in three firings.

    The server may drop the plans and caches of a backend at any time: one that is behind with the
    invalidations of a busy server, or whose tables were analyzed. Its next statement also reads
    catalogs.
    """
    found: dict[str, int] = {}
    for _ in range(3):
        blocks = count_blocks(runner)
        await fire(ledger, runner, 1)
        del runner.statements._send
        found |= {name: min(count, found.get(name, count)) for name, count in blocks.items()}
    return found


@pytest.mark.long
async def test_claims_and_finishes_read_no_dead_versions(ledger: Ledger) -> None:
    ledger.stop_clock(ledger.now())
    for number in range(JOBS):
        ledger.job(f"job-{number}", schedule=EVERY_SECOND)
    async with runners(ledger.url, {"notified": False}) as (runner,):
        await runner.run_due()
        await fire(ledger, runner, 5)
        with pinned_horizon(ledger.url):
            before = await blocks_of_a_firing(ledger, runner)
            await fire(ledger, runner, FIRINGS)
            after = await blocks_of_a_firing(ledger, runner)
    assert {"claim_look", "try_claim_new", "advance_schedules", "next_due"} < set(after)
    del after["check_in"]  # it finds what nobody has reported, so it searches everything
    # The trees of the indexes grow by a level, and inserts look for a page with room.
    assert {
        x: (before.get(x, 0), n) for x, n in after.items() if n > 1.6 * before.get(x, 0) + JOBS
    } == {}
    assert ledger.violations() == []


async def test_an_old_execution_that_is_claimed_again_still_blocks(ledger: Ledger) -> None:
    """I7: `running_from` of the schedule has passed the plan_time of a retry."""
    ledger.stop_clock(ledger.now())
    ledger.job(schedule=EVERY_SECOND)
    async with runners(ledger.url, {"notified": False}) as (runner,):
        await runner.run_due()
        ledger.pass_time(timedelta(seconds=1))
        (first,) = await runner.step()
        await runner.finish(first, FAILURE)
        ledger.pass_time(timedelta(seconds=1))
        (second,) = await runner.step()
        await runner.finish(second)
        assert ledger.one("SELECT running_from FROM schedules") > first.claimed.key.plan_time
        ledger.pass_time(timedelta(milliseconds=1))
        ledger.values("SELECT retry(%s)", first.claimed.id)
        (again,) = await runner.step()
        assert again.claimed.id == first.claimed.id
        ledger.pass_time(timedelta(seconds=1))
        assert await runner.step() == []
        await runner.finish(again)
    assert ledger.skipped() == [("overlap", 1)]
    assert ledger.violations() == []


async def test_a_schedule_below_the_low_water_mark_is_found_by_a_check_in(ledger: Ledger) -> None:
    ledger.stop_clock(ledger.now())
    ledger.job("often", schedule=EVERY_SECOND)
    ledger.job("waits", schedule=EVERY_SECOND, overlap="wait")
    async with runners(ledger.url, {"notified": False}) as (runner,):
        await runner.run_due()
        ledger.pass_time(timedelta(seconds=1))
        started = {lease.claimed.key.job_name: lease for lease in await runner.step()}
        await runner.finish(started["often"])
        ledger.pass_time(timedelta(seconds=1))
        (often,) = await runner.step()  # the other one is parked
        await runner.finish(often)
        await runner.finish(started["waits"])  # re-armed, and due before the mark
        assert runner.dispatcher.due_from is not None
        assert await runner.step() == []
        runner.dispatcher.checked_in(await runner.poll())
        (waits,) = await runner.step()
        assert waits.claimed.key.job_name == "waits"
        await runner.finish(waits)
        ledger.edit("waits", schedule="@every 1s")
        ledger.pass_time(timedelta(seconds=1))
        assert len(await runner.step()) == 2


@pytest.mark.own_database
async def test_a_publication_of_the_ledger_does_not_stop_claims(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule=EVERY_SECOND)
    tables = ledger.values(
        "SELECT tablename FROM pg_tables"
        " WHERE schemaname = 'cronledger' AND tablename <> 'time_travel'"  # that of the tests
    )
    ledger.values(f"CREATE PUBLICATION everything FOR TABLE {', '.join(tables)}")
    ledger.travel(by=timedelta(seconds=2))
    assert await one.run_due() > 0


def test_a_schedule_exists_once_and_its_key_follows_it_and_stays(ledger: Ledger) -> None:
    ledger.job()
    for key in ("job_name", "scope_id"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="cannot be changed"):
            ledger.values(f"UPDATE schedules SET {key} = 'other'")
    again = (
        "INSERT INTO schedules (job_name, scope_kind, scope_id, queue, planned_through,"
        " planned_revision, next_due_at) SELECT job_name, scope_kind, scope_id, queue,"
        " planned_through, planned_revision, next_due_at FROM schedules RETURNING scope_id"
    )
    assert ledger.values(again) == []
    ledger.values("CREATE TABLE kept AS SELECT * FROM schedules")
    ledger.values("DELETE FROM schedules")
    assert ledger.values("SELECT * FROM schedule_keys") == []
    assert ledger.values(again.replace("FROM schedules", "FROM kept")) == ["global"]
    ledger.values("INSERT INTO schedule_keys VALUES ('restored', 'global', 'global')")
    ledger.values("UPDATE kept SET job_name = 'restored'")
    assert ledger.values(again.replace("FROM schedules", "FROM kept")) == ["global"]
    ledger.values("TRUNCATE schedules")
    assert ledger.values("SELECT * FROM schedule_keys") == []
