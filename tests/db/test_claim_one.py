"""F3: one execution is asked for by name, and a refusal has a reason."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.db.support.engine import Ledger, runners, waiting
from tests.db.support.pushes import answer, claimed, enqueue, fail, finish
from tests.waiting import eventually

EXTERNAL: dict[str, Any] = {"schedule": None, "handler": "external", "target": {}}


def test_a_key_that_was_never_enqueued_is_won(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL, scope_kind="tenant", payload={"of": "job"}, max_attempts=3)
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


def test_what_waits_is_taken_first(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL, overlap="wait")
    made = [enqueue(ledger), enqueue(ledger, key="k"), ledger.trigger()]
    won = []
    for _ in made:
        won.append(claimed(ledger))
        finish(ledger, won[-1])
    assert [claim.id for claim in won] == made


def test_already_running(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    first = claimed(ledger)
    enqueue(ledger)
    assert ledger.one("SELECT answer, execution_id, lease_token FROM claim('job', 'other')") == (
        "already_running", first.id, None,
    )  # fmt: skip
    assert ledger.statuses() == ["PENDING", "RUNNING"]


def test_up_to_date(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    enqueue(ledger, watermark=4)
    finish(ledger, claimed(ledger))
    assert answer(ledger) == "up_to_date"
    enqueue(ledger, watermark=5)
    assert answer(ledger) == "won"


def test_retry_pending_and_then_retried(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL, max_attempts=2, retry_backoff=["10 m"])
    enqueue(ledger, watermark=4)
    failed = claimed(ledger)
    fail(ledger, failed)
    assert ledger.one(
        "SELECT answer, execution_id, due_at > db_now() + interval '9 m' FROM claim('job', 'other')"
    ) == ("retry_pending", failed.id, True)
    ledger.travel(by=timedelta(minutes=10))
    assert answer(ledger) == "retried"


def test_retry_exhausted(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    enqueue(ledger, watermark=4)
    failed = claimed(ledger)
    fail(ledger, failed)
    assert ledger.one("SELECT answer, execution_id FROM claim('job', 'other')") == (
        "retry_exhausted", failed.id,
    )  # fmt: skip
    assert ledger.statuses() == ["FAILED"]


@pytest.mark.parametrize("of", ["job", "queue"])
def test_concurrency_limit(ledger: Ledger, of: str) -> None:
    limited: dict[str, Any] = {"max_running": 1} if of == "job" else {}
    ledger.job(**EXTERNAL, scope_kind="tenant", **limited)
    if of == "queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
    first = claimed(ledger, scope="a")
    assert answer(ledger, scope="b") == "concurrency_limit"
    finish(ledger, first)
    assert answer(ledger, scope="b") == "won"


@pytest.mark.parametrize("pause", ["pause('job')", "pause_queue('default')"])
def test_paused(ledger: Ledger, pause: str) -> None:
    ledger.job(**EXTERNAL)
    enqueue(ledger)
    ledger.values(f"SELECT {pause}")
    assert answer(ledger) == "paused"
    assert ledger.statuses() == ["PENDING"]


def test_a_stale_lease_of_a_reentrant_job_is_stolen(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL, allow_stale_reentry=True, max_running=1, max_attempts=2)
    first = claimed(ledger)
    ledger.expire()
    assert answer(ledger) == "already_running"  # seen for a moment only, it steals nothing
    ledger.values("UPDATE runners SET started_at = started_at - interval '1 h'")
    assert answer(ledger) == "stolen"
    (ended,) = ledger.one("SELECT attempts FROM executions")
    assert (ended["error_code"], ended["runner_id"]) == ("runner_crashed", "worker")
    assert ledger.one("SELECT finish(%s, %s)", *first) == "lost"


def test_a_stale_lease_that_is_not_reentrant_is_left_alone(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    claimed(ledger)
    ledger.expire()
    answer(ledger)
    ledger.values("UPDATE runners SET started_at = started_at - interval '1 h'")
    assert answer(ledger) == "already_running"


def test_bad_input_is_refused(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    refused: list[tuple[str, type[psycopg.Error], str]] = [
        ("claim('nobody', 'w')", errors.NoDataFound, "nobody"),
        ("claim('job', 'w', 'acme')", errors.NoDataFound, "acme"),
        ("claim('job', '')", errors.InvalidParameterValue, "runner"),
    ]
    for call, error, names in refused:
        with pytest.raises(error, match=names) as raised:
            ledger.values(f"SELECT * FROM {call}")
        assert raised.value.diag.message_hint


async def test_of_two_at_once_one_wins(ledger: Ledger, database_url: str) -> None:
    ledger.job(**EXTERNAL, scope_kind="tenant")
    ask = "SELECT answer FROM cronledger.claim('job', %s, 'acme')"
    one = await psycopg.AsyncConnection.connect(database_url)
    two = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with one, two:
        await one.execute(ask, ["one"])
        second = asyncio.create_task(two.execute(ask, ["two"]))
        await eventually("it waits for a lock", lambda: waiting(ledger))
        await one.commit()
        assert await (await second).fetchone() == ("already_running",)
    assert ledger.statuses() == ["RUNNING"]


async def test_no_replica_runs_beside_it(ledger: Ledger, database_url: str) -> None:
    ledger.job(schedule="@every 60s", overlap="wait")
    async with runners(database_url, {}) as (one,):
        await one.settle()
        held = claimed(ledger)
        ledger.travel(by=timedelta(minutes=1))
        assert await one.settle() == []
        assert ledger.parked() == "waiting"
        finish(ledger, held)
        assert len(await one.settle()) == 1
        assert answer(ledger) == "already_running"
