"""How many blocks of memory Python allocates for each execution that runs in a replica.

    python -m tests.bench.held_blocks DSN

The replica is in this process. Its handlers wait until all 500 have been called; then the blocks
are counted, and compared with those before. An asyncio task that waits for the same event is the
floor. Prints one line of JSON: a list of blocks for each execution, and one for each task.
"""

import asyncio
import gc
import json
import logging
import sys

import psycopg
import structlog

from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.bench.runner import FUNCTION
from tests.waiting import eventually

ROWS = 500
ROUNDS = 5
JOB = "held"

ENQUEUE = "SELECT cronledger.enqueue_many(%s, array_fill('{}'::jsonb, ARRAY[%s]))"
DONE = """
SELECT NOT EXISTS (SELECT FROM cronledger.executions
                   WHERE status = 'RUNNING' OR next_attempt_at IS NOT NULL)
"""


class Gate:
    """Holds the handlers until all of a round have been called."""

    def __init__(self) -> None:
        self._called = 0
        self.all_called = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        self._called += 1
        if self._called == ROWS:
            self.all_called.set()
        await self.opened.wait()


class HeldExecutions:
    """A replica whose handlers wait at a gate, which is another one in each round."""

    def __init__(self, c: psycopg.Connection) -> None:
        self._c = c
        self._gate = Gate()

    async def handler(self) -> None:
        """What the executions run."""
        await self._gate.wait()

    async def blocks(self) -> float:
        """Return the blocks of one execution, when 500 run."""
        self._gate = Gate()
        before = _allocated()
        await asyncio.to_thread(self._c.execute, ENQUEUE, [JOB, ROWS])
        await self._gate.all_called.wait()
        held = _allocated() - before
        self._gate.opened.set()
        await eventually("every execution of the round ends", self._is_done)
        return held / ROWS

    def _is_done(self) -> bool:
        row = self._c.execute(DONE).fetchone()
        assert row is not None
        return bool(row[0])


async def task_blocks() -> float:
    """Return the blocks of one task that waits."""
    gate, before = Gate(), _allocated()
    tasks = [asyncio.create_task(gate.wait()) for _ in range(ROWS)]
    await gate.all_called.wait()
    held = _allocated() - before
    gate.opened.set()
    await asyncio.gather(*tasks)
    return held / ROWS


def _allocated() -> int:
    gc.collect()
    return sys.getallocatedblocks()


async def _measure(dsn: str) -> dict[str, list[float]]:
    with psycopg.connect(dsn, autocommit=True) as c:
        held = HeldExecutions(c)
        settings = Settings(slots=ROWS, queues=("default",))
        async with Replica(url=dsn, settings=settings, functions={FUNCTION: held.handler}):
            await held.blocks()  # fills the caches
            executions = [await held.blocks() for _ in range(ROUNDS)]
            tasks = [await task_blocks() for _ in range(ROUNDS)]
    return {"executions": executions, "tasks": tasks}


if __name__ == "__main__":
    # All slots are taken on purpose, and the replica warns of it.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(json.dumps(asyncio.run(_measure(sys.argv[1]))))
