"""F3: one execution is asked for by name, and a refusal has a reason."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.db.support.engine import Ledger, Runner
from tests.db.support.pushes import answer, claimed, enqueue, fail, finish
from tests.db.support.rows import connected, start_blocked, value


def external(ledger: Ledger, **policies: Any) -> None:
    ledger.job(handler="external", **policies)


def test_a_key_that_was_never_enqueued_is_won(ledger: Ledger) -> None:
    external(ledger, scope_kind="tenant", payload={"of": "job"}, max_attempts=3)
    row = ledger.one("SELECT * FROM claim('job', 'worker', 'acme')")
    assert row[0] == "won" and row[4:7] == (1, 3, {"of": "job"})
    found = ledger.one(
        "SELECT id, lease_token, plan_time, status, trigger, runner_id, stale_after, scope_id,"
        " due_at <= started_at FROM executions"
    )
    assert found == (
        row[1], row[2], row[3], "RUNNING", "enqueue", "worker", row[8], "acme", True,
    )  # fmt: skip
    assert ledger.one("SELECT heartbeat(%s, %s)", row[1], row[2]) == "ok"


def test_what_waits_is_taken_first_and_one_at_a_time(ledger: Ledger) -> None:
    external(ledger, overlap="wait")
    made = [enqueue(ledger), enqueue(ledger, key="k"), ledger.trigger()]
    for execution in made:
        won = claimed(ledger)
        assert won.id == execution
        ask = "SELECT answer, execution_id, lease_token FROM claim('job', 'other')"
        assert ledger.one(ask) == ("already_running", execution, None)
        finish(ledger, won)


def test_up_to_date(ledger: Ledger) -> None:
    external(ledger)
    enqueue(ledger, watermark=4)
    finish(ledger, claimed(ledger))
    assert answer(ledger) == "up_to_date"
    enqueue(ledger, watermark=5)
    assert answer(ledger) == "won"


def test_retry_pending_retried_and_exhausted(ledger: Ledger) -> None:
    external(ledger, max_attempts=2, retry_backoff=["10 m"])
    enqueue(ledger, watermark=4)
    failed = claimed(ledger)
    fail(ledger, failed)
    assert ledger.one(
        "SELECT answer, execution_id, due_at > db_now() + interval '9 m' FROM claim('job', 'other')"
    ) == ("retry_pending", failed.id, True)
    ledger.travel(by=timedelta(minutes=10))
    assert answer(ledger) == "retried"
    ledger.values("SELECT fail(id, lease_token, 'boom', 'it broke') FROM executions")
    assert ledger.one("SELECT answer, execution_id FROM claim('job', 'other')") == (
        "retry_exhausted", failed.id,
    )  # fmt: skip
    assert ledger.statuses() == ["FAILED"]


@pytest.mark.parametrize("of", ["job", "queue"])
def test_concurrency_limit(ledger: Ledger, of: str) -> None:
    external(ledger, scope_kind="tenant", max_running=1 if of == "job" else None)
    if of == "queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
    first = claimed(ledger, scope="a")
    assert answer(ledger, scope="b") == "concurrency_limit"
    finish(ledger, first)
    assert answer(ledger, scope="b") == "won"


@pytest.mark.parametrize("pause", ["pause('job')", "pause_queue('default')"])
def test_paused(ledger: Ledger, pause: str) -> None:
    external(ledger)
    enqueue(ledger)
    ledger.values(f"SELECT {pause}")
    assert answer(ledger) == "paused"
    assert ledger.statuses() == ["PENDING"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_stale_lease_is_stolen_if_its_job_is_reentrant(ledger: Ledger, reentrant: bool) -> None:
    external(ledger, allow_stale_reentry=reentrant, max_running=1, max_attempts=2)
    first = claimed(ledger)
    ledger.expire()
    assert answer(ledger) == "already_running"  # seen for a moment only, it steals nothing
    ledger.values("UPDATE runners SET started_at = started_at - interval '1 h'")
    assert answer(ledger) == ("stolen" if reentrant else "already_running")
    if reentrant:
        (ended,) = ledger.one("SELECT attempts FROM executions")
        assert (ended["error_code"], ended["runner_id"]) == ("runner_crashed", "worker")
        assert ledger.one("SELECT finish(%s, %s)", *first) == "lost"


def test_of_two_at_once_one_wins(ledger: Ledger) -> None:
    external(ledger, scope_kind="tenant")
    ask = "SELECT answer FROM cronledger.claim('job', %s, 'acme')"
    with psycopg.connect(ledger.url) as one, connected(ledger.url) as two:
        one.execute(ask, ["one"])
        second = start_blocked(ledger.db, two, lambda: value(two, ask, "two"))
        one.commit()
        assert second.result(90) == "already_running"
    assert ledger.statuses() == ["RUNNING"]


async def test_no_replica_runs_beside_it(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="@every 60s", overlap="wait")
    await one.settle()
    held = claimed(ledger)
    ledger.travel(by=timedelta(minutes=1))
    assert await one.settle() == []
    assert ledger.parked() == "waiting"
    finish(ledger, held)
    assert len(await one.settle()) == 1
    assert answer(ledger) == "already_running"
