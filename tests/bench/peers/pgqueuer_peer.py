"""PGQueuer with asyncpg or psycopg, and uvloop: durable tables, tuned like by `pgq autovac`.

Its `batch_size` is the concurrency. It limits how many jobs one fetch takes, not how many run.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

import asyncpg
import psycopg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, PsycopgDriver
from pgqueuer.models import Job, Schedule
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from tests.bench.firing import Calls, now
from tests.bench.peers.contract import PAYLOAD, Peer

T = TypeVar("T")
_WORKED = """
SELECT max(created) FILTER (WHERE status = 'successful')
     - min(created) FILTER (WHERE status = 'picked') FROM pgqueuer_log
"""


class PgQueuerPeer(Peer):
    """One worker, on a connection of its own, in the mode that ends when the queue is empty."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return uvloop.run(coroutine)

    @abstractmethod
    async def connect(self) -> Any:
        """Return the driver on a new connection."""

    async def install(self) -> None:
        async with await self.connect() as driver:
            queries = Queries(driver)
            await queries.install()
            await queries.optimize_autovacuum()

    async def enqueue(self, rows: int, batch: int) -> None:
        async with await self.connect() as driver:
            queries = Queries(driver)
            for first in range(0, rows, batch):
                size = min(batch, rows - first)
                await queries.enqueue(["fetch"] * size, [PAYLOAD.encode()] * size, [0] * size)

    async def work(self, concurrency: int, rows: int) -> float:
        async def fetch(job: Job) -> None:
            """Do nothing."""

        worker = PgQueuer(await self.connect())
        worker.entrypoint("fetch")(fetch)
        await worker.run(batch_size=concurrency, mode=QueueExecutionMode.drain)
        return self.seconds(_WORKED)

    async def fire(self, calls: Calls) -> None:
        firing = calls.firing

        async def fired(schedule: Schedule) -> None:
            # It does not tell the instant, so a call counts for the second in which it comes.
            calls.add(int(schedule.entrypoint), firing.first if firing.times == 1 else int(now()))

        scheduler = PgQueuer(await self.connect())
        for schedule in range(firing.schedules):
            scheduler.schedule(str(schedule), firing.cron())(fired)
        firing.require_ahead()
        await firing.wait_until_near()
        running = asyncio.create_task(scheduler.sm.run())
        await calls.complete()
        scheduler.sm.shutdown.set()
        await running


class AsyncpgPeer(PgQueuerPeer):
    """PGQueuer on an asyncpg connection."""

    async def connect(self) -> AsyncpgDriver:
        return AsyncpgDriver(await asyncpg.connect(self.dsn))


class PsycopgPeer(PgQueuerPeer):
    """PGQueuer on a psycopg connection."""

    async def connect(self) -> PsycopgDriver:
        return PsycopgDriver(await psycopg.AsyncConnection.connect(self.dsn, autocommit=True))
