"""Enqueueing messages by one connection: `enqueue_many`, `enqueue`, the floor and the peers."""

import os
import time
from collections.abc import Iterator
from functools import partial

from tests.bench import peer_processes
from tests.bench.bench import Bench
from tests.bench.floor import measure_floor
from tests.bench.ledger import MESSAGES, Ledger, new_ledger
from tests.bench.sample import Contestant, Sample, Samples, compete
from tests.bench.server import Server
from tests.bench.usage import Usage

MANY, ONE, FLOOR = "enqueue_many", "enqueue", "floor (INSERT)"
JOB = "messages"


def measure(bench: Bench) -> Samples:
    """Return the samples of each contestant."""
    return compete(_contestants(bench), bench.form.repeats)


def _contestants(bench: Bench) -> Iterator[Contestant]:
    server, rows = bench.server, bench.form.enqueued
    yield MANY, lambda: _timed(server, rows, many=True)
    yield ONE, lambda: _timed(server, rows, many=False)
    yield FLOOR, lambda: _insert(server, rows)
    if bench.peers is not None:
        for peer in peer_processes.PEERS:
            yield peer.name, partial(peer_processes.enqueue, server, bench.peers, peer, rows)


def _insert(server: Server, rows: int) -> Sample:
    """Return the speed of the INSERT of the floor; what it uses is not known apart."""
    return Sample(rows / measure_floor(server, rows).insert_seconds, 0.0, 0.0, 0.0)


def _timed(server: Server, rows: int, *, many: bool) -> Sample:
    """Enqueue in statements of 2,000 messages. They wait at the end, and `verify` accepts them."""
    with new_ledger(server) as ledger:
        ledger.declare(JOB, None)
        ledger.settle()
        before, began = Usage.until_now([os.getpid()], ledger.connection), time.monotonic()
        if many:
            ledger.enqueue_many(JOB, rows)
        else:
            _enqueue_each(ledger, rows)
        seconds = time.monotonic() - began
        usage = Usage.until_now([os.getpid()], ledger.connection).since(before)
        made = ledger.one("SELECT count(*) AS made FROM cronledger.executions")["made"]
        if made != rows:
            raise RuntimeError(f"{rows} messages were to be enqueued: {made} were")
        return Sample.of(rows, seconds, usage)


def _enqueue_each(ledger: Ledger, rows: int) -> None:
    """Call `enqueue` once for each message, in statements of 2,000 calls."""
    for first in range(0, rows, MESSAGES):
        ledger.connection.execute(
            "SELECT count(cronledger.enqueue(%s, payload => %s)) FROM generate_series(1, %s)",
            [JOB, Ledger.PAYLOAD, min(MESSAGES, rows - first)],
        )
