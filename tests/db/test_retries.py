"""What a failure becomes: another attempt, or never."""

from dataclasses import replace
from datetime import timedelta

from structlog.testing import capture_logs

from cronledger.engine.running.ended import Ended
from cronledger.rules import outcome
from cronledger.rules.model import Status
from cronledger.rules.outcome import Outcome
from tests.db.support.engine import FAILURE, MINUTE, Ledger, Runner, runners


async def test_i5_attempts_end_with_max_attempts(ledger: Ledger, one: Runner) -> None:
    hour, margin = timedelta(hours=1), timedelta(minutes=10)
    ledger.job(schedule=None, max_attempts=3, retry_backoff=["1 h", "10 h"])
    ledger.trigger()
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


async def test_i5_the_ledger_retries_no_exhausted_execution(ledger: Ledger, one: Runner) -> None:
    """Whatever a replica asks for, and whatever SQL writes."""
    ledger.job(schedule=None)
    ledger.trigger()
    await one.settle()
    (lease,) = one.leases.all()
    one.finisher.put(Ended(lease, replace(FAILURE, retry_after=timedelta(0)), 5))
    await one.finisher.step()
    assert ledger.one("SELECT status, next_attempt_at FROM executions") == ("FAILED", None)
    ledger.values("UPDATE executions SET next_attempt_at = db_now()")
    ledger.travel(by=MINUTE)
    assert await one.settle() == []
    assert ledger.one("SELECT attempt, max_attempts FROM executions") == (1, 1)


async def test_a_failure_or_release_after_a_requested_cancel_is_cancelled(
    ledger: Ledger, one: Runner
) -> None:
    for name in ("failed", "released"):
        ledger.job(name, schedule=None, max_attempts=5, retry_backoff=["0 s"],
                   allow_stale_reentry=True)  # fmt: skip
        ledger.trigger(name)
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
