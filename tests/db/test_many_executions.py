"""`retry_many` and `cancel_many`: the rules of `retry` and `cancel`, one row of the audit trail."""

from typing import Any

import pytest
from psycopg import errors

from tests.db.support.rows import Db, execution, job, now, value

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


@pytest.mark.parametrize("name", ["retry_many", "cancel_many"])
def test_an_action_on_too_many_executions_is_refused_F92(db: Db, name: str) -> None:
    for given, message in (
        ([], "execution_ids has 0 elements"),
        ([1, None], "execution_ids has NULL among its elements"),
        (list(range(1001)), "execution_ids has 1001 elements"),
    ):
        with pytest.raises(errors.InvalidParameterValue, match=message):
            became(db, name, given)  # type: ignore[arg-type]
