"""APScheduler 4: one scheduler with the asyncio executor, asyncpg through SQLAlchemy.

It has no call that adds several jobs, so BATCH is ignored. One scheduler needs no event broker.
"""

import asyncio
import json
import time
from datetime import timedelta

from apscheduler import AsyncScheduler, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.firing import Calls
from tests.bench.peers.contract import PAYLOAD, Peer

TASK = "handler"
CONCURRENCY = 10_000


class ApschedulerPeer(Peer):
    """One scheduler, until it has executed every job."""

    def scheduler(self, concurrency: int) -> AsyncScheduler:
        engine = create_async_engine(self.dsn.replace("postgresql:", "postgresql+asyncpg:"))
        return AsyncScheduler(SQLAlchemyDataStore(engine), max_concurrent_jobs=concurrency)

    async def install(self) -> None:
        async with self.scheduler(1) as scheduler:
            await scheduler.configure_task(TASK, func=print, max_running_jobs=None)

    async def enqueue(self, rows: int, batch: int) -> None:
        async with self.scheduler(1) as scheduler:
            for _ in range(rows):
                await scheduler.add_job(TASK, kwargs=json.loads(PAYLOAD))

    async def work(self, concurrency: int, rows: int) -> float:
        calls: list[float] = []
        ended = asyncio.Event()

        async def handler(n: int) -> None:
            calls.append(time.monotonic())
            if len(calls) == rows:
                ended.set()

        async with self.scheduler(concurrency) as scheduler:
            await scheduler.configure_task(TASK, func=handler, max_running_jobs=None)
            await scheduler.start_in_background()
            await ended.wait()
        return calls[-1] - calls[0]

    async def fire(self, calls: Calls) -> None:
        async def handler(schedule: int) -> None:
            fire_time = current_job.get().scheduled_fire_time
            assert fire_time is not None
            calls.add(schedule, fire_time.timestamp())

        firing = calls.firing
        last = firing.at + timedelta(seconds=firing.times - 1)
        async with self.scheduler(CONCURRENCY) as scheduler:
            await scheduler.configure_task(TASK, func=handler, max_running_jobs=None)
            for schedule in range(firing.schedules):
                trigger = IntervalTrigger(seconds=1, start_time=firing.at, end_time=last)
                await scheduler.add_schedule(TASK, trigger, args=[schedule])
            firing.require_ahead()
            await scheduler.start_in_background()
            await calls.complete()
