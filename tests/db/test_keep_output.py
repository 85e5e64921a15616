"""keep_output of a job: the data of its ended executions is removed, and their account stays."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from cronledger.audit.verify import verify
from tests.db.support.engine import DAY, HOUR, Ledger, Runner
from tests.db.support.rolled_hours import round_of, totals
from tests.db.support.rows import Db, execution
from tests.db.test_redact import KEPT, SECRET, holders

WEEK = "7 days"
HELD = "SELECT id FROM executions WHERE output IS NOT NULL ORDER BY plan_time"


def ended(db: Db, status: str = "SUCCESS", job: str = "job", **columns: Any) -> dict[str, Any]:
    """An ended execution with an output, as the roll-up sees it."""
    row = execution(db, status, job, **{"output": SECRET} | columns)
    db.execute(
        "UPDATE cronledger.executions SET changed_xact = pg_current_xact_id() WHERE id = %s",
        [row["id"]],
    )
    return row


def redact(ledger: Ledger, most: int = 1000) -> int:
    """The redactions of one round of the roll-up."""
    round_of(ledger)
    total, unfinished = 0, True
    while unfinished:
        redacted, unfinished = ledger.one(
            "SELECT redacted, unfinished FROM cronledger_internal.redact_outputs(%s)", most
        )
        assert redacted <= most
        total += redacted
    return total


@pytest.fixture
def start(ledger: Ledger) -> datetime:
    """The beginning of an hour that is over."""
    ledger.job(keep_output=WEEK, schedule=None, max_attempts=3, handler="external", target={})
    ledger.job("other", schedule=None)
    return ledger.now().replace(minute=0, second=0, microsecond=0) - HOUR


@pytest.mark.long
def test_data_is_removed_when_it_is_due_and_the_account_stays(
    ledger: Ledger, db: Db, start: datetime
) -> None:
    """As `redact` does it, which has a test of every table; but by nobody's action."""
    row = ended(db, "FAILED", plan_time=start, payload=Jsonb({"mail": SECRET}), error_msg=SECRET)
    kept = ended(db, "SUCCESS", "other", plan_time=start, output="kept")
    sums = totals(ledger)
    ledger.travel(by=7 * DAY - 2 * HOUR)
    assert redact(ledger) == 0
    assert holders(db) == ["executions"]
    ledger.travel(by=2 * HOUR)
    assert redact(ledger) == 1
    assert holders(db) == []
    (after,) = db.execute("SELECT * FROM cronledger.executions WHERE id = %s", [row["id"]])
    assert [after[name] for name in KEPT] == [row[name] for name in KEPT]
    assert after["redacted_at"] is not None
    assert ledger.values(HELD) == [kept["id"]]
    assert totals(ledger) == sums == (sums[0], sums[0])
    assert redact(ledger) == 0
    assert [v.kind for v in verify(ledger.url) if v.kind == "wrong_hour"] == []
    assert ledger.values("SELECT * FROM audit WHERE verb = 'redact'") == []


def test_each_execution_is_kept_for_this_long_after_its_own_end(
    ledger: Ledger, db: Db, start: datetime
) -> None:
    minute = timedelta(minutes=1)
    early = ended(db, plan_time=start)["id"]
    late = ended(db, plan_time=start + minute, finished_at=start + 30 * HOUR)["id"]
    last = ended(db, plan_time=start + 2 * minute, finished_at=start + 50 * HOUR)["id"]
    ledger.travel(by=60 * HOUR)
    assert redact(ledger) == 0
    ledger.travel(by=4 * DAY)  # 6 days and 13 hours after the first end
    for hours, left in ((9, [early, late, last]), (4, [late, last]), (29, [last]), (20, [])):
        ledger.travel(by=hours * HOUR)
        redact(ledger)
        assert ledger.values(HELD) == left


def test_what_has_not_ended_keeps_its_data_until_it_has(
    ledger: Ledger, db: Db, start: datetime
) -> None:
    second = timedelta(seconds=1)
    ended(db, plan_time=start)
    again = execution(
        db, "FAILED", plan_time=start + second, output=SECRET,
        next_attempt_at=start + 30 * DAY,
    )["id"]  # fmt: skip
    running = execution(db, "RUNNING", plan_time=start + 2 * second, output=SECRET)["id"]
    waiting = execution(db, "PENDING", plan_time=start + 3 * second, output=SECRET)["id"]
    ledger.travel(by=9 * DAY)
    assert redact(ledger) == 1
    assert ledger.values(HELD) == [again, running, waiting]
    ledger.values("SELECT cancel(id) FROM executions WHERE id = ANY (%s)", [again, waiting])
    assert redact(ledger) == 1, "the attempt that was not repeated ended nine days ago"
    assert ledger.values(HELD) == [running, waiting]
    ledger.travel(by=9 * DAY)
    redact(ledger)
    assert ledger.values(HELD) == [running]


def test_a_batch_is_bounded_and_the_next_one_continues(
    ledger: Ledger, db: Db, start: datetime
) -> None:
    for n in range(8):
        ended(db, plan_time=start + n * timedelta(minutes=1))
    ended(db, plan_time=start - HOUR)
    ledger.travel(by=8 * DAY)
    round_of(ledger)
    call = "SELECT redacted, unfinished FROM cronledger_internal.redact_outputs(4)"
    assert [tuple(ledger.one(call)) for _ in range(4)] == [
        (4, True), (4, True), (1, True), (0, False)
    ]  # fmt: skip
    assert ledger.values(HELD) == []


def test_a_row_that_is_locked_is_redacted_later(
    ledger: Ledger, db: Db, other: Db, start: datetime
) -> None:
    first, second = (ended(db, plan_time=start + n * timedelta(minutes=1))["id"] for n in range(2))
    ledger.travel(by=8 * DAY)
    with other.transaction():
        other.execute("SELECT FROM cronledger.executions WHERE id = %s FOR UPDATE", [first])
        assert redact(ledger) == 1
        assert ledger.values(HELD) == [first]
    assert redact(ledger) == 1
    assert first < second


def test_a_policy_that_is_added_or_removed_counts_from_the_next_round(
    ledger: Ledger, db: Db, start: datetime
) -> None:
    row = ended(db, job="other", plan_time=start)["id"]
    empty = ended(db, job="other", plan_time=start + timedelta(seconds=1), output=None)["id"]
    ledger.travel(by=20 * DAY)
    assert redact(ledger) == 0
    # As the migration left the hours of an earlier ledger.
    ledger.values("UPDATE rolled_up_hours SET oldest_data = '-infinity'")
    ledger.values("UPDATE jobs SET keep_output = '30 days' WHERE name = 'other'")
    assert redact(ledger) == 0
    ledger.values("UPDATE jobs SET keep_output = NULL WHERE name = 'other'")
    ledger.travel(by=20 * DAY)
    assert redact(ledger) == 0
    ledger.values(
        "UPDATE jobs SET keep_output = '30 days', retired_at = db_now() WHERE name = 'other'"
    )
    assert redact(ledger) == 1
    # An execution without data is not touched, and can still be repeated.
    assert ledger.values("SELECT id FROM executions WHERE redacted_at IS NOT NULL") == [row]
    assert empty


def test_input_that_was_covered_stays_covered(ledger: Ledger, start: datetime) -> None:
    ledger.values("SELECT enqueue('job', watermark => 5, payload => '1')")
    id, token = ledger.one("SELECT id, lease_token FROM claim_next('default', 'w')")
    ledger.values("SELECT finish(%s, %s, '2')", id, token)
    ledger.travel(by=9 * DAY)
    assert redact(ledger) == 1
    assert ledger.values("SELECT * FROM take_results('default')") == []
    ledger.values("SELECT enqueue('job', watermark => 5)")
    assert ledger.values("SELECT id FROM executions") == [id]
    watermarks = "SELECT input_watermark, success_watermark FROM schedules WHERE job_name = 'job'"
    assert ledger.values(watermarks) == [(5, 5)]


async def test_the_sweeper_redacts_with_its_hourly_maintenance(
    ledger: Ledger, db: Db, start: datetime, one: Runner
) -> None:
    ended(db, plan_time=start)
    ledger.travel(by=9 * DAY)
    await one.check_in()
    one.trust()
    one.sweeper._hours.begin()
    await one.sweeper.step()
    assert ledger.values(HELD) == []
