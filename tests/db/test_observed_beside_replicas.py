"""A run of another scheduler takes no place from what replicas run.

Its end may never be reported, and the ledger did not decide its start. So it counts for no limit,
it blocks no execution of its scope, and nothing requests its end.
"""

from datetime import timedelta
from typing import Any

import pytest

from tests.db.support import rows
from tests.db.support.engine import HOUR, MINUTE, Ledger, Runner
from tests.db.support.pushes import answer, claimed, enqueue, finish
from tests.db.support.rows import Db

ENDLESS = "SELECT status, cancel_requested_at FROM executions WHERE runner_id = 'observed'"
UNTOUCHED = ("RUNNING", None)


def endless(db: Db, job: str = "job", **columns: Any) -> None:
    """A run that another scheduler started an hour ago, and whose end was not reported."""
    at = rows.now(db) - HOUR
    rows.execution(
        db, "RUNNING", job, plan_time=at, started_at=at, updated_at=at, runner_id="observed",
        trigger="observed", stale_after="9999-01-01 00:00+00", **columns,
    )  # fmt: skip


@pytest.mark.parametrize("overlap", ["skip", "wait", "replace"])
async def test_an_execution_that_exists_starts_beside_it(
    ledger: Ledger, one: Runner, db: Db, overlap: str
) -> None:
    ledger.job(overlap=overlap)
    endless(db)
    made = ledger.trigger()
    assert ledger.one(ENDLESS) == UNTOUCHED
    (lease,) = await one.settle()
    assert lease.claimed.id == made
    assert ledger.one(ENDLESS) == UNTOUCHED


async def test_it_takes_nothing_of_max_running_of_its_job(
    ledger: Ledger, one: Runner, db: Db
) -> None:
    """Nor of that of its queue."""
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 2)")
    ledger.job(max_running=1, schedule="* * * * *")
    ledger.job("worked", handler="external", max_running=1)
    for name in ("job", "worked"):
        endless(db, name)
    made = ledger.trigger()
    (lease,) = await one.settle()
    assert lease.claimed.id == made
    await one.finish(lease)
    ledger.travel(by=MINUTE)
    (lease,) = await one.settle()
    assert lease.claimed.trigger == "schedule"
    enqueue(ledger, "worked")
    assert answer(ledger, "worked") == "won"


def test_it_takes_nothing_of_the_limit_of_its_queue_in_the_view(ledger: Ledger, db: Db) -> None:
    ledger.job()
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
    endless(db)
    assert ledger.one("SELECT running, max_running FROM queue_status") == (0, 1)
    rows.execution(db, "RUNNING")
    assert ledger.one("SELECT running, max_running FROM queue_status") == (1, 1)


@pytest.mark.parametrize("limit", ["overlap", "job", "queue"])
def test_it_is_no_reason_why_something_is_overdue(ledger: Ledger, db: Db, limit: str) -> None:
    ledger.job(overlap="allow" if limit != "overlap" else "wait")
    endless(db)
    if limit == "job":
        ledger.edit(max_running=1)
    elif limit == "queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
    rows.runner(db, handlers=["tests:work"])
    ledger.trigger()
    ledger.travel(by=10 * timedelta(seconds=1))
    assert ledger.values("SELECT reason, blocked_by FROM overdue") == [("behind", None)]


@pytest.mark.parametrize("of", ["job", "queue"])
def test_a_schedule_may_not_stay_parked_because_of_it(ledger: Ledger, db: Db, of: str) -> None:
    ledger.job(schedule="@hourly")
    if of == "job":
        ledger.edit(max_running=1)
    else:
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
    ledger.travel(by=HOUR)
    endless(db)
    rows.runner(db, started_at=rows.now(db) - HOUR)
    ledger.values("UPDATE schedules SET parked = 'limit', next_due_at = NULL")
    assert ledger.values("SELECT kind FROM violations WHERE kind = 'parked'") == ["parked"]
    # Also if it was reported a moment ago.
    ledger.values("UPDATE executions SET updated_at = db_now()")
    assert ledger.values("SELECT kind FROM violations WHERE kind = 'parked'") == ["parked"]


async def test_an_open_gate_requests_no_end_of_it(ledger: Ledger, one: Runner, db: Db) -> None:
    ledger.job("extract", schedule="* * * * *")
    ledger.job(
        "load", schedule="* * * * *", overlap="replace",
        requires=[{"job": "extract", "scope": "same"}],
    )  # fmt: skip
    assert await one.settle() == []
    endless(db, "load")
    ledger.travel(by=MINUTE)
    (extract,) = await one.settle()
    await one.finish(extract)
    assert await one.check_gates()
    assert ledger.one(ENDLESS) == UNTOUCHED
    (load,) = await one.settle()
    assert load.claimed.key.job_name == "load"


def test_new_input_of_its_scope_does_not_wait_for_it(ledger: Ledger, db: Db) -> None:
    """A success that did not cover all input is followed by another execution."""
    ledger.job(handler="external")
    endless(db)
    enqueue(ledger, key="a", watermark=2)
    held = claimed(ledger)
    ledger.values("UPDATE executions SET watermark = 1 WHERE id = %s", held.id)
    finish(ledger, held)
    assert ledger.values("SELECT status FROM executions WHERE trigger = 'enqueue' ORDER BY 1") == [
        "PENDING", "SUCCESS",
    ]  # fmt: skip
