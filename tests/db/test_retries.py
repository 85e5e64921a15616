"""What a failure becomes: another attempt, or never."""

from dataclasses import replace
from datetime import timedelta

from structlog.testing import capture_logs

from cronledger.engine.running.ended import Ended
from cronledger.rules import outcome
from cronledger.rules.model import Status
from cronledger.rules.outcome import Discard, Outcome, Retry
from tests.db.support.engine import Ledger, runners

MINUTE = timedelta(minutes=1)
FAILURE = outcome.failure(ValueError("no"))


async def test_i5_attempts_end_with_max_attempts(ledger: Ledger) -> None:
    hour, margin = timedelta(hours=1), timedelta(minutes=10)
    ledger.job(schedule=None, max_attempts=3, retry_backoff=["1 h", "10 h"])
    ledger.trigger()
    async with runners(ledger.url, {}) as (one,):
        for wait in (hour, 10 * hour):
            (start,) = await one.settle()
            await one.finish(start, FAILURE)
            ledger.travel(by=wait - margin)
            assert await one.settle() == []  # I8 of retries: not before next_attempt_at
            ledger.travel(by=margin)
        (last,) = await one.settle()
        await one.finish(last, FAILURE)
        ledger.travel(by=timedelta(days=1))
        assert await one.settle() == []
    assert ledger.one("SELECT status, attempt, next_attempt_at FROM executions") == (
        "FAILED", 3, None,
    )  # fmt: skip


async def test_i5_the_ledger_retries_no_exhausted_execution(ledger: Ledger) -> None:
    """Whatever a replica asks for, and whatever SQL writes."""
    ledger.job(schedule=None)
    ledger.trigger()
    async with runners(ledger.url, {}) as (one,):
        await one.settle()
        (lease,) = one.leases.all()
        one.finisher.put(Ended(lease, replace(FAILURE, retry_after=timedelta(0)), 5))
        await one.finisher.step()
        assert ledger.one("SELECT status, next_attempt_at FROM executions") == ("FAILED", None)
        ledger.values("UPDATE executions SET next_attempt_at = db_now()")
        ledger.travel(by=MINUTE)
        assert await one.settle() == []
    assert ledger.one("SELECT attempt, max_attempts FROM executions") == (1, 1)


async def test_i6_a_known_end_is_retried_and_an_unknown_one_is_not(ledger: Ledger) -> None:
    ends = [
        (outcome.failure(Retry(after="1s")), True),
        (outcome.failure(Discard("bad_input", "no")), False),
        (outcome.timed_out(MINUTE, end_known=True), True),
        (outcome.timed_out(MINUTE, end_known=False), False),
        (outcome.cancelled(), False),
    ]
    for n in range(len(ends)):
        ledger.job(f"job{n}", schedule=None, max_attempts=2, retry_backoff=["1 s"])
        ledger.trigger(f"job{n}")
    async with runners(ledger.url, {}) as (one,):
        for start in list(await one.settle()):
            await one.finish(start, ends[int(start.job.name[-1])][0])
        ledger.travel(by=timedelta(hours=1))
        again = await one.settle()
    assert {(s.job.name, s.claimed.how) for s in again} == {
        (f"job{n}", "retried") for n, (_, retried) in enumerate(ends) if retried
    }


async def test_retries_of_many_jobs_are_found_behind_a_backlog_of_one(ledger: Ledger) -> None:
    ledger.job("a", schedule=None, overlap="allow", max_running=1)
    ledger.job("b", schedule=None)
    for _ in range(20):
        ledger.trigger("a")
    ledger.trigger("b")
    async with runners(ledger.url, {"slots": 3}) as (one,):
        assert sorted(s.claimed.key.job_name for s in await one.settle()) == ["a", "b"]
        assert one.delay is not None and one.delay > 1


async def test_a_failure_or_release_after_a_requested_cancel_is_cancelled(ledger: Ledger) -> None:
    for name in ("failed", "released"):
        ledger.job(name, schedule=None, max_attempts=5, retry_backoff=["0 s"],
                   allow_stale_reentry=True)  # fmt: skip
        ledger.trigger(name)
    async with runners(ledger.url, {}) as (one,):
        held = {start.job.name: start for start in await one.settle()}
        for start in held.values():
            assert ledger.one("SELECT cancel(%s)", start.claimed.id) == "requested"
        await one.finish(held["failed"], FAILURE)
        await one.finish(held["released"], outcome.shutdown(end_known=True), release=True)
        assert await one.settle() == []
    assert ledger.values(
        "SELECT status, next_attempt_at, lease_token, job_name = 'failed' AND error_code = %s"
        " FROM executions ORDER BY job_name", FAILURE.error_code,
    ) == [
        ("CANCELLED", None, held["failed"].claimed.token, True),
        ("CANCELLED", None, held["released"].claimed.token, False),
    ]  # fmt: skip


async def test_i5_a_released_execution_keeps_its_attempt_and_gets_one_more(ledger: Ledger) -> None:
    ledger.job(schedule=None, allow_stale_reentry=True)
    ledger.trigger()
    async with runners(ledger.url, {}, {}) as (one, two):
        (first,) = await one.settle()
        await one.finish(first, outcome.shutdown(end_known=True), release=True)
        assert ledger.one("SELECT status, attempt, max_attempts, attempts->0->>'error_code' "
                          "FROM executions") == ("PENDING", 1, 2, "shutdown")  # fmt: skip
        (second,) = await two.settle()
        assert (second.claimed.how, second.claimed.attempt) == ("won", 2)
        assert second.claimed.token != first.claimed.token
        await two.finish(second)
    assert ledger.one("SELECT jsonb_array_length(attempts) FROM executions") == 1


async def test_a_poisonous_outcome_costs_no_other_its_end(ledger: Ledger) -> None:
    """Values that got past the cleaning: the database refuses one row, the batch is halved."""
    ledger.job(schedule=None, overlap="allow")
    for _ in range(9):
        ledger.trigger()
    bad = [
        Outcome(Status.SUCCESS, result_json='"\\u0000"'),
        Outcome(Status.SUCCESS, output="a\x00b"),
        Outcome(Status.SUCCESS, rows_affected=2**70),
        Outcome(Status.SUCCESS, result_json="1e999999"),
        Outcome(Status.SUCCESS, output="\ud800"),
        Outcome(Status.FAILED, error_code="x", error_msg="y" * 5000),
    ]
    with capture_logs() as logs:
        async with runners(ledger.url, {}) as (one,):
            starts = await one.settle()
            for number, start in enumerate(starts):
                one.put(start, bad[number] if number < len(bad) else outcome.success("fine"))
            await one.finisher.step()
            assert one.finisher.waiting == 0
    # PostgreSQL quotes a row that it refuses, with the lease_token.
    told = [*ledger.values("SELECT coalesce(error_msg, '') FROM executions"), str(logs)]
    assert not any(str(start.claimed.token) in text for start in starts for text in told)
    rows = ledger.values("SELECT status, error_code, result FROM executions ORDER BY id")
    assert rows[:5] == [("SUCCESS", "result_invalid", None)] * 5
    assert rows[5] == ("FAILED", "result_invalid", None)
    assert rows[6:] == [("SUCCESS", None, "fine")] * 3


async def test_results_that_cannot_be_stored_are_a_success_with_a_note(ledger: Ledger) -> None:
    ledger.job(schedule=None, overlap="allow")
    values = ["a\x00b", float("nan"), "x" * 20_000, object(), {"k\x00": "\ud800"}, 10**30]
    for _ in values:
        ledger.trigger()
    async with runners(ledger.url, {}) as (one,):
        for start, value in zip(await one.settle(), values, strict=True):
            one.put(start, outcome.success(value))
        await one.finisher.step()
    assert ledger.values("SELECT status, error_code, result FROM executions ORDER BY id") == [
        ("SUCCESS", "result_changed", "ab"),
        ("SUCCESS", "result_invalid", None),
        ("SUCCESS", "result_too_large", None),
        ("SUCCESS", "result_invalid", None),
        ("SUCCESS", "result_changed", {"k": ""}),
        ("SUCCESS", None, 10**30),
    ]
