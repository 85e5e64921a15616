"""Run a peer, and print one line of JSON.

    python -m tests.bench.peers NAME DSN work CONCURRENCY ROWS
    python -m tests.bench.peers NAME DSN enqueue BATCH ROWS

The database is empty. `work` enqueues ROWS messages for a handler that does nothing, and measures
how they are executed. `enqueue` measures how they are enqueued, BATCH with each call. The line has
rows per second, and microseconds of CPU time for each row, of this process and of the server.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Coroutine
from importlib import import_module
from typing import Any

import psycopg

from tests.bench.peers.contract import Peer
from tests.bench.sample import Sample
from tests.bench.usage import Usage

LARGEST_BATCH = 1000


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("dsn")
    parser.add_argument("task", choices=("work", "enqueue"))
    parser.add_argument("size", type=int)
    parser.add_argument("rows", type=int)
    options = parser.parse_args()
    module = import_module(f"tests.bench.peers.{options.name}")
    run = getattr(module, "RUN", asyncio.run)
    with psycopg.connect(options.dsn, autocommit=True) as c:
        peer: Peer = module.PEER(options.dsn, c)
        run(peer.install())
        task: Coroutine[Any, Any, float]
        if options.task == "work":
            run(peer.enqueue(options.rows, LARGEST_BATCH))
            task = peer.work(options.size, options.rows)
        else:
            task = _timed_enqueue(peer, options.rows, options.size)
        c.execute("CHECKPOINT")
        before = Usage.until_now([os.getpid()], c)
        seconds = run(task)
        usage = Usage.until_now([os.getpid()], c).since(before)
    print(json.dumps(Sample.of(options.rows, seconds, usage).json()))


async def _timed_enqueue(peer: Peer, rows: int, batch: int) -> float:
    began = time.monotonic()
    await peer.enqueue(rows, batch)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
