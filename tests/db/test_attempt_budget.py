"""F5: new input brings a new retry budget."""

from typing import Any

from tests.db.support.engine import Ledger
from tests.db.support.pushes import answer, claimed, enqueue, fail, finish

PUSHES: list[dict[str, Any]] = [{"watermark": 2}, {"key": "k"}, {"key": "k", "payload": {"n": 2}}]


def failed(ledger: Ledger, job: str, push: dict[str, Any], **policies: Any) -> int | None:
    """The first attempt after this push, or one with the watermark before it, has failed."""
    ledger.job(job, handler="external", **policies)
    made = enqueue(ledger, job, **push | ({"watermark": 1} if "watermark" in push else {}))
    fail(ledger, claimed(ledger, job))
    return made


def test_input_after_exhausted_retries_makes_a_new_execution(ledger: Ledger) -> None:
    for number, push in enumerate(PUSHES):
        job = f"job{number}"
        first = failed(ledger, job, push, max_attempts=1)
        assert answer(ledger, job) == "retry_exhausted"
        second = enqueue(ledger, job, **push)
        assert second != first
        assert claimed(ledger, job).id == second


def test_input_during_a_backoff_has_all_attempts_at_once(ledger: Ledger) -> None:
    for number, push in enumerate(PUSHES):
        job = f"job{number}"
        first = failed(ledger, job, push, max_attempts=2, retry_backoff=["1 h"])
        second = enqueue(ledger, job, **push)
        assert ledger.values(
            "SELECT id, status, attempt, max_attempts, next_attempt_at <= db_now()"
            " FROM executions WHERE job_name = %s ORDER BY id", job,
        ) == [(first, "FAILED", 1, 2, None), (second, "PENDING", 0, 2, True)]  # fmt: skip
        finish(ledger, claimed(ledger, job))
        pending = "SELECT pending_id FROM input_status WHERE job_name = %s"
        assert ledger.one(pending, job) is None


def test_input_that_is_not_new_keeps_the_budget(ledger: Ledger) -> None:
    first = failed(ledger, "job", {"watermark": 2}, max_attempts=2, retry_backoff=["1 h"])
    assert {enqueue(ledger, watermark=n) for n in (1, 0)} == {first}
    assert ledger.one("SELECT status, next_attempt_at > db_now() FROM executions") == (
        "FAILED", True,
    )  # fmt: skip
