"""F5: new input brings a new retry budget."""

from typing import Any

import pytest

from tests.db.support.engine import Ledger
from tests.db.support.pushes import answer, claimed, enqueue, fail, finish

EXTERNAL: dict[str, Any] = {"schedule": None, "handler": "external", "target": {}}
PUSHES: list[dict[str, Any]] = [{"watermark": 2}, {"key": "k"}, {"key": "k", "payload": {"n": 2}}]


@pytest.mark.parametrize("push", PUSHES)
def test_exhausted_input_is_worked_at_again(ledger: Ledger, push: Any) -> None:
    ledger.job(**EXTERNAL, max_attempts=1)
    first = enqueue(ledger, **{**push, **({"watermark": 1} if "watermark" in push else {})})
    fail(ledger, claimed(ledger))
    assert answer(ledger) == "retry_exhausted"
    second = enqueue(ledger, **push)
    assert second != first
    assert claimed(ledger).id == second


@pytest.mark.parametrize("push", PUSHES)
def test_input_during_a_backoff_has_all_attempts_at_once(ledger: Ledger, push: Any) -> None:
    ledger.job(**EXTERNAL, max_attempts=2, retry_backoff=["1 h"])
    first = enqueue(ledger, **{**push, **({"watermark": 1} if "watermark" in push else {})})
    fail(ledger, claimed(ledger))
    second = enqueue(ledger, **push)
    rows = "SELECT id, status, attempt, max_attempts, next_attempt_at <= db_now() FROM executions"
    assert ledger.values(f"{rows} ORDER BY id") == [
        (first, "FAILED", 1, 2, None), (second, "PENDING", 0, 2, True),
    ]  # fmt: skip
    finish(ledger, claimed(ledger))
    assert ledger.one("SELECT pending_id FROM input_status") is None


def test_input_that_is_not_new_keeps_the_budget(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL, max_attempts=2, retry_backoff=["1 h"])
    first = enqueue(ledger, watermark=5)
    fail(ledger, claimed(ledger))
    assert {enqueue(ledger, watermark=n) for n in (5, 4)} == {first}
    assert ledger.one("SELECT status, next_attempt_at > db_now() FROM executions") == (
        "FAILED", True,
    )  # fmt: skip
