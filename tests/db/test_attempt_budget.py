"""F5: new input brings a new retry budget."""

from typing import Any

from tests.db.support.engine import Ledger
from tests.db.support.pushes import answer, claimed, enqueue, fail, finish

EXTERNAL: dict[str, Any] = {"schedule": None, "handler": "external", "target": {}}
PUSHES: list[dict[str, Any]] = [{"watermark": 2}, {"key": "k"}, {"key": "k", "payload": {"n": 2}}]


def earlier(push: dict[str, Any]) -> dict[str, Any]:
    """Return the same push with the watermark before, if it has one."""
    return push | ({"watermark": 1} if "watermark" in push else {})


def test_input_after_exhausted_retries_makes_a_new_execution(ledger: Ledger) -> None:
    for number, push in enumerate(PUSHES):
        job = f"job{number}"
        ledger.job(job, **EXTERNAL, max_attempts=1)
        first = enqueue(ledger, job, **earlier(push))
        fail(ledger, claimed(ledger, job))
        assert answer(ledger, job) == "retry_exhausted"
        second = enqueue(ledger, job, **push)
        assert second != first
        assert claimed(ledger, job).id == second


def test_input_during_a_backoff_has_all_attempts_at_once(ledger: Ledger) -> None:
    for number, push in enumerate(PUSHES):
        job = f"job{number}"
        ledger.job(job, **EXTERNAL, max_attempts=2, retry_backoff=["1 h"])
        first = enqueue(ledger, job, **earlier(push))
        fail(ledger, claimed(ledger, job))
        second = enqueue(ledger, job, **push)
        assert ledger.values(
            "SELECT id, status, attempt, max_attempts, next_attempt_at <= db_now()"
            " FROM executions WHERE job_name = %s ORDER BY id", job,
        ) == [(first, "FAILED", 1, 2, None), (second, "PENDING", 0, 2, True)]  # fmt: skip
        finish(ledger, claimed(ledger, job))
        pending = "SELECT pending_id FROM input_status WHERE job_name = %s"
        assert ledger.one(pending, job) is None


def test_input_that_is_not_new_keeps_the_budget(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL, max_attempts=2, retry_backoff=["1 h"])
    first = enqueue(ledger, watermark=5)
    fail(ledger, claimed(ledger))
    assert {enqueue(ledger, watermark=n) for n in (5, 4)} == {first}
    assert ledger.one("SELECT status, next_attempt_at > db_now() FROM executions") == (
        "FAILED", True,
    )  # fmt: skip
