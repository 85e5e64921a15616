"""The floor: the product's own INSERT and finish of the same rows by plain psycopg, and no more.

No planning, no handlers, no limits. What a statement costs here, no replica can save.
"""

import time
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import uuid4

from cronledger.ledger.rows import Ending, NewClaim
from cronledger.rules.model import ExecutionKey
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.plans import Sent, sent
from tests.bench.sample import Sample
from tests.bench.server import Server

BATCH = 500
SETTINGS = ("jit = off", "seq_page_cost = 1000", "plan_cache_mode = force_generic_plan")
"""As the transactions of a replica set them."""


class Floor(NamedTuple):
    """The sample of both statements, and the seconds of the INSERTs among them."""

    sample: Sample
    insert_seconds: float


def measure_floor(server: Server, rows: int) -> Floor:
    with new_ledger(server, verify=False) as ledger:
        return insert_and_finish(ledger, rows)


def insert_and_finish(ledger: Ledger, rows: int, batch: int = BATCH) -> Floor:
    """Insert and finish `rows` executions, `batch` with each statement.

    Raises RuntimeError if fewer were written.
    """
    start = ledger.one("SELECT cronledger.db_clock() - interval '1 s' AS start")["start"]
    batches = [_batch(start, at, min(batch, rows - at)) for at in range(0, rows, batch)]
    for setting in SETTINGS:
        ledger.connection.execute(f"SET {setting}".encode())
    written, insert_seconds = 0, 0.0

    def write() -> None:
        nonlocal written, insert_seconds
        for insert, finish in batches:
            inserting = time.monotonic()
            written += _execute(ledger, insert)
            insert_seconds += time.monotonic() - inserting
            written += _execute(ledger, finish)

    sample = ledger.timed(rows, write)
    if written != 2 * rows:
        raise RuntimeError(f"{rows} rows were to be inserted and finished: {written} writes")
    return Floor(sample, insert_seconds)


def _execute(ledger: Ledger, statement: Sent) -> int:
    with ledger.connection.transaction():
        return ledger.connection.execute(statement.text.encode(), statement.params).rowcount


def _batch(start: datetime, first: int, rows: int) -> tuple[Sent, Sent]:
    """Return what a claim and a finish of so many executions send.

    Their plan_times are microseconds after `start`, and all of them are due.
    """
    instants = [start + timedelta(microseconds=1 + first + i) for i in range(rows)]
    leases = [(ExecutionKey("bare", "global", "global", at), uuid4()) for at in instants]
    new = [
        NewClaim(key, 1, "default", key.plan_time, None, 1, token, timedelta(seconds=60), None)
        for key, token in leases
    ]
    ends = [
        Ending(key, token, "SUCCESS", None, None, None, None, None, 0, None)
        for key, token in leases
    ]
    return (
        sent(lambda s, c: s.try_claim_new(c, "bare", new)),
        sent(lambda s, c: s.finish_executions(c, ends)),
    )
