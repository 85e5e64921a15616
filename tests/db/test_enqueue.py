"""F1: work is pushed at a job; what has the same key is merged while it waits."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from cronledger.rules import outcome
from tests.db.support.engine import Ledger, runners, waiting
from tests.db.support.pushes import enqueue
from tests.waiting import eventually

ROW = (
    "SELECT status, trigger, attempt, payload, watermark, enqueue_key FROM executions WHERE id = %s"
)


BAD: list[tuple[str, dict[str, Any], type[psycopg.Error], str]] = [
    ("plain", {"scope_id": "acme"}, errors.NoDataFound, "acme"),
    ("fixed", {"scope_id": "b"}, errors.NoDataFound, "b"),
    ("tenants", {}, errors.NoDataFound, "tenant/global"),
    ("tenants", {"scope_id": ""}, errors.InvalidParameterValue, "scope_id"),
    ("plain", {"key": ""}, errors.InvalidParameterValue, "key"),
    ("plain", {"key": "k" * 201}, errors.InvalidParameterValue, "key"),
    ("nobody", {}, errors.NoDataFound, "nobody"),
    ("plain", {"key": "k", "due_at": "now"}, errors.InvalidParameterValue, "due_at .* a key"),
    ("plain", {"watermark": 1, "due_at": "now"}, errors.InvalidParameterValue, "a watermark"),
    ("plain", {"due_at": "infinity"}, errors.InvalidParameterValue, "due_at infinity"),
]


def test_a_push_makes_a_pending_execution(ledger: Ledger) -> None:
    ledger.job(schedule=None, payload={"of": "job"})
    first = enqueue(ledger, payload={"n": 1}, requested_by="ann")
    second = enqueue(ledger)
    assert ledger.one(ROW, first) == ("PENDING", "enqueue", 0, {"n": 1}, None, None)
    assert ledger.one(ROW, second)[3] == {"of": "job"}
    assert ledger.values("SELECT requested_by FROM executions ORDER BY id") == [
        "ann", ledger.one("SELECT session_user"),
    ]  # fmt: skip


def test_without_a_key_nothing_is_merged(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    made = {enqueue(ledger, payload={"n": 1}, watermark=5) for _ in range(3)}
    assert len(made) == 3 == len(ledger.statuses())


def test_of_one_key_the_newest_payload_and_the_greatest_watermark_wait(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    first = enqueue(ledger, key="a", payload={"n": 1}, watermark=7)
    other = enqueue(ledger, key="b", payload={"n": 2})
    assert enqueue(ledger, key="a", payload={"n": 3}, watermark=4) == first != other
    assert enqueue(ledger, key="a") == first  # without a payload it says nothing new about it
    assert ledger.one(ROW, first) == ("PENDING", "enqueue", 0, {"n": 3}, 7, "a")
    assert len(ledger.statuses()) == 2


async def test_while_one_runs_a_single_successor_waits(ledger: Ledger, database_url: str) -> None:
    ledger.job(schedule=None)
    first = enqueue(ledger, key="a", payload={"n": 1})
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        second = enqueue(ledger, key="a", payload={"n": 2})
        assert enqueue(ledger, key="a", payload={"n": 3}) == second != first
        assert await one.settle() == []
        await one.finish(start)
        (start,) = await one.settle()
        assert (start.claimed.id, start.claimed.payload) == (second, {"n": 3})
        await one.finish(start)
        assert await one.settle() == []
    assert ledger.statuses() == ["SUCCESS", "SUCCESS"]


async def test_an_older_payload_does_not_run_after_a_newer_one(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job(schedule=None, max_attempts=3, retry_backoff=["1 h"])
    old = enqueue(ledger, key="a", payload={"n": 1})
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        new = enqueue(ledger, key="a", payload={"n": 2})
        await one.finish(start, outcome.failure(ValueError("no")))
        assert ledger.one("SELECT status, next_attempt_at FROM executions WHERE id = %s", old) == (
            "FAILED", None,
        )  # fmt: skip
        assert f"execution {new} " in ledger.one(
            "SELECT error_msg FROM executions WHERE id=%s", old
        )
        (start,) = await one.settle()
        assert start.claimed.id == new


async def test_a_crash_before_that_is_repaired(ledger: Ledger, database_url: str) -> None:
    ledger.job(schedule=None, max_attempts=3, retry_backoff=["1 h"])
    old = enqueue(ledger, key="a", payload={"n": 1})
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        enqueue(ledger, key="a", payload={"n": 2})
        one.put(start, outcome.failure(ValueError("no")))
        await one.only_write()  # and nothing more
        after = "SELECT next_attempt_at IS NOT NULL FROM executions WHERE id = %s"
        assert ledger.one(after, old)
        await one.repair()
        assert not ledger.one(after, old)


def test_a_scope_appears_by_a_push(ledger: Ledger) -> None:
    ledger.job(schedule=None, scope_kind="tenant")
    enqueue(ledger, scope_id="acme")
    assert ledger.values("SELECT scope_kind, scope_id, next_due_at IS NULL FROM schedules") == [
        ("tenant", "acme", False)
    ]


def test_bad_input_is_refused_and_names_the_remedy(ledger: Ledger) -> None:
    ledger.job("plain", schedule=None)
    ledger.job("tenants", schedule=None, scope_kind="tenant")
    ledger.job("fixed", schedule=None, scope_kind="tenant", scopes=["a"])
    for job, push, error, names in BAD:
        with pytest.raises(error, match=names) as raised:
            enqueue(ledger, job, **push)
        assert raised.value.diag.message_hint
    assert ledger.values("SELECT FROM executions") == []


def test_a_retired_job_refuses_and_a_paused_one_keeps_it(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    ledger.values("SELECT pause('job')")
    enqueue(ledger)
    assert ledger.statuses() == ["PENDING"]
    ledger.values("SELECT retire('job')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="retired"):
        enqueue(ledger)


async def test_a_message_that_is_committed_after_the_retirement_is_cancelled(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job(schedule=None)
    with psycopg.connect(database_url) as open_:
        open_.execute("SELECT cronledger.enqueue('job')")
        ledger.values("SELECT retire('job')")  # waits for nothing
    assert ledger.statuses() == ["PENDING"]
    async with runners(database_url, {}) as (one,):
        assert await one.settle() == []
        await one.repair()
    assert ledger.statuses() == ["CANCELLED"]


async def test_a_message_waits_until_it_is_due(ledger: Ledger, database_url: str) -> None:
    ledger.job(schedule=None)
    now = ledger.now()
    later = enqueue(ledger, due_at=now + timedelta(minutes=5))
    past = enqueue(ledger, due_at=now - timedelta(minutes=5))
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        assert start.claimed.id == past
        await one.finish(start)
        ledger.travel(by=timedelta(minutes=6))
        assert [start.claimed.id for start in await one.settle()] == [later]


def test_one_execution_is_not_of_two_groups(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    enqueue(ledger, key="a", group_id=uuid4())
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="another group"):
        enqueue(ledger, key="a", group_id=uuid4())


async def test_two_pushes_at_once_make_one(ledger: Ledger, database_url: str) -> None:
    ledger.job(schedule=None, scope_kind="tenant")  # the scope is new to both
    push = b"SELECT cronledger.enqueue('job', 'acme', key => 'k', watermark => 1)"
    one = await psycopg.AsyncConnection.connect(database_url)
    two = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with one, two:
        await one.execute(push)
        second = asyncio.create_task(two.execute(push))
        await eventually("it waits for a lock", lambda: waiting(ledger))
        await one.commit()
        await second
    assert ledger.statuses() == ["PENDING"]
