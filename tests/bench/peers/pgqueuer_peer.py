"""PGQueuer with any driver: durable tables, tuned like by `pgq autovac`.

Its `batch_size` is the concurrency. It limits how many jobs one fetch takes, not how many run.
"""

from abc import abstractmethod
from typing import Any

from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from tests.bench.peers.contract import PAYLOAD, Peer

_WORKED = """
SELECT max(created) FILTER (WHERE status = 'successful')
     - min(created) FILTER (WHERE status = 'picked') FROM pgqueuer_log
"""


class PgQueuerPeer(Peer):
    """One worker in the mode that ends when the queue is empty."""

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
