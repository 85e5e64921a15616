"""Enqueueing messages by one connection: `enqueue_many`, `enqueue`, the floor and the peers."""

from collections.abc import Callable, Iterator
from functools import partial

from tests.bench import peer_processes
from tests.bench.bench import Bench
from tests.bench.floor import measure_floor
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.sample import Contestant, Sample, Samples, compete
from tests.bench.server import Server

MANY, ONE, FLOOR = "enqueue_many", "enqueue", "floor (INSERT)"
JOB = "messages"


def measure(bench: Bench) -> Samples:
    return compete(_contestants(bench), bench.form.repeats)


def _contestants(bench: Bench) -> Iterator[Contestant]:
    server, rows = bench.server, bench.form.enqueued
    yield MANY, partial(_timed, server, rows, Ledger.enqueue_many)
    yield ONE, partial(_timed, server, rows, Ledger.enqueue_each)
    yield FLOOR, lambda: _insert(server, rows)
    if bench.peers is not None:
        for peer in peer_processes.PEERS:
            yield peer.name, partial(peer_processes.enqueue, server, bench.peers, peer, rows)


def _insert(server: Server, rows: int) -> Sample:
    """Return the speed of the INSERT of the floor; what it uses is not known apart."""
    return Sample(rows / measure_floor(server, rows).insert_seconds, 0.0, 0.0, 0.0)


def _timed(server: Server, rows: int, enqueue: Callable[[Ledger, str, int], None]) -> Sample:
    """Enqueue in statements of 2,000 messages. They wait at the end, and `verify` accepts them."""
    with new_ledger(server) as ledger:
        ledger.declare(JOB, None)
        sample = ledger.timed(rows, lambda: enqueue(ledger, JOB, rows))
        made = ledger.one("SELECT count(*) AS made FROM cronledger.executions")["made"]
        if made != rows:
            raise RuntimeError(f"{rows} messages were to be enqueued: {made} were")
        return sample
