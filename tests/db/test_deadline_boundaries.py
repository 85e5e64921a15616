"""Deadlines and sums by hour at their boundaries: equal instants, and what does not count."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from cronledger.audit.verify import verify
from tests.db.support.engine import HOUR, MINUTE, SECOND, Ledger, Runner
from tests.db.support.rolled_hours import round_of
from tests.db.support.rows import skip

TICK = timedelta(microseconds=1)


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


async def ended(ledger: Ledger, runner: Runner) -> datetime:
    """The same, and the executions have succeeded."""
    at = await started(ledger, runner)
    await runner.finish_all()
    return at


def minutes(begin: datetime, count: int) -> list[datetime]:
    return [begin + number * MINUTE for number in range(count)]


@pytest.mark.parametrize("kind", ["start_by", "finish_by", "expect_duration"])
async def test_what_equals_its_limit_is_in_time(ledger: Ledger, one: Runner, kind: str) -> None:
    for job in ("exact", "late"):
        ledger.job(job, schedule="* * * * *", stale_timeout="1 h", **{kind: "10s"})
    at = await (started if kind == "start_by" else ended)(ledger, one)
    limit = at + 10 * SECOND
    column, exact, late = {
        "start_by": ("started_at", limit, limit + TICK),
        "finish_by": ("finished_at", limit, limit + TICK),
        "expect_duration": ("duration_ms", 10_000, 10_001),
    }[kind]
    for job, value in (("exact", exact), ("late", late)):
        ledger.values(f"UPDATE executions SET {column} = %s WHERE job_name = %s", value, job)
    await judge(ledger, one, at + (MINUTE if kind == "expect_duration" else 12 * SECOND))
    assert missed(ledger) == [("late", kind)]
    wrong = [found for found in verify(ledger.url) if found.kind == "wrong_breach"]
    assert wrong == [] or kind == "expect_duration"  # which start and end contradict here


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
    for reason in ("retired", "paused"):
        skip(ledger.db, at, reason=reason, job=reason)
    ledger.values("UPDATE jobs SET schedule = '0 0 1 1 *'")
    await judge(ledger, one, at + MINUTE)
    assert missed(ledger) == []
    assert ledger.values("SELECT * FROM compliance") == []


async def test_a_plan_time_that_an_operator_skips_has_missed_no_deadline(
    ledger: Ledger, one: Runner
) -> None:
    """Also if no claim has recorded the skip yet."""
    ledger.job(schedule="* * * * *", start_by="30s", finish_by="30s")
    at = next_minute(ledger)
    ledger.values("SELECT skip('job', %s, 'stocktaking')", at)
    await judge(ledger, one, at + SECOND)
    assert ledger.one("SELECT count(*) FROM unjudged_deadlines") == 2
    await judge(ledger, one, at + MINUTE - SECOND)
    assert missed(ledger) == []
    ledger.values("DELETE FROM planned_skips")
    await judge(ledger, one, at + 2 * MINUTE)
    assert missed(ledger) == [("job", "finish_by"), ("job", "start_by")]


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
    # Of the last 200 none is as old as the first ones.
    for begin, status, milliseconds, count in (
        (at - 400 * MINUTE, "SUCCESS", 60_000, 100), (at - 200 * MINUTE, "SUCCESS", 20_000, 150),
        (at - 50 * MINUTE, "FAILED", 60_000, 50), (at, "SUCCESS", 60_000, 1),
    ):  # fmt: skip
        ledger.ended(minutes(begin, count), status, trigger="manual", duration_ms=milliseconds)
    await judge(ledger, one, at + SECOND)
    assert ledger.values("SELECT expected FROM unjudged_deadlines") == [40 * SECOND]


async def test_the_usual_duration_needs_20_successes_and_is_at_least_a_second(
    ledger: Ledger, one: Runner
) -> None:
    at = next_minute(ledger)
    for job, successes in (("few", 19), ("enough", 20)):
        ledger.job(job, schedule="* * * * *", expect_duration="2*p50")
        of_job: dict[str, Any] = {"job_name": job, "trigger": "manual"}
        ledger.ended(minutes(at - 30 * MINUTE, successes), **of_job)
        ledger.ended(minutes(at - 5 * MINUTE, 4), "FAILED", **of_job)
    await judge(ledger, one, at + SECOND)
    found = ledger.values("SELECT job_name, expected FROM unjudged_deadlines")
    assert found == [("enough", SECOND)]


def test_an_hour_is_counted_five_minutes_after_its_end(ledger: Ledger) -> None:
    ledger.job()
    hour = ledger.now().replace(minute=0, second=0, microsecond=0)
    ledger.ended([hour], trigger="manual")
    for after, counted in ((5 * MINUTE - SECOND, 0), (5 * MINUTE, 1)):
        ledger.stop_clock(hour + HOUR + after)
        round_of(ledger)
        assert ledger.one("SELECT count(*) FROM execution_hours") == counted


def test_an_hour_does_not_contain_the_beginning_of_the_next_one(ledger: Ledger) -> None:
    """And manual executions have no lateness."""
    ledger.job()
    hour = ledger.now().replace(minute=0, second=0, microsecond=0)
    ledger.ended([hour, hour + HOUR], trigger="manual")
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
