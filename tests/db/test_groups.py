"""F22: a fan-out is followed and aggregated as one."""

from typing import Any
from uuid import UUID, uuid4

from tests.db.support.engine import Ledger
from tests.db.support.pushes import claimed, enqueue, fail, finish

EXTERNAL: dict[str, Any] = {
    "schedule": None, "handler": "external", "target": {}, "scope_kind": "part",
}  # fmt: skip
COUNTS = (
    "SELECT total, pending, running, awaiting_retry, success, failed, cancelled, is_finished"
    " FROM group_status(%s)"
)


def fan_out(ledger: Ledger) -> tuple[UUID, dict[str, int | None]]:
    group = uuid4()
    ledger.job(**EXTERNAL, max_attempts=2, retry_backoff=["1 h"])
    enqueue(ledger, scope_id="else", group_id=uuid4())
    return group, {s: enqueue(ledger, scope_id=s, group_id=group) for s in "abcd"}


def test_a_group_is_followed_as_one(ledger: Ledger) -> None:
    group, ids = fan_out(ledger)
    assert ledger.one(COUNTS, group) == (4, 4, 0, 0, 0, 0, 0, False)
    finish(ledger, claimed(ledger, scope="a"), {"n": 1})
    fail(ledger, claimed(ledger, scope="b"))
    claim = claimed(ledger, scope="c")
    assert ledger.one(COUNTS, group) == (4, 1, 1, 1, 1, 0, 0, False)
    finish(ledger, claim, {"n": 3})
    ledger.values("SELECT cancel(%s)", ids["d"])
    ledger.values("SELECT retry(%s)", ids["b"])
    fail(ledger, claimed(ledger, scope="b"))
    assert ledger.one(COUNTS, group) == (4, 0, 0, 0, 2, 1, 1, True)


def test_its_results_are_aggregated(ledger: Ledger) -> None:
    group, ids = fan_out(ledger)
    for n, scope in enumerate("ba"):
        finish(ledger, claimed(ledger, scope=scope), {"n": n})
    results = ledger.one("SELECT results FROM group_status(%s)", group)
    assert [(r["execution_id"], r["scope"], r["status"], r["result"]) for r in results] == [
        (ids["a"], "a", "SUCCESS", {"n": 1}), (ids["b"], "b", "SUCCESS", {"n": 0}),
    ]  # fmt: skip
    total = "SELECT sum((r -> 'result' ->> 'n')::int) FROM group_status(%s), jsonb_array_elements"
    assert ledger.one(f"{total}(results) r", group) == 1


def test_nobody_is_in_an_unknown_group(ledger: Ledger) -> None:
    assert ledger.one(COUNTS, uuid4()) == (0, 0, 0, 0, 0, 0, 0, False)
