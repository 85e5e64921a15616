"""Deadlines and sums by hour at their boundaries: equal instants, and what does not count."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from psycopg.types.json import Jsonb

from cronledger.audit.verify import verify
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.rolled_hours import round_of

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)


@pytest.fixture
async def one(ledger: Ledger, database_url: str) -> AsyncIterator[Runner]:
    async with runners(database_url, {}) as (made,):
        yield made


def missed(ledger: Ledger) -> list[tuple[str, str]]:
    """Return the recorded breaches, and not only those that the view `breaches` still shows."""
    return ledger.values("SELECT job_name, kind FROM verify_breaches ORDER BY job_name, kind")


def next_minute(ledger: Ledger) -> datetime:
    return ledger.now().replace(second=0, microsecond=0) + MINUTE


async def judge(ledger: Ledger, runner: Runner, at: datetime) -> None:
    """The sweeper looks at this instant."""
    ledger.travel(to=at)
    await runner.repair()


async def started(ledger: Ledger, runner: Runner) -> datetime:
    """Start the next firing of each job, and return its plan_time. The jobs have no later ones."""
    at = next_minute(ledger)
    ledger.travel(to=at + SECOND)
    await runner.settle()
    ledger.values("UPDATE jobs SET schedule = '0 0 1 1 *'")
    return at


def put(ledger: Ledger, column: str, **values: object) -> None:
    """Set a column of the execution of each job."""
    for job, value in values.items():
        ledger.values(f"UPDATE executions SET {column} = %s WHERE job_name = %s", value, job)


def ended(
    ledger: Ledger, begin: datetime, status: str, milliseconds: int, count: int, *, job: str = "job"
) -> None:
    """Insert ended executions, one for each minute from `begin` on."""
    plan_times = [begin + number * MINUTE for number in range(count)]
    ledger.values(
        "SELECT cronledger_internal.create_missing_partitions(%s::timestamptz[])", plan_times
    )
    ledger.values(
        "INSERT INTO executions (job_name, scope_kind, scope_id, plan_time, status, trigger,"
        " revision, queue, due_at, attempt, max_attempts, lease_token, started_at, finished_at,"
        " duration_ms, error_code, changed_xact)"
        " SELECT %s, 'global', 'global', at, %s, 'manual', 1, 'default', at, 1, 1,"
        " gen_random_uuid(), at, at, %s, CASE %s WHEN 'FAILED' THEN 'boom' END,"
        " pg_current_xact_id() FROM unnest(%s::timestamptz[]) at",
        job, status, milliseconds, status, plan_times,
    )  # fmt: skip


async def test_a_start_exactly_at_start_by_is_in_time(
    ledger: Ledger, one: Runner, database_url: str
) -> None:
    for job in ("exact", "late"):
        ledger.job(job, schedule="* * * * *", start_by="10s", stale_timeout="1 h")
    at = await started(ledger, one)
    put(ledger, "started_at", exact=at + 10 * SECOND, late=at + 10 * SECOND + TICK)
    await judge(ledger, one, at + 12 * SECOND)
    assert missed(ledger) == [("late", "start_by")]
    assert [found for found in verify(database_url) if found.kind == "wrong_breach"] == []


async def test_an_end_exactly_at_finish_by_is_in_time(
    ledger: Ledger, one: Runner, database_url: str
) -> None:
    for job in ("exact", "late"):
        ledger.job(job, schedule="* * * * *", finish_by="10s", stale_timeout="1 h")
    at = await started(ledger, one)
    for start in tuple(one.held):
        await one.finish(start)
    put(ledger, "finished_at", exact=at + 10 * SECOND, late=at + 10 * SECOND + TICK)
    await judge(ledger, one, at + 12 * SECOND)
    assert missed(ledger) == [("late", "finish_by")]
    assert [found for found in verify(database_url) if found.kind == "wrong_breach"] == []


async def test_a_duration_equal_to_the_expected_one_is_in_time(ledger: Ledger, one: Runner) -> None:
    for job in ("exact", "long"):
        ledger.job(job, schedule="* * * * *", expect_duration="10s", stale_timeout="1 h")
    at = await started(ledger, one)
    for start in tuple(one.held):
        await one.finish(start)
    put(ledger, "duration_ms", exact=10_000, long=10_001)
    await judge(ledger, one, at + MINUTE)
    assert missed(ledger) == [("long", "expect_duration")]


async def test_a_retry_does_not_change_when_an_execution_started(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", start_by="10s", stale_timeout="1 h", max_attempts=2)
    at = await started(ledger, one)
    first = {"attempt": 1, "started_at": (at + 5 * SECOND).isoformat()}
    ledger.values(
        "UPDATE executions SET attempt = 2, started_at = %s, attempts = %s",
        at + 20 * SECOND, Jsonb([first]),
    )  # fmt: skip
    await judge(ledger, one, at + 30 * SECOND)
    assert missed(ledger) == []


async def test_a_cancel_after_finish_by_does_not_excuse_the_deadline(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", finish_by="10s", handler="external", target={})
    at = await started(ledger, one)
    ledger.travel(to=at + 20 * SECOND)
    ledger.values("SELECT cancel(id) FROM executions")
    await judge(ledger, one, at + 30 * SECOND)
    assert missed(ledger) == [("job", "finish_by")]


async def test_a_plan_time_that_was_skipped_on_purpose_has_missed_no_deadline(
    ledger: Ledger, one: Runner
) -> None:
    for reason in ("retired", "paused"):
        ledger.job(reason, schedule="* * * * *", start_by="30s", finish_by="30s")
    at = next_minute(ledger)
    await judge(ledger, one, at + SECOND)
    assert ledger.one("SELECT count(*) FROM unjudged_deadlines") == 4
    ledger.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision) SELECT name, 'global', 'global', %s, %s, 1, name, 1 FROM jobs",
        at, at,
    )  # fmt: skip
    ledger.values("UPDATE jobs SET schedule = '0 0 1 1 *'")
    await judge(ledger, one, at + MINUTE)
    assert missed(ledger) == []
    assert ledger.values("SELECT * FROM compliance") == []


async def test_a_deadline_is_judged_a_second_after_it(ledger: Ledger, one: Runner) -> None:
    """The COMMIT of a start or an end that met it may become visible after it."""
    ledger.job(schedule="* * * * *", start_by="50s")
    at = next_minute(ledger)
    await judge(ledger, one, at)
    assert ledger.values("SELECT look_at - deadline FROM unjudged_deadlines") == [SECOND]


async def test_the_usual_duration_is_that_of_successes_before_the_plan_time(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", expect_duration="2*p99", catch_up="skip", grace="0 s")
    at = next_minute(ledger)
    ended(ledger, at - 400 * MINUTE, "SUCCESS", 60_000, 100)  # of the last 200 none is so old
    ended(ledger, at - 200 * MINUTE, "SUCCESS", 20_000, 150)
    ended(ledger, at - 50 * MINUTE, "FAILED", 60_000, 50)
    ended(ledger, at, "SUCCESS", 60_000, 1)
    await judge(ledger, one, at + SECOND)
    assert ledger.values("SELECT expected FROM unjudged_deadlines") == [40 * SECOND]


async def test_the_usual_duration_needs_20_successes_and_is_at_least_a_second(
    ledger: Ledger, one: Runner
) -> None:
    at = next_minute(ledger)
    for job, successes in (("few", 19), ("enough", 20)):
        ledger.job(job, schedule="* * * * *", expect_duration="2*p50")
        ended(ledger, at - 30 * MINUTE, "SUCCESS", 1, successes, job=job)
        ended(ledger, at - 5 * MINUTE, "FAILED", 1, 4, job=job)
    await judge(ledger, one, at + SECOND)
    found = ledger.values("SELECT job_name, expected FROM unjudged_deadlines")
    assert found == [("enough", SECOND)]


def test_an_hour_is_counted_five_minutes_after_its_end(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    hour = ledger.now().replace(minute=0, second=0, microsecond=0)
    ended(ledger, hour, "SUCCESS", 10, 1)
    for after, counted in ((5 * MINUTE - SECOND, 0), (5 * MINUTE, 1)):
        ledger.stop_clock(hour + HOUR + after)
        round_of(ledger)
        assert ledger.one("SELECT count(*) FROM execution_hours") == counted


def test_an_hour_does_not_contain_the_beginning_of_the_next_one(ledger: Ledger) -> None:
    """And manual executions have no lateness."""
    ledger.job(schedule=None)
    hour = ledger.now().replace(minute=0, second=0, microsecond=0)
    for begin in (hour, hour + HOUR):
        ended(ledger, begin, "SUCCESS", 10, 1)
    sums = "SELECT success, starts FROM execution_sums('job', 'global', 'global', %s, %s)"
    assert ledger.values(sums, hour - HOUR, hour) == [(0, 0)]
    assert ledger.values(sums, hour, hour + HOUR) == [(1, 0)]
    ledger.travel(to=hour + 3 * HOUR)
    round_of(ledger)
    counted = ledger.values("SELECT success, starts FROM execution_hours ORDER BY hour")
    assert counted == [(1, 0), (1, 0)]


async def test_no_deadline_is_judged_again_after_the_clock_went_back(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", start_by="10s")
    at = next_minute(ledger)
    for instant in (at + 12 * SECOND, at - HOUR, at + 12 * SECOND):
        ledger.values("UPDATE deadline_cursors SET next_at = %s", instant)
        await judge(ledger, one, instant)
    assert missed(ledger) == [("job", "start_by")]
    assert ledger.values("SELECT met, missed FROM compliance") == [(0, 1)]
