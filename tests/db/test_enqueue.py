"""F1, F7, F22: work is enqueued, merged by its key, and followed by its scope and its group."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from tests.db.support.engine import FAILURE, Ledger, Runner
from tests.db.support.pushes import claimed, enqueue, fail, finish
from tests.db.support.rows import Db, start_blocked

ROW = (
    "SELECT status, trigger, attempt, payload, watermark, enqueue_key FROM executions WHERE id = %s"
)
STATUS = (
    "SELECT input_watermark, success_watermark, is_dirty, pending_id, running_id"
    " FROM input_status WHERE job_name = 'job' AND scope_id = 'acme'"
)
COUNTS = (
    "SELECT total, pending, running, awaiting_retry, success, failed, cancelled, is_finished"
    " FROM group_status(%s)"
)


BAD: list[tuple[str, dict[str, Any], type[psycopg.Error], str]] = [
    ("fixed", {"scope_id": "b"}, errors.NoDataFound, "b"),
    ("hosts", {"scope_id": "web9"}, errors.NoDataFound, "has no scope host/web9"),
    ("tenants", {}, errors.NoDataFound, "tenant/global"),
    ("tenants", {"scope_id": ""}, errors.InvalidParameterValue, "scope_id"),
    ("plain", {"key": "k" * 201}, errors.InvalidParameterValue, "key"),
    ("nobody", {}, errors.NoDataFound, "nobody"),
    ("plain", {"key": "k", "due_at": "now"}, errors.InvalidParameterValue, "due_at .* a key"),
    ("plain", {"watermark": 1, "due_at": "now"}, errors.InvalidParameterValue, "a watermark"),
    ("plain", {"due_at": "infinity"}, errors.InvalidParameterValue, "due_at infinity"),
]


def test_a_push_without_a_key_makes_a_pending_execution(ledger: Ledger) -> None:
    ledger.job(schedule=None, payload={"of": "job"})
    first = enqueue(ledger, payload={"n": 1}, requested_by="ann")
    second = enqueue(ledger)
    assert ledger.one(ROW, first) == ("PENDING", "enqueue", 0, {"n": 1}, None, None)
    assert ledger.one(ROW, second)[3] == {"of": "job"}
    assert ledger.values("SELECT requested_by FROM executions ORDER BY id") == [
        "ann", ledger.one("SELECT session_user"),
    ]  # fmt: skip
    made = {enqueue(ledger, payload={"n": 1}, watermark=5) for _ in range(3)}
    assert len(made) == 3 == len(ledger.statuses()) - 2


def test_of_one_key_the_newest_payload_and_the_greatest_watermark_wait(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    first = enqueue(ledger, key="a", payload={"n": 1}, watermark=7)
    other = enqueue(ledger, key="b", payload={"n": 2})
    assert enqueue(ledger, key="a", payload={"n": 3}, watermark=4) == first != other
    assert enqueue(ledger, key="a") == first  # without a payload it says nothing new about it
    assert ledger.one(ROW, first) == ("PENDING", "enqueue", 0, {"n": 3}, 7, "a")
    assert len(ledger.statuses()) == 2


@pytest.mark.parametrize("crash", [False, True])
async def test_an_older_payload_does_not_run_after_a_newer_one(
    ledger: Ledger, one: Runner, crash: bool
) -> None:
    ledger.job(schedule=None, max_attempts=3, retry_backoff=["1 h"])
    old = enqueue(ledger, key="a", payload={"n": 1})
    (start,) = await one.settle()
    new = enqueue(ledger, key="a", payload={"n": 2})
    one.put(start, FAILURE)
    ended = "SELECT status, next_attempt_at IS NULL, error_msg FROM executions WHERE id = %s"
    if crash:
        await one.only_write()
        assert ledger.one(ended, old)[:2] == ("FAILED", False)
        await one.repair()
    else:
        await one.finisher.step()
    assert ledger.one(ended, old)[:2] == ("FAILED", True)
    assert f"execution {new} " in ledger.one(ended, old)[2]
    (start,) = await one.settle()
    assert start.claimed.id == new


def test_a_retired_job_refuses_work_and_a_paused_one_keeps_it(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    calls = ("SELECT enqueue('job')", "SELECT enqueue_many('job', '{null}')")
    ledger.values("SELECT pause('job')")
    for call in calls:
        ledger.values(call)
    assert ledger.statuses() == ["PENDING", "PENDING"]
    ledger.values("SELECT retire('job')")
    for call in calls:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="retired"):
            ledger.values(call)


def test_bad_input_is_refused_and_names_the_remedy(ledger: Ledger) -> None:
    ledger.job("plain", schedule=None)
    ledger.job("tenants", schedule=None, scope_kind="tenant")
    ledger.job("fixed", schedule=None, scope_kind="tenant", scopes=["a"])
    ledger.job("hosts", every=["role=web"])
    for job, push, error, names in BAD:
        with pytest.raises(error, match=names) as raised:
            enqueue(ledger, job, **push)
        assert raised.value.diag.message_hint
    assert ledger.values("SELECT FROM executions") == []


async def test_a_message_that_is_committed_after_the_retirement_is_cancelled(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule=None)
    with psycopg.connect(ledger.url) as open_:
        open_.execute("SELECT cronledger.enqueue('job')")
        ledger.values("SELECT retire('job')")  # waits for nothing
    assert ledger.statuses() == ["PENDING"]
    assert await one.settle() == []
    await one.repair()
    assert ledger.statuses() == ["CANCELLED"]


async def test_a_message_waits_until_it_is_due(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule=None)
    now = ledger.now()
    later = enqueue(ledger, due_at=now + timedelta(minutes=5))
    past = enqueue(ledger, due_at=now - timedelta(minutes=5))
    (start,) = await one.settle()
    assert start.claimed.id == past
    await one.finish(start)
    ledger.travel(by=timedelta(minutes=6))
    assert [start.claimed.id for start in await one.settle()] == [later]


@pytest.mark.long
def test_two_pushes_at_once_make_one(ledger: Ledger, db: Db, other: Db) -> None:
    ledger.job(schedule=None, scope_kind="tenant")  # the scope is new to both
    push = "SELECT cronledger.enqueue('job', 'acme', key => 'k', watermark => 1)"
    with db.transaction():
        db.execute(push)
        second = start_blocked(db, other, lambda: other.execute(push))
    second.result(90)
    assert ledger.statuses() == ["PENDING"]


def dirty(ledger: Ledger) -> bool:
    found: bool = ledger.one("SELECT is_dirty('job', 'acme')")
    return found


def test_status_of_one_scope_through_its_life(ledger: Ledger) -> None:
    ledger.job(handler="external", scope_kind="tenant")
    assert not dirty(ledger)  # it is not there yet
    first = enqueue(ledger, scope_id="acme", watermark=1)
    assert (ledger.one(STATUS), dirty(ledger)) == ((1, None, True, first, None), True)
    held = claimed(ledger, scope="acme")
    assert ledger.one(STATUS) == (1, None, True, None, first)
    second = enqueue(ledger, scope_id="acme", watermark=2)
    finish(ledger, held)
    assert (ledger.one(STATUS), dirty(ledger)) == ((2, 1, True, second, None), True)
    finish(ledger, claimed(ledger, scope="acme"))
    assert (ledger.one(STATUS), dirty(ledger)) == ((2, 2, False, None, None), False)


def test_a_group_is_followed_as_one_and_its_results_are_aggregated(ledger: Ledger) -> None:
    group = uuid4()
    ledger.job(handler="external", scope_kind="tenant", max_attempts=2, retry_backoff=["1 h"])
    enqueue(ledger, scope_id="else", group_id=uuid4())
    ids = {scope: enqueue(ledger, scope_id=scope, group_id=group) for scope in "abcd"}
    assert ledger.one(COUNTS, group) == (4, 4, 0, 0, 0, 0, 0, False)
    finish(ledger, claimed(ledger, scope="c"), {"n": 3})
    fail(ledger, claimed(ledger, scope="b"))
    claim = claimed(ledger, scope="a")
    assert ledger.one(COUNTS, group) == (4, 1, 1, 1, 1, 0, 0, False)
    finish(ledger, claim, {"n": 1})
    ledger.values("SELECT cancel(%s)", ids["d"])
    ledger.values("SELECT retry(%s)", ids["b"])
    fail(ledger, claimed(ledger, scope="b"))
    assert ledger.one(COUNTS, group) == (4, 0, 0, 0, 2, 1, 1, True)
    results = ledger.one("SELECT results FROM group_status(%s)", group)
    assert [
        (r["execution_id"], r["scope"], r["result"]) for r in results if r["status"] == "SUCCESS"
    ] == [(ids["a"], "a", {"n": 1}), (ids["c"], "c", {"n": 3})]
    assert ledger.one(COUNTS, uuid4()) == (0, 0, 0, 0, 0, 0, 0, False)
    enqueue(ledger, scope_id="a", key="k", group_id=group)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="another group"):
        enqueue(ledger, scope_id="a", key="k", group_id=uuid4())
