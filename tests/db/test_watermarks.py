"""F2: a scope is dirty while input was pushed that no success covers."""

from datetime import timedelta

import pytest

from cronledger.rules import outcome
from cronledger.rules.outcome import Result
from tests.db.support.engine import Ledger, Runner
from tests.db.support.pushes import claimed, enqueue

STATUS = "SELECT input_watermark, success_watermark, is_dirty FROM input_status"
RECORDED = "SELECT success_watermark FROM schedules"


async def test_input_during_a_run_makes_it_run_once_more(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule=None)
    first = enqueue(ledger, watermark=1)
    (start,) = await one.settle()
    assert enqueue(ledger, watermark=1) == first  # what runs covers it
    second = {enqueue(ledger, watermark=n) for n in (2, 3, 4, 4, 2)}
    assert len(second) == 1 and first not in second
    await one.finish(start)
    assert ledger.one(STATUS) == (4, 1, True)
    (start,) = await one.settle()
    await one.finish(start)
    assert await one.settle() == []
    assert ledger.one(STATUS) == (4, 4, False)
    assert ledger.one(RECORDED) == 4
    assert enqueue(ledger, watermark=4) is None  # the work has come that far
    assert ledger.statuses() == ["SUCCESS", "SUCCESS"]


def test_a_success_without_progress_leaves_it_dirty_and_does_not_spin(ledger: Ledger) -> None:
    ledger.job(schedule=None, handler="external", target={}, retry_backoff=["5 m", "1 h"])
    first = enqueue(ledger, watermark=10)
    for covered in (7, 7, None, None):  # the first one is progress: again at once
        row, token = claimed(ledger)
        assert ledger.one("SELECT finish(%s, %s, NULL, %s)", row, token, covered) == "ok"
        assert ledger.one(STATUS) == (10, 7, True)
        if row != first:
            assert ledger.one("SELECT answer FROM claim('job', 'worker')") == "retry_pending"
            ledger.travel(by=timedelta(minutes=5))
    assert sorted(ledger.statuses()) == ["PENDING"] + 4 * ["SUCCESS"]
    row, token = claimed(ledger)
    ledger.one("SELECT finish(%s, %s, NULL, NULL)", row, token)
    assert ledger.one("SELECT due_at > db_now() FROM executions WHERE status = 'PENDING'")
    enqueue(ledger, watermark=11)  # new input does not wait for that backoff
    assert claimed(ledger).id


@pytest.mark.long
async def test_one_scope_that_cannot_run_again_stops_no_other(ledger: Ledger, one: Runner) -> None:
    ledger.job("a", schedule=None, retry_backoff=["1 m"])
    ledger.job("b", schedule=None, retry_backoff=["1 m"])
    for job in "ab":
        enqueue(ledger, job, watermark=1)
    starts = await one.settle()
    ledger.values(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$"
    )
    ledger.values(
        "CREATE TRIGGER refuse BEFORE INSERT ON executions FOR EACH ROW"
        " WHEN (NEW.job_name = 'a') EXECUTE FUNCTION refuse()"
    )
    for start in starts:
        one.put(start, outcome.success(Result(watermark=None)))
    await one.finisher.step()
    pending = "SELECT job_name FROM executions WHERE status = 'PENDING'"
    assert ledger.values(pending) == ["b"]
    ledger.values("DROP TRIGGER refuse ON executions")
    await one.repair()
    assert sorted(ledger.values(pending)) == ["a", "b"]


async def test_a_crash_before_it_is_recorded_is_repaired(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule=None)
    enqueue(ledger, watermark=1)
    (start,) = await one.settle()
    one.put(start, outcome.success(None))
    await one.only_write()  # and nothing of what follows SUCCESS
    one.crash()
    assert ledger.one(RECORDED) is None
    assert ledger.one(STATUS) == (1, 1, False)  # derived: nobody decides by the stale one
    assert enqueue(ledger, watermark=1) is None
    ledger.values("UPDATE schedules SET success_watermark = NULL")
    await one.repair()
    assert ledger.one(RECORDED) == 1
    assert ledger.statuses() == ["SUCCESS"]
