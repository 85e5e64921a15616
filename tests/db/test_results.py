"""F21: another process takes each result exactly once."""

from typing import Any

import psycopg

from tests.db.support.engine import Ledger
from tests.db.support.pushes import claimed, enqueue, fail, finish

TAKE = "SELECT execution_id, status, result FROM cronledger.take_results('default', %s)"


def made(ledger: Ledger, count: int) -> list[tuple[int, str, Any]]:
    """Results 0, 1, 2, …, oldest first."""
    done = []
    for n in range(count):
        enqueue(ledger)
        claim = claimed(ledger)
        finish(ledger, claim, {"n": n})
        done.append((claim.id, "SUCCESS", {"n": n}))
    return done


def test_two_consumers_share_the_results_oldest_first_and_a_rollback_gives_back(
    ledger: Ledger,
) -> None:
    ledger.job(handler="external")
    done = made(ledger, 4)
    with psycopg.connect(ledger.url) as one, psycopg.connect(ledger.url) as two:
        one.execute("SET lock_timeout = '5s'")
        first = one.execute(TAKE, [2]).fetchall()
        second = two.execute(TAKE, [10]).fetchall()  # steps over what the other has in hand
        assert (first, second) == (done[:2], done[2:])
        one.rollback()
        two.commit()
        assert two.execute(TAKE, [10]).fetchall() == done[:2]
        two.commit()
        assert one.execute(TAKE, [10]).fetchall() == []


def test_a_failure_brings_its_result_once_it_is_final_and_a_retry_its_new_one(
    ledger: Ledger,
) -> None:
    ledger.job(handler="external", max_attempts=2, retry_backoff=["1 h"])
    enqueue(ledger)
    for attempt, found in ((1, []), (2, [2]), (3, [3])):
        claim = claimed(ledger)
        ledger.one("SELECT fail(%s, %s, 'boom', 'no', %s::jsonb)", *claim, str(attempt))
        assert [row[2] for row in ledger.values(TAKE, 5)] == found
        ledger.values("SELECT retry(%s)", claim.id)
    assert ledger.values(TAKE, 5) == []


def test_results_of_other_queues_and_missing_results_are_not_taken(ledger: Ledger) -> None:
    ledger.job(handler="external")
    ledger.job("heavy", handler="external", queue="heavy")
    enqueue(ledger, "heavy")
    finish(ledger, claimed(ledger, "heavy"), {"n": 1})
    enqueue(ledger)
    fail(ledger, claimed(ledger))
    assert ledger.values(TAKE, 5) == []
