"""Work is pushed at a job, and asked for by name, as a program of another language does it."""

from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from tests.db.support.engine import Ledger


def enqueue(ledger: Ledger, job: str = "job", **more: Any) -> int | None:
    return ledger.enqueue(job, **more)


class Claimed(NamedTuple):
    id: int
    token: UUID


def claimed(ledger: Ledger, job: str = "job", scope: str = "global") -> Claimed:
    """Won, retried or stolen by the worker `worker`."""
    ask = "SELECT execution_id, lease_token, answer FROM claim(%s, 'worker', %s)"
    (row,) = ledger.values(ask, job, scope)
    assert row[1] is not None, row
    return Claimed(row[0], row[1])


def answer(ledger: Ledger, job: str = "job", scope: str = "global") -> str:
    """What a claim by the worker `other` is answered."""
    found: str = ledger.one("SELECT answer FROM claim(%s, 'other', %s)", job, scope)
    return found


def fail(ledger: Ledger, claim: Claimed) -> None:
    ended = ledger.one("SELECT fail(%s, %s, 'boom', 'it broke')", claim.id, claim.token)
    assert ended == "ok"


def finish(ledger: Ledger, claim: Claimed, result: Any = None) -> None:
    given = None if result is None else Jsonb(result)
    assert ledger.one("SELECT finish(%s, %s, %s::jsonb)", claim.id, claim.token, given) == "ok"
