"""F2: a scope is dirty while input was pushed that no success covers."""

from datetime import timedelta
from typing import Any

from cronledger.rules import outcome
from cronledger.rules.outcome import Result
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.pushes import claimed, enqueue, finish

STATUS = "SELECT input_watermark, success_watermark, is_dirty FROM input_status"
RECORDED = "SELECT success_watermark FROM schedules"


async def test_success_records_the_watermark_taken_at_the_claim(ledger: Ledger) -> None:
    pushes: dict[str, dict[str, Any]] = {
        "bare": {}, "keyed": {"key": "k"}, "loaded": {"payload": {"n": 1}},
    }  # fmt: skip
    for job, more in pushes.items():
        ledger.job(job, schedule=None)
        for watermark in (3, 5):
            enqueue(ledger, job, watermark=watermark, **more)
    assert ledger.values(STATUS) == [(5, None, True)] * 3
    async with runners(ledger.url, {}) as (one,):
        for _ in range(2):
            for start in list(await one.settle()):
                await one.finish(start)
        assert await one.settle() == []
    assert ledger.values(STATUS) == [(5, 5, False)] * 3
    assert ledger.values(RECORDED) == [5] * 3


async def test_input_during_a_run_makes_it_run_once_more(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    first = enqueue(ledger, watermark=1)
    async with runners(ledger.url, {}) as (one,):
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
    assert enqueue(ledger, watermark=4) is None  # the work has come that far
    assert ledger.statuses() == ["SUCCESS", "SUCCESS"]


def test_any_execution_covers_the_input_pushed_until_its_claim(ledger: Ledger) -> None:
    ledger.job(schedule=None, handler="external", target={})
    ledger.trigger()
    enqueue(ledger, watermark=3, payload={"n": 1})
    enqueue(ledger, watermark=5, payload={"n": 2})
    claim = claimed(ledger)
    assert ledger.one("SELECT trigger, watermark FROM executions WHERE id = %s", claim.id) == (
        "manual", 5,
    )  # fmt: skip
    finish(ledger, claim)
    assert ledger.one(RECORDED) == 5


def test_a_worker_says_how_far_it_came(ledger: Ledger) -> None:
    ledger.job(schedule=None, handler="external", target={}, retry_backoff=["1 h"])
    enqueue(ledger, watermark=10)
    row, token = claimed(ledger)
    assert ledger.one("SELECT finish(%s, %s, NULL, 7)", row, token) == "ok"
    assert ledger.one(STATUS) == (10, 7, True)
    assert ledger.one(RECORDED) == 7
    row, token = claimed(ledger)  # progress: again at once
    ledger.one("SELECT finish(%s, %s, NULL, 10)", row, token)
    assert ledger.one(STATUS) == (10, 10, False)
    assert ledger.statuses() == ["SUCCESS", "SUCCESS"]


async def test_a_python_handler_says_how_far_it_came(ledger: Ledger) -> None:
    cases: list[tuple[Any, int | None, str | None]] = [
        (7, 7, None),
        (None, None, None),
        ("all", None, "result_invalid"),
        (2**63, None, "result_invalid"),
        (12, 12, None),  # ahead of what was pushed
    ]
    for n in range(len(cases)):
        ledger.job(f"job{n}", schedule=None)
        enqueue(ledger, f"job{n}", watermark=10)
    async with runners(ledger.url, {}) as (one,):
        for start in list(await one.settle()):
            said, *_ = cases[int(start.job.name[-1])]
            await one.finish(start, outcome.success(Result("done", watermark=said)))
    row = "SELECT result, error_code FROM executions WHERE status = 'SUCCESS' AND job_name = %s"
    for n, (_, covered, error) in enumerate(cases):
        assert ledger.one(f"{STATUS} WHERE job_name = %s", f"job{n}") == (
            10, covered, covered is None or covered < 10,
        )  # fmt: skip
        assert ledger.one(row, f"job{n}") == ("done", error)
    assert enqueue(ledger, "job4", watermark=11) is None


def test_a_success_without_progress_leaves_it_dirty_and_does_not_spin(ledger: Ledger) -> None:
    ledger.job(schedule=None, handler="external", target={}, retry_backoff=["5 m", "1 h"])
    enqueue(ledger, watermark=10)
    for covered, dirty in ((7, 7), (7, 7), (None, 7), (None, 7)):
        row, token = claimed(ledger)
        assert ledger.one("SELECT finish(%s, %s, NULL, %s)", row, token, covered) == "ok"
        assert ledger.one(STATUS) == (10, dirty, True)
        if ledger.statuses().count("SUCCESS") == 1:
            continue  # that was progress
        assert ledger.one("SELECT answer FROM claim('job', 'worker')") == "retry_pending"
        ledger.travel(by=timedelta(minutes=5))
    assert sorted(ledger.statuses()) == ["PENDING"] + 4 * ["SUCCESS"]


def test_new_input_does_not_wait_for_that_backoff(ledger: Ledger) -> None:
    ledger.job(schedule=None, handler="external", target={}, retry_backoff=["5 m"])
    first = enqueue(ledger, watermark=1)
    row, token = claimed(ledger)
    ledger.one("SELECT finish(%s, %s, NULL, NULL)", row, token)
    assert ledger.one("SELECT due_at > db_now() FROM executions WHERE status = 'PENDING'")
    again = enqueue(ledger, watermark=2)
    assert claimed(ledger)[0] == again != first


async def test_one_scope_that_cannot_run_again_stops_no_other(ledger: Ledger) -> None:
    ledger.job("a", schedule=None, retry_backoff=["1 m"])
    ledger.job("b", schedule=None, retry_backoff=["1 m"])
    async with runners(ledger.url, {}) as (one,):
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


async def test_a_crash_before_it_is_recorded_is_repaired(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    enqueue(ledger, watermark=1)
    async with runners(ledger.url, {}) as (one,):
        await finish_and_crash(one)
        assert ledger.one(RECORDED) is None
        assert ledger.one(STATUS) == (1, 1, False)  # derived: nobody decides by the stale one
        assert enqueue(ledger, watermark=1) is None
        ledger.values("UPDATE schedules SET success_watermark = NULL")
        await one.repair()
    assert ledger.one(RECORDED) == 1
    assert ledger.statuses() == ["SUCCESS"]


async def finish_and_crash(one: Runner) -> None:
    """SUCCESS is written, and nothing of what follows it."""
    (start,) = await one.settle()
    one.put(start, outcome.success(None))
    await one.only_write()
    one.crash()
