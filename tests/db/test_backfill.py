"""The SQL function backfill: which rows it makes, and which it never touches."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from cronledger.ledger.reports import Reports
from cronledger.rules.model import ScopeKey
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.backfill import past
from tests.db.support.engine import Ledger, runners
from tests.db.support.rows import Db, connected, execution, start_blocked

HOUR = timedelta(hours=1)
KEY = ScopeKey("job", "global", "global")


@pytest.fixture
def db(database_url: str, ledger: Ledger) -> Iterator[Db]:
    """The travelling database: it is noon, and the hourly `job` is planned through now."""
    ledger.job(schedule="@hourly")
    ledger.values("UPDATE schedules SET planned_through = db_clock()")
    with connected(database_url) as connection:
        yield connection


@pytest.fixture
def noon(ledger: Ledger) -> datetime:
    now: datetime = ledger.now()
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def backfill(db: Db, plan_times: Sequence[datetime], **named: Any) -> tuple[int, ...]:
    """(made, retried, left alone, remaining)."""
    names = "".join(f", {name} => %({name})s" for name in named)
    row = db.execute(
        f"SELECT * FROM cronledger.backfill('job', %(plan_times)s{names})".encode(),
        {"plan_times": list(plan_times), **named},
    ).fetchone()
    assert row is not None
    return tuple(row.values())


def hours(noon: datetime, *ago: int) -> list[datetime]:
    return [noon - n * HOUR for n in ago]


def table(ledger: Ledger) -> list[Any]:
    return ledger.values("SELECT plan_time, status, trigger FROM executions ORDER BY plan_time")


async def test_past_plan_times_become_ordinary_rows_that_run_in_their_order(
    db: Db, ledger: Ledger, noon: datetime
) -> None:
    wanted = hours(noon, 1, 3, 2)
    ledger.edit(overlap="allow", payload={"now": 1}, max_attempts=3)
    assert backfill(db, wanted, requested_by="me") == (3, 0, 0, 0)
    assert (
        ledger.values(
            "SELECT plan_time FROM executions WHERE status = 'PENDING' AND trigger = 'backfill'"
            " AND due_at = next_attempt_at AND due_at <= db_clock() AND revision = 2"
            " AND attempt = 0 AND max_attempts = 3 AND payload = '{\"now\": 1}'"
            " AND requested_by = 'me' ORDER BY due_at"
        )
        == wanted
    )
    assert backfill(db, wanted) == (0, 0, 3, 0)
    async with runners(ledger.url, {}) as (r,):
        starts = await r.settle()
        assert {start.claimed.trigger for start in starts} == {"backfill"}
        for start in starts:
            await r.finish(start)
    assert [row[1] for row in table(ledger)] == ["SUCCESS"] * 3
    assert backfill(db, wanted) == (0, 0, 3, 0)


def test_live_work_is_never_doubled(db: Db, ledger: Ledger, noon: datetime) -> None:
    wanted = hours(noon, 1, 2, 3)
    execution(db, "RUNNING", plan_time=wanted[0])
    execution(db, "PENDING", plan_time=wanted[1])
    execution(db, "FAILED", plan_time=wanted[2], next_attempt_at=noon)
    rows = ledger.values("SELECT to_jsonb(e) FROM executions e ORDER BY plan_time")
    for reprocess in ("none", "failed", "all"):
        assert backfill(db, wanted, reprocess=reprocess) == (0, 0, 3, 0)
        assert ledger.values("SELECT to_jsonb(e) FROM executions e ORDER BY plan_time") == rows


@pytest.mark.parametrize(
    ("reprocess", "answer"),
    [("none", (0, 0, 4, 0)), ("failed", (0, 2, 2, 0)), ("all", (1, 2, 1, 0))],
)
def test_what_has_ended_runs_again_only_when_asked(
    db: Db, ledger: Ledger, noon: datetime, reprocess: str, answer: tuple[int, ...]
) -> None:
    success, failed, cancelled, unknown = hours(noon, 1, 2, 3, 4)
    execution(db, "SUCCESS", plan_time=success)
    execution(db, "FAILED", plan_time=failed, attempt=3)
    execution(db, "CANCELLED", plan_time=cancelled)
    execution(db, "FAILED", plan_time=unknown, error_code="stale_timeout")
    assert backfill(db, hours(noon, 1, 2, 3, 4), reprocess=reprocess) == answer
    again = ledger.values("SELECT plan_time FROM executions WHERE next_attempt_at IS NOT NULL"
                        " AND trigger = 'schedule' ORDER BY plan_time DESC")  # fmt: skip
    assert again == ([] if reprocess == "none" else [failed, cancelled])
    assert ledger.one("SELECT status FROM executions WHERE plan_time = %s", unknown) == "FAILED"
    # I4: the success stands; the repetition is a row of its own beside it.
    assert ledger.one("SELECT status FROM executions WHERE plan_time = %s", success) == "SUCCESS"
    beside = ledger.values("SELECT plan_time, status FROM executions WHERE trigger = 'backfill'")
    one = timedelta(microseconds=1)
    assert beside == ([(success + one, "PENDING")] if reprocess == "all" else [])
    assert backfill(db, hours(noon, 1, 2, 3, 4), reprocess=reprocess) == (0, 0, 4, 0)


def test_a_stopped_backfill_goes_on_where_it_stopped(
    db: Db, ledger: Ledger, noon: datetime
) -> None:
    wanted = hours(noon, 1, 2, 3)
    for plan_time in wanted:
        execution(db, "SUCCESS", plan_time=plan_time, finished_at=plan_time)
    began = ledger.now()
    again: Callable[[], tuple[int, ...]] = lambda: backfill(  # noqa: E731
        db, wanted, reprocess="all", ended_before=began, cap=2
    )
    assert again() == (2, 0, 0, 1)
    ledger.values(
        "UPDATE executions SET status = 'SUCCESS', lease_token = gen_random_uuid(),"
        " duration_ms = 1, started_at = db_now(), finished_at = db_now(), next_attempt_at = NULL"
        " WHERE status = 'PENDING'"
    )
    assert again() == (1, 0, 2, 0)
    assert again() == (0, 0, 3, 0)
    assert backfill(db, wanted, reprocess="all", ended_before=ledger.now())[0] == 2


def test_the_cap_counts_what_is_made_and_says_what_remains(
    db: Db, ledger: Ledger, noon: datetime
) -> None:
    wanted = hours(noon, 1, 2, 3, 4, 5)
    execution(db, "SUCCESS", plan_time=wanted[0])
    assert backfill(db, wanted, cap=2) == (2, 0, 1, 2)
    assert backfill(db, wanted, cap=0) == (0, 0, 3, 2)
    assert backfill(db, [*wanted, wanted[4]]) == (2, 0, 3, 0)


def test_partitions_of_the_past_are_made(db: Db, ledger: Ledger, noon: datetime) -> None:
    wanted = [noon - timedelta(days=days) for days in (80, 79, 40)]
    assert ledger.one("SELECT min(from_plan_time) FROM partitions()") > wanted[2]
    assert backfill(db, wanted) == (3, 0, 0, 0)
    assert [row[0] for row in table(ledger)] == wanted


async def test_what_was_skipped_runs_and_the_skip_stays(
    db: Db, ledger: Ledger, noon: datetime
) -> None:
    ledger.values("UPDATE schedules SET planned_through = %s", noon - 6 * HOUR)
    ledger.edit(catch_up="skip")
    ledger.values("UPDATE job_revisions SET effective_from = %s", noon - 7 * HOUR)
    async with runners(ledger.url, {}) as (r,):
        await r.settle()
        skips = ledger.skipped()
        assert [reason for reason, _ in skips] == ["missed"]
        assert backfill(db, hours(noon, 2, 3)) == (2, 0, 0, 0)
        while starts := [*r.held, *await r.settle()]:
            await r.finish(starts[0])
    ran = [row[0] for row in table(ledger) if row[1:] == ("SUCCESS", "backfill")]
    assert ran == hours(noon, 3, 2)
    assert ledger.skipped() == skips


BAD: list[tuple[dict[str, Any], str, type[psycopg.Error]]] = [
    ({"reprocess": "some"}, "reprocess some is unknown", errors.InvalidParameterValue),
    ({"cap": -1}, "cap -1 is less than 0", errors.InvalidParameterValue),
    ({"plan_times": [None]}, "contains a NULL", errors.InvalidParameterValue),
    (
        {"ago": timedelta(days=100)},
        "older than the retention of 90 days",
        errors.InvalidParameterValue,
    ),
    ({"ago": -HOUR}, "is not past, or not planned yet", errors.InvalidParameterValue),
    ({"ago": timedelta(microseconds=1)}, "is not a whole second", errors.InvalidParameterValue),
    ({"scope_id": "x"}, "has no scope global/x", errors.NoDataFound),
]


def test_what_cannot_be_backfilled_is_refused(db: Db, ledger: Ledger, noon: datetime) -> None:
    for given, message, error in BAD:
        wrong = dict(given)
        plan_times = wrong.pop("plan_times", [noon - wrong.pop("ago", HOUR)])
        with pytest.raises(error, match=message):
            backfill(db, plan_times, **wrong)
    assert table(ledger) == []


def test_a_plan_time_that_is_not_planned_yet_is_the_schedules(
    db: Db, ledger: Ledger, noon: datetime
) -> None:
    ledger.values("UPDATE schedules SET planned_through = %s", noon - 2 * HOUR)
    assert backfill(db, hours(noon, 2)) == (1, 0, 0, 0)
    with pytest.raises(errors.InvalidParameterValue, match="not planned yet"):
        backfill(db, hours(noon, 1))
    ledger.edit(schedule=None)
    assert backfill(db, hours(noon, 1)) == (1, 0, 0, 0)
    ledger.values("SELECT retire('job')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="it is retired"):
        backfill(db, hours(noon, 3))


async def test_a_paused_job_keeps_them_until_it_is_resumed(
    db: Db, ledger: Ledger, noon: datetime
) -> None:
    ledger.values("SELECT pause('job')")
    assert backfill(db, hours(noon, 1)) == (1, 0, 0, 0)
    async with runners(ledger.url, {}) as (r,):
        assert await r.settle() == []
        ledger.values("SELECT resume('job')")
        assert [s.claimed.trigger for s in await r.settle()] == ["backfill"]


def test_two_backfills_take_turns(
    db: Db, ledger: Ledger, database_url: str, noon: datetime
) -> None:
    with connected(database_url) as other:
        db.execute("BEGIN")
        assert backfill(db, hours(noon, 1, 2)) == (2, 0, 0, 0)
        second = start_blocked(db, other, lambda: backfill(other, hours(noon, 2, 1)))
        db.execute("COMMIT")
        assert second.result(90) == (0, 0, 2, 0)


# Which plan_times there are


def found(url: str, first: datetime, last: datetime) -> list[datetime]:
    with psycopg.connect(url, autocommit=True) as connection:
        return list(past(Reports.over(connection, "cronledger"), KEY, first, last).plan_times)


def test_plan_times_are_those_of_the_history(
    db: Db, ledger: Ledger, database_url: str, noon: datetime
) -> None:
    ledger.edit(schedule="30 * * * *")
    ledger.values("SELECT pause('job')")
    ledger.values("SELECT resume('job')")
    edited = noon - 5 * HOUR
    ledger.values(
        "UPDATE job_revisions SET effective_from = CASE revision WHEN 1 THEN %s"
        " WHEN 2 THEN %s WHEN 3 THEN %s ELSE %s END",
        noon - 8 * HOUR - timedelta(minutes=1), edited, noon - 4 * HOUR, noon - HOUR,
    )  # fmt: skip
    half = HOUR / 2
    # The present schedule before there was a job, then @hourly through the edit; a pause skips
    # plan_times, it does not undo them.
    assert found(database_url, noon - 10 * HOUR, noon - 2 * HOUR) == [
        noon - 10 * HOUR + half, noon - 9 * HOUR + half,
        *hours(noon, 8, 7, 6, 5),
        edited + half, edited + half + HOUR, edited + half + 2 * HOUR,
    ]  # fmt: skip


def test_plan_times_end_at_the_cursor_and_include_both_ends(
    db: Db, ledger: Ledger, database_url: str, noon: datetime
) -> None:
    ledger.values("UPDATE schedules SET planned_through = %s", noon - HOUR)
    assert found(database_url, noon - 3 * HOUR, noon + HOUR) == hours(noon, 3, 2, 1)
    assert found(database_url, noon, noon + HOUR) == []
    ledger.edit(schedule=None)
    with pytest.raises(ConfigurationError, match="the job has no schedule"):
        found(database_url, noon - 3 * HOUR, noon)
