"""The SQL function backfill: which rows it makes, and which it never touches."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from cronledger.ledger.reports import Reports
from cronledger.rules.model import ScopeKey
from cronledger.sources.backfill import past
from tests.db.support.engine import HOUR, Ledger, Runner
from tests.db.support.rows import Db, execution, start_blocked


@pytest.fixture
def noon(ledger: Ledger) -> datetime:
    """It is noon, and the hourly `job` is planned through now."""
    ledger.job(schedule="@hourly")
    ledger.values("UPDATE schedules SET planned_through = db_clock()")
    return ledger.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def backfill(ledger: Ledger, plan_times: Sequence[datetime | None], **named: Any) -> Any:
    """(made, retried, left alone, remaining)."""
    names = "".join(f", {name} => %s" for name in named)
    call = f"SELECT * FROM backfill('job', %s::timestamptz[]{names})"
    return ledger.one(call, list(plan_times), *named.values())


def hours(noon: datetime, *ago: int) -> list[datetime]:
    return [noon - n * HOUR for n in ago]


def table(ledger: Ledger) -> list[Any]:
    return ledger.values("SELECT plan_time, status, trigger FROM executions ORDER BY plan_time")


async def test_past_plan_times_become_ordinary_rows_that_run_in_their_order(
    ledger: Ledger, noon: datetime, one: Runner
) -> None:
    wanted = hours(noon, 1, 3, 2)
    ledger.edit(overlap="allow", payload={"now": 1}, max_attempts=3)
    assert backfill(ledger, wanted, requested_by="me") == (3, 0, 0, 0)
    made = ledger.values(
        "SELECT plan_time FROM executions WHERE status = 'PENDING' AND trigger = 'backfill'"
        " AND due_at = next_attempt_at AND due_at <= db_clock() AND revision = 2"
        " AND attempt = 0 AND max_attempts = 3 AND payload = '{\"now\": 1}'"
        " AND requested_by = 'me' ORDER BY due_at"
    )
    assert made == wanted
    assert backfill(ledger, wanted) == (0, 0, 3, 0)
    assert {start.claimed.trigger for start in await one.settle()} == {"backfill"}
    await one.finish_all()
    assert [row[1] for row in table(ledger)] == ["SUCCESS"] * 3
    assert backfill(ledger, wanted) == (0, 0, 3, 0)


@pytest.mark.parametrize(
    ("reprocess", "answer"),
    [("none", (0, 0, 4, 0)), ("failed", (0, 2, 2, 0)), ("all", (1, 2, 1, 0))],
)
def test_what_has_ended_runs_again_only_when_asked(
    ledger: Ledger, noon: datetime, db: Db, reprocess: str, answer: tuple[int, ...]
) -> None:
    success, failed, cancelled, unknown = ended = hours(noon, 1, 2, 3, 4)
    execution(db, "SUCCESS", plan_time=success)
    execution(db, "FAILED", plan_time=failed, attempt=3)
    execution(db, "CANCELLED", plan_time=cancelled)
    execution(db, "FAILED", plan_time=unknown, error_code="stale_timeout")
    assert backfill(ledger, ended, reprocess=reprocess) == answer
    again = ledger.values("SELECT plan_time FROM executions WHERE next_attempt_at IS NOT NULL"
                        " AND trigger = 'schedule' ORDER BY plan_time DESC")  # fmt: skip
    assert again == ([] if reprocess == "none" else [failed, cancelled])
    assert ledger.one("SELECT status FROM executions WHERE plan_time = %s", unknown) == "FAILED"
    # I4: the success stands; the repetition is a row of its own beside it.
    assert ledger.one("SELECT status FROM executions WHERE plan_time = %s", success) == "SUCCESS"
    beside = ledger.values("SELECT plan_time, status FROM executions WHERE trigger = 'backfill'")
    one = timedelta(microseconds=1)
    assert beside == ([(success + one, "PENDING")] if reprocess == "all" else [])
    assert backfill(ledger, ended, reprocess=reprocess) == (0, 0, 4, 0)


def test_a_stopped_backfill_goes_on_where_it_stopped(ledger: Ledger, noon: datetime) -> None:
    wanted = hours(noon, 1, 2, 3)
    ledger.ended(wanted)
    again = {"reprocess": "all", "ended_before": ledger.now()}
    assert backfill(ledger, wanted, **again, cap=2) == (2, 0, 0, 1)
    ledger.values(
        "UPDATE executions SET status = 'SUCCESS', lease_token = gen_random_uuid(),"
        " duration_ms = 1, started_at = db_now(), finished_at = db_now(), next_attempt_at = NULL"
        " WHERE status = 'PENDING'"
    )
    assert backfill(ledger, wanted, **again, cap=2) == (1, 0, 2, 0)
    assert backfill(ledger, wanted, **again, cap=2) == (0, 0, 3, 0)
    again["ended_before"] = ledger.now()
    assert backfill(ledger, wanted, **again)[0] == 2


def test_partitions_of_the_past_are_made(ledger: Ledger, noon: datetime) -> None:
    wanted = [noon - timedelta(days=days) for days in (80, 79, 40)]
    assert ledger.one("SELECT min(from_plan_time) FROM partitions()") > wanted[2]
    assert backfill(ledger, wanted) == (3, 0, 0, 0)
    assert [row[0] for row in table(ledger)] == wanted


INVALID, MISSING = errors.InvalidParameterValue, errors.NoDataFound
BAD: list[tuple[dict[str, Any], str, type[psycopg.Error]]] = [
    ({"reprocess": "some"}, "reprocess some is unknown", INVALID),
    ({"cap": -1}, "cap -1 is less than 0", INVALID),
    ({"ago": timedelta(days=100)}, "older than the retention of 90 days", INVALID),
    ({"ago": -HOUR}, "is not past, or not planned yet", INVALID),
    ({"ago": timedelta(microseconds=1)}, "is not a whole second", INVALID),
    ({"scope_id": "x"}, "has no scope global/x", MISSING),
]


def test_what_cannot_be_backfilled_is_refused(ledger: Ledger, noon: datetime) -> None:
    for given, message, error in BAD:
        wrong = dict(given)
        plan_times = wrong.pop("plan_times", [noon - wrong.pop("ago", HOUR)])
        with pytest.raises(error, match=message):
            backfill(ledger, plan_times, **wrong)
    assert table(ledger) == []


def test_a_plan_time_that_is_not_planned_yet_is_the_schedules(
    ledger: Ledger, noon: datetime
) -> None:
    ledger.values("UPDATE schedules SET planned_through = %s", noon - 2 * HOUR)
    assert backfill(ledger, hours(noon, 2)) == (1, 0, 0, 0)
    with pytest.raises(errors.InvalidParameterValue, match="not planned yet"):
        backfill(ledger, hours(noon, 1))
    ledger.edit(schedule=None)
    assert backfill(ledger, hours(noon, 1)) == (1, 0, 0, 0)
    ledger.values("SELECT retire('job')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="it is retired"):
        backfill(ledger, hours(noon, 3))


def test_two_backfills_take_turns(noon: datetime, db: Db, other: Db) -> None:
    def made(connection: Db, *ago: int) -> list[int]:
        call = "SELECT * FROM cronledger.backfill('job', %s::timestamptz[])"
        row = connection.execute(call, [hours(noon, *ago)]).fetchone()
        assert row is not None
        return list(row.values())

    db.execute("BEGIN")
    assert made(db, 1, 2) == [2, 0, 0, 0]
    second = start_blocked(db, other, lambda: made(other, 2, 1))
    db.execute("COMMIT")
    assert second.result(90) == [0, 0, 2, 0]


def test_plan_times_are_those_of_the_history(ledger: Ledger, noon: datetime) -> None:
    ledger.edit(schedule="30 * * * *")
    ledger.values("SELECT pause('job')")
    ledger.values("SELECT resume('job')")
    edited, half = noon - 5 * HOUR, HOUR / 2
    ledger.values(
        "UPDATE job_revisions SET effective_from = CASE revision WHEN 1 THEN %s"
        " WHEN 2 THEN %s WHEN 3 THEN %s ELSE %s END",
        noon - 8 * HOUR - timedelta(minutes=1), edited, noon - 4 * HOUR, noon - HOUR,
    )  # fmt: skip
    key = ScopeKey("job", "global", "global")
    with psycopg.connect(ledger.url, autocommit=True) as connection:
        reports = Reports.over(connection, "cronledger")
        found = list(past(reports, key, noon - 10 * HOUR, noon - 2 * HOUR).plan_times)
    # The present schedule before there was a job, then @hourly through the edit; a pause skips
    # plan_times, it does not undo them.
    assert found == [
        noon - 10 * HOUR + half, noon - 9 * HOUR + half,
        *hours(noon, 8, 7, 6, 5),
        edited + half, edited + half + HOUR, edited + half + 2 * HOUR,
    ]  # fmt: skip
