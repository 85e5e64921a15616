"""Observed jobs: another scheduler starts the runs, which are reported and matched."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from tests.db.support.engine import MINUTE, SECOND, Ledger, Runner

STALE = (
    "SELECT job_name FROM cronledger_internal.lock_stale('{default}', '{python}', '{tests:work}',"
    " '{}', false, '{}', '-infinity', 10)"
)
RUNS = "SELECT trigger, status, started_at FROM executions ORDER BY plan_time"


def observed(ledger: Ledger, **columns: Any) -> None:
    """A job that another scheduler starts at each full minute."""
    ledger.job(handler="observed", schedule="* * * * *", **columns)


@pytest.fixture
async def at(ledger: Ledger, one: Runner) -> datetime:
    """A plan_time of the observed job, at which the clock stands still."""
    instant: datetime = ledger.one("SELECT date_trunc('minute', db_now()) + interval '10 min'")
    ledger.stop_clock(instant - 30 * SECOND)
    observed(ledger)
    assert await one.settle() == []
    ledger.pass_time(30 * SECOND)
    return instant


def start(ledger: Ledger, **given: Any) -> int:
    return call(ledger, "observe_start", **given)


def end(ledger: Ledger, **given: Any) -> int:
    return call(ledger, "observe_end", **given)


def call(ledger: Ledger, function: str, job: str = "job", **given: Any) -> int:
    names = "".join(f", {name} => %s" for name in given)
    report: int = ledger.one(f"SELECT {function}(%s{names})", job, *given.values())
    return report


async def plan(ledger: Ledger, one: Runner, by: timedelta = timedelta(0)) -> None:
    ledger.pass_time(by)
    assert await one.settle() == []


async def test_a_report_becomes_the_execution_of_its_plan_time(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    ledger.pass_time(2 * SECOND)
    start(ledger, host="web1")
    await plan(ledger, one)
    row = "SELECT plan_time, trigger, status, started_at FROM executions"
    assert ledger.one(row) == (at, "schedule", "RUNNING", at + 2 * SECOND)
    ledger.pass_time(3 * SECOND)
    end(ledger, output="done")
    row = "SELECT status, finished_at - started_at, duration_ms, output FROM executions"
    assert ledger.one(row) == ("SUCCESS", 3 * SECOND, 3000, "done")
    assert ledger.violations() == []


async def test_a_plan_time_without_a_report_is_skipped_after_its_grace(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    await plan(ledger, one, 59 * SECOND)
    assert ledger.skipped() == []
    await plan(ledger, one, 2 * SECOND)
    assert ledger.skipped() == [("not_reported", 1)]
    await plan(ledger, one, 2 * MINUTE)
    assert ledger.skipped() == [("not_reported", 3)]
    report = verify(ledger.url)
    assert list(report) == []
    assert report.tally.observed == 3


@pytest.mark.parametrize("pruned", [False, True])
async def test_a_report_makes_its_partition_unless_that_was_pruned(
    ledger: Ledger, one: Runner, at: datetime, pruned: bool
) -> None:
    ran = at - timedelta(days=1)
    made = "SELECT name FROM partitions() WHERE from_plan_time <= %s AND before_plan_time > %s"
    ledger.values(f"DROP TABLE {ledger.one(made, ran, ran)}")
    end(ledger, run_key="a", started_at=ran, ended_at=ran)
    if pruned:
        ledger.values("SELECT cronledger_internal.record_pruned(%s)", ran)
        with pytest.raises(psycopg.Error, match="executions were pruned"):
            start(ledger, started_at=ran)
    await plan(ledger, one)
    begun = "SELECT count(*) FROM executions WHERE started_at = %s"
    assert ledger.one(begun, ran) == (0 if pruned else 1)
    assert ledger.one("SELECT spec_error FROM jobs") is None
    assert len(ledger.values(made, ran, ran)) == (0 if pruned else 1)


async def test_a_run_without_an_end_fails_after_run_timeout(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    start(ledger, run_key="a")
    await plan(ledger, one, 59 * MINUTE)
    await one.sweep()
    ended = "SELECT status, error_code FROM executions WHERE plan_time = %s"
    assert ledger.one(ended, at) == ("RUNNING", None)
    ledger.pass_time(2 * MINUTE)
    await one.sweep()
    assert ledger.one(ended, at) == ("FAILED", "not_ended")
    end(ledger, run_key="a")
    assert ledger.one(ended, at) == ("SUCCESS", None)
    earlier = "SELECT attempt, attempts -> 0 ->> 'error_code' FROM executions WHERE plan_time = %s"
    assert ledger.one(earlier, at) == (2, "not_ended")
    assert ledger.violations() == []


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_retry_of_a_run_without_an_end_has_to_be_forced(
    ledger: Ledger, one: Runner, at: datetime, claimed: bool
) -> None:
    start(ledger, run_key="a")
    await plan(ledger, one)
    ledger.pass_time(2 * timedelta(hours=1))
    one.trust()
    await one.sweep()
    ledger.edit(handler="python", target={"python": "tests:work"}, schedule="@yearly")
    run = ledger.one("SELECT id FROM executions WHERE error_code = 'not_ended'")
    with pytest.raises(psycopg.Error, match="the end of attempt 1 is unknown"):
        ledger.values("SELECT retry(%s)", run)
    ledger.values("SELECT retry(%s, force => true)", run)
    leases = await one.settle() if claimed else []
    end(ledger, run_key="a", error="late")
    assert ledger.one("SELECT ended_at IS NOT NULL, error FROM reports") == (
        (True, "late") if claimed else (True, None)
    )
    for lease in leases:
        await one.finish(lease)
    assert await one.settle() == []
    ended = "SELECT status, attempt, next_attempt_at FROM executions WHERE id = %s"
    assert ledger.one(ended, run) == ("SUCCESS" if claimed else "FAILED", 2, None)
    assert ledger.violations() == []
    assert kinds(ledger) == []


async def test_an_observed_run_is_never_taken_over_after_its_job_moved_to_replicas(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    start(ledger)
    await plan(ledger, one)
    ledger.edit(
        handler="python", target={"python": "tests:work"}, allow_stale_reentry=True,
        schedule="@daily",
    )  # fmt: skip
    ledger.pass_time(2 * timedelta(hours=1))
    assert ledger.values(STALE) == []
    assert await one.steal() == []
    await one.sweep()
    assert ledger.one("SELECT error_code FROM executions WHERE plan_time = %s", at) == "not_ended"


async def test_a_run_without_an_end_can_be_cancelled(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    start(ledger, run_key="a")
    await plan(ledger, one)
    assert ledger.one("SELECT cancel(id) FROM executions") == "cancelled"
    ended = "SELECT status, attempt, error_code FROM executions"
    assert ledger.one(ended) == ("CANCELLED", 1, "not_ended")
    assert ledger.violations() == []
    end(ledger, run_key="a")
    assert ledger.one(ended) == ("SUCCESS", 2, None)
    assert ledger.violations() == []


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"exit_status": 3}, ("FAILED", "exit_code", "exit status 3")),
        ({"error": "no disk"}, ("FAILED", "reported", "no disk")),
        ({"exit_status": 0}, ("SUCCESS", None, None)),
    ],
)
async def test_the_report_decides_the_outcome(
    ledger: Ledger, one: Runner, at: datetime, given: Any, outcome: Any
) -> None:
    end(ledger, **given)
    await plan(ledger, one)
    assert ledger.one("SELECT status, error_code, error_msg FROM executions") == outcome
    # A redaction of the execution finds all of it.
    assert ledger.one("SELECT error, output FROM reports") == (None, None)


async def test_a_run_may_last_longer_than_its_start_may_be_ago(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    ledger.edit(run_timeout=None, schedule="@yearly")
    first = start(ledger, run_key="a", started_at=at)
    ledger.pass_time(timedelta(days=8))
    assert end(ledger, run_key="a", started_at=at) == first
    await plan(ledger, one)
    assert ledger.statuses() == ["SUCCESS"]


async def test_a_report_that_is_delivered_again_changes_nothing(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    first = start(ledger, run_key="a")
    assert end(ledger, run_key="a", exit_status=1) == first
    await plan(ledger, one)
    assert end(ledger, run_key="a", exit_status=0) == first
    assert start(ledger, run_key="a") == first
    await plan(ledger, one)
    assert ledger.statuses() == ["FAILED"]
    assert ledger.one("SELECT exit_status FROM reports") == 1


async def test_after_a_move_to_replicas_nothing_fires_twice_and_nothing_is_missed(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    end(ledger)
    await plan(ledger, one)
    ledger.pass_time(MINUTE + 10 * SECOND)  # the next one has no report yet
    ledger.edit(handler="python", target={"python": "tests:work"})
    assert await one.settle() == []
    assert ledger.skipped() == [("not_reported", 1)]
    ledger.pass_time(MINUTE - 10 * SECOND)
    (lease,) = await one.settle()
    assert lease.claimed.key.plan_time == at + 2 * MINUTE
    end(ledger, started_at=at + MINUTE, ended_at=at + MINUTE)  # the report was on its way
    await one.finish(lease)
    assert await one.settle() == []
    runs = "SELECT plan_time, trigger FROM executions ORDER BY plan_time"
    assert ledger.values(runs) == [
        (at, "schedule"), (at + MINUTE, "observed"), (at + 2 * MINUTE, "schedule"),
    ]  # fmt: skip
    assert ledger.violations() == []


async def test_what_a_replica_did_not_start_before_the_job_became_observed_is_missed(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    ledger.job("other", schedule="* * * * *")
    assert await one.settle() == []
    ledger.pass_time(MINUTE)
    ledger.edit("other", handler="observed", target={})
    ledger.pass_time(SECOND)
    assert await one.settle() == []
    assert ledger.skipped("other") == [("missed", 1)]
    assert ledger.violations() == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"started_at": "2001-01-01Z"}, "more than 7 days ago"),
        ({"started_at": "9000-01-01Z"}, "in the future of the database"),
        ({"run_key": ""}, "run_key has 0 characters"),
        ({"source": ""}, "source"),
        ({"exit_status": 256}, "exit_status 256 is not 0 to 255"),
        ({"job": "none"}, "does not exist"),
        ({"scope_id": "none"}, "has no scope global/none"),
        ({"job": "own"}, "its handler is python"),
    ],
)
def test_a_report_that_cannot_be_is_refused(ledger: Ledger, given: Any, text: str) -> None:
    observed(ledger)
    ledger.job("own")
    with pytest.raises(psycopg.Error, match=text):
        (end if "exit_status" in given else start)(ledger, **given)


async def test_the_ledger_starts_no_run_of_an_observed_job(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    end(ledger, exit_status=1)
    await plan(ledger, one, SECOND)
    for started in (
        "cronledger.trigger('job')",
        "enqueue('job')",
        "backfill('job', ARRAY[date_trunc('minute', db_now())])",
        "retry(e.id) FROM executions e",
    ):
        with pytest.raises(psycopg.Error, match="it is observed"):
            ledger.values(f"SELECT {started}")


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        ("DELETE FROM reports", "unreported"),
        ("UPDATE reports SET started_at = started_at + interval '1 s'", "unreported"),
        (
            "UPDATE executions SET started_at = started_at + interval '61 s';"
            "UPDATE reports SET started_at = started_at + interval '61 s'",
            "unreported",
        ),
        ("DELETE FROM executions", "missing"),
    ],
)
async def test_verify_finds_a_run_that_no_report_proves(
    ledger: Ledger, one: Runner, at: datetime, harm: str, kind: str
) -> None:
    end(ledger)
    await plan(ledger, one)
    ledger.values(harm)
    assert kinds(ledger) == [kind]


async def test_verify_finds_a_skip_that_a_report_contradicts(
    ledger: Ledger, one: Runner, at: datetime
) -> None:
    end(ledger)
    end(ledger)  # beside the schedule
    await plan(ledger, one, 61 * SECOND)
    ledger.values("DELETE FROM executions WHERE trigger = 'schedule'")
    ledger.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision) SELECT 'job', 'global', 'global', t, t, 1, 'not_reported', 1"
        " FROM (VALUES (%s::timestamptz)) v(t)", at,
    )  # fmt: skip
    assert kinds(ledger) == ["untrue_skip"]


def kinds(ledger: Ledger) -> list[str]:
    return [violation.kind for violation in verify(ledger.url)]
