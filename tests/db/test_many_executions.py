"""`retry_many` and `cancel_many`: the rules of `retry` and `cancel`, one row of the audit trail."""

from collections.abc import Iterator
from typing import Any

import pytest

from cronledger.client import Client
from tests.db.support.rows import Db, connected, execution, job, now, start_blocked, value

UNKNOWN_END = "the end of attempt 1 is unknown (stale_timeout), and job job is not reentrant"


def became(db: Db, name: str, ids: list[int], *, preview: bool = False) -> list[tuple[Any, ...]]:
    """What became of each execution: its id, the result and why it was left alone."""
    found = db.execute(
        f"SELECT * FROM cronledger.{name}(%s::bigint[], 'the disk was full', %s, 'ann')".encode(),
        (ids, preview),
    )
    return [(row["execution_id"], row["result"], row["detail"]) for row in found]


def audited(db: Db) -> list[Any]:
    return [
        (row["verb"], row["requested_by"], row["job_name"], row["execution_ids"], row["reason"],
         row["arguments"])
        for row in db.execute("SELECT * FROM cronledger.audit WHERE verb LIKE '%_many' ORDER BY id")
    ]  # fmt: skip


@pytest.fixture
def third(database_url: str) -> Iterator[Db]:
    with connected(database_url) as connection:
        yield connection


@pytest.fixture
def ids(db: Db) -> list[int]:
    """One FAILED, one that awaits a retry, one CANCELLED, a SUCCESS, and one of unknown end."""
    job(db, max_attempts=3)
    job(db, "other")
    made = [
        execution(db, "FAILED"),
        execution(db, "FAILED", next_attempt_at=now(db), attempt=1, max_attempts=3),
        execution(db, "CANCELLED", "other"), execution(db, "SUCCESS"),
        execution(db, "FAILED", error_code="stale_timeout"),
    ]  # fmt: skip
    return [row["id"] for row in made]


def test_many_executions_are_retried_as_one_action_F92(db: Db, ids: list[int]) -> None:
    expected = {
        ids[0]: ("retried", None), ids[1]: ("brought_forward", None), ids[2]: ("retried", None),
        ids[3]: ("left", "it is SUCCESS; only FAILED and CANCELLED executions can be retried"),
        ids[4]: ("left", UNKNOWN_END),
        4711: ("unknown", "it does not exist"),
    }  # fmt: skip
    preview = became(db, "retry_many", [*ids, 4711], preview=True)
    assert audited(db) == []
    done = became(db, "retry_many", [*ids, 4711])
    assert done == preview
    assert {number: (result, detail) for number, result, detail in done} == expected
    (row,) = audited(db)
    assert (*row[:3], sorted(row[3]), *row[4:]) == (
        "retry_many", "ann", None, ids[:3], "the disk was full", {"changed": 3, "left": 3},
    )  # fmt: skip
    due = "SELECT count(*) FROM cronledger.executions WHERE next_attempt_at <= cronledger.db_now()"
    assert value(db, due) == 3


def test_many_executions_are_cancelled_as_one_action_F92(db: Db, ids: list[int]) -> None:
    running = execution(db, "RUNNING", "other")["id"]
    asked = [*ids, running]
    expected = dict.fromkeys(ids, ("already_finished", "it is FAILED")) | {
        ids[1]: ("cancelled", None), ids[2]: ("already_finished", "it is CANCELLED"),
        ids[3]: ("already_finished", "it is SUCCESS"), running: ("requested", None),
    }  # fmt: skip
    preview = became(db, "cancel_many", asked, preview=True)
    done = became(db, "cancel_many", asked)
    assert done == preview
    assert {number: (result, detail) for number, result, detail in done} == expected
    (row,) = audited(db)
    assert (sorted(row[3]), row[5]) == ([ids[1], running], {"changed": 2, "left": 4})


def test_what_ends_during_a_retry_of_many_is_busy_F96(db: Db, other: Db, third: Db) -> None:
    job(db, overlap="allow")
    failed, running = execution(db, "FAILED")["id"], execution(db, "RUNNING")["id"]
    with other.transaction():
        other.execute("SELECT FROM cronledger.executions WHERE id = %s FOR UPDATE", [failed])
        retried = start_blocked(db, third, lambda: became(third, "retry_many", [failed, running]))
        db.execute(
            "UPDATE cronledger.executions SET status = 'FAILED', error_code = 'exception',"
            " finished_at = cronledger.db_now() WHERE id = %s", [running],
        )  # fmt: skip
    assert sorted(retried.result()) == [
        (failed, "retried", None), (running, "busy", "it ended at this moment"),
    ]  # fmt: skip


def test_two_retries_of_many_wait_for_each_other_F96(db: Db, other: Db, third: Db) -> None:
    """Each gives the executions one more attempt at most, in whatever order they name them."""
    job(db)
    job(db, "other")
    names = ("job", "other", "job", "other")
    ids = [execution(db, "FAILED", one, attempt=1, max_attempts=1)["id"] for one in names]
    with other.transaction():
        first = became(other, "retry_many", ids)
        second = start_blocked(db, third, lambda: became(third, "retry_many", ids[::-1]))
    assert {result for _, result, _ in first} == {"retried"}
    assert {result for _, result, _ in second.result()} == {"brought_forward"}
    assert value(db, "SELECT max(max_attempts - attempt) FROM cronledger.executions") == 1


def test_a_client_retries_and_cancels_many_executions_F96(
    db: Db, ids: list[int], database_url: str
) -> None:
    with Client(database_url, actor="ann") as client:
        preview = client.retry_many(ids, preview=True)
        done = client.retry_many(ids, "the disk was full")
        assert [one.changed for one in client.cancel_many(ids[:1])] == [True]
    assert preview == done
    assert [one.execution_id for one in done if one.changed] == ids[:3]
    assert {one.detail for one in done if one.execution_id == ids[4]} == {UNKNOWN_END}
    assert [(row[0], row[1], row[4]) for row in audited(db)] == [
        ("retry_many", "ann", "the disk was full"), ("cancel_many", "ann", None),
    ]  # fmt: skip
