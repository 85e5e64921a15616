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


class Gate:
    """Holds the handlers until `rows` of them have been called, and it is opened."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.all_called = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        self._rows -= 1
        if self._rows == 0:
            self.all_called.set()
        await self.opened.wait()


class HeldExecutions:
    """A replica whose handlers wait at a gate, which is another one in each round."""

    def __init__(self, c: psycopg.Connection) -> None:
        self._c = c
        self._gate = Gate(0)

    async def handler(self) -> None:
        """What the executions run."""
        await self._gate.wait()

    async def blocks(self, replica: Replica) -> float:
        """Return the blocks of one execution, when 500 run. Afterwards none runs."""
        # A loop may keep the last executions until its next step: afterwards it keeps this one.
        await self._run(replica, 1)
        idle = _allocated()
        return (await self._run(replica, ROWS) - idle) / ROWS

    async def _run(self, replica: Replica, rows: int) -> int:
        """Return the blocks of the process while so many executions run."""
        self._gate = Gate(rows)
        await asyncio.to_thread(self._c.execute, ENQUEUE, [JOB, rows])
        await self._gate.all_called.wait()
        held = _allocated()
        self._gate.opened.set()
        await eventually("every execution of the round has ended", lambda: is_idle(replica))
        return held


def is_idle(replica: Replica) -> bool:
    """Return whether the replica has no execution, and no outcome that is not written yet."""
    state = replica.diagnostics()
    return not state.running and not state.unwritten


async def task_blocks() -> float:
    """Return the blocks of one task that waits."""
    gate, before = Gate(ROWS), _allocated()
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
        functions = {FUNCTION: held.handler}
        async with Replica(url=dsn, settings=settings, functions=functions) as replica:
            await held.blocks(replica)  # fills the caches
            executions = [await held.blocks(replica) for _ in range(ROUNDS)]
            tasks = [await task_blocks() for _ in range(ROUNDS)]
    return {"executions": executions, "tasks": tasks}


if __name__ == "__main__":
    # All slots are taken on purpose, and the replica warns of it.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(json.dumps(asyncio.run(_measure(sys.argv[1]))))
