"""Procrastinate: one worker, and a pool of as many connections as its handlers can use at once."""

import asyncio
import contextlib
import json

from procrastinate import App, PsycopgConnector

from tests.bench.firing import Calls
from tests.bench.peers.contract import PAYLOAD, Peer

MOST_CONNECTIONS = 20
"""For short jobs the documentation recommends a connection for each concurrent job. More than
these, on a server of two cores, only wait for each other."""

_WORKED = """
SELECT max(at) FILTER (WHERE type = 'succeeded') - min(at) FILTER (WHERE type = 'started')
FROM procrastinate_events
"""


async def handler(n: int) -> None:
    """Do nothing."""


class ProcrastinatePeer(Peer):
    """One worker that ends when the queue is empty."""

    def app(self, connections: int = 4) -> App:
        """Return an App with one task and a pool of so many connections."""
        pool = {"conninfo": self.dsn, "min_size": connections, "max_size": connections}
        app = App(connector=PsycopgConnector(**pool))
        app.task(name="handler")(handler)
        return app

    async def install(self) -> None:
        app = self.app()
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def enqueue(self, rows: int, batch: int) -> None:
        app = self.app()
        async with app.open_async():
            for first in range(0, rows, batch):
                messages = [json.loads(PAYLOAD)] * min(batch, rows - first)
                await app.configure_task("handler").batch_defer_async(*messages)

    async def work(self, concurrency: int, rows: int) -> float:
        app = self.app(min(concurrency, MOST_CONNECTIONS) + 1)
        async with app.open_async():
            await app.run_worker_async(
                concurrency=concurrency, wait=False, install_signal_handlers=False
            )
        return self.seconds(_WORKED)

    async def fire(self, calls: Calls) -> None:
        async def fired(timestamp: int, schedule: int) -> None:
            calls.add(schedule, timestamp)

        app = self.app(MOST_CONNECTIONS + 1)
        task = app.task(name="fired")(fired)
        for schedule in range(calls.firing.schedules):
            app.periodic(
                cron=calls.firing.cron(), periodic_id=str(schedule),
                task_kwargs={"schedule": schedule},
            )(task)  # fmt: skip
        calls.firing.require_ahead()
        await calls.firing.wait_until_near()
        async with app.open_async():
            worker = asyncio.create_task(
                app.run_worker_async(concurrency=MOST_CONNECTIONS, install_signal_handlers=False)
            )
            await calls.complete()
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
