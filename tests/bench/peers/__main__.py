"""Run a peer, and print one line of JSON.

    python -m tests.bench.peers MODULE:CLASS DSN work CONCURRENCY ROWS
    python -m tests.bench.peers MODULE:CLASS DSN enqueue BATCH ROWS
    python -m tests.bench.peers MODULE:CLASS DSN fire SCHEDULES TIMES FIRST

The database is empty. `work` enqueues ROWS messages for a handler that does nothing, and measures
how they are executed. `enqueue` measures how they are enqueued, BATCH with each call. The line has
rows per second, and microseconds of CPU time for each row, of this process and of the server.

`fire` prints an `Outcome` of tests/bench/firing.py: each of SCHEDULES is due at FIRST (seconds
since the epoch, a whole minute) and at each second after it, TIMES times.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import psycopg

from tests.bench.firing import Calls, Firing
from tests.bench.peers.contract import Peer, Scheduler
from tests.bench.sample import Sample
from tests.bench.usage import Usage

LARGEST_BATCH = 1000


def main() -> None:
    program, dsn, task, *numbers = sys.argv[1:]
    module, _, name = program.partition(":")
    with psycopg.connect(dsn, autocommit=True) as c:
        peer = getattr(import_module(f"tests.bench.peers.{module}"), name)(dsn, c)
        peer.run(peer.install())
        print(json.dumps(TASKS[task](peer, *map(int, numbers))))


def _work(peer: Peer, concurrency: int, rows: int) -> dict[str, float]:
    peer.run(peer.enqueue(rows, LARGEST_BATCH))
    return _sample(peer, peer.work(concurrency, rows), rows)


def _enqueue(peer: Peer, batch: int, rows: int) -> dict[str, float]:
    async def seconds() -> float:
        began = time.monotonic()
        await peer.enqueue(rows, batch)
        return time.monotonic() - began

    return _sample(peer, seconds(), rows)


def _fire(peer: Scheduler, schedules: int, times: int, first: int) -> dict[str, float]:
    calls = Calls(Firing(schedules, times, first))
    peer.run(peer.fire(calls))
    return calls.outcome()._asdict()


def _sample(peer: Peer, task: Coroutine[Any, Any, float], rows: int) -> dict[str, float]:
    """Return the sample of a task that returns its seconds."""
    peer.c.execute("CHECKPOINT")
    before = Usage.until_now([os.getpid()], peer.c)
    seconds = peer.run(task)
    return Sample.of(rows, seconds, Usage.until_now([os.getpid()], peer.c).since(before)).json()


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "work": _work, "enqueue": _enqueue, "fire": _fire,
}  # fmt: skip

if __name__ == "__main__":
    main()
