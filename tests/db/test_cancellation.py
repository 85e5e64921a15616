"""F25: a cancelled execution stops its helpers: tasks by cancellation, threads by asking."""

import asyncio
import threading

from cronledger import Cancelled, CancelToken, Context
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually


async def test_helpers_of_a_cancelled_execution_stop(whole: Whole) -> None:
    said: list[str] = []
    inside = threading.Semaphore(0)

    async def task() -> None:
        inside.release()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            said.append("task")
            raise

    def thread(scope: CancelToken) -> None:
        inside.release()
        try:
            while True:
                scope.wait(0.01)
                scope.check()
        except Cancelled:
            said.append("thread")
            raise

    async def asynchronous(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(task())
            group.create_task(asyncio.to_thread(thread, ctx.cancel_token.child()))

    def synchronous(ctx: Context) -> None:
        thread(ctx.cancel_token.child())

    jobs = [whole.job(asynchronous), whole.job(synchronous)]
    async with whole.replica():
        for job, helpers in zip(jobs, (2, 1), strict=True):
            execution = await whole.trigger(job)
            for _ in range(helpers):
                await eventually("a helper runs", lambda: inside.acquire(blocking=False))
            assert whole.one("SELECT cronledger.cancel(%s)", execution) == "requested"
            assert (await whole.end(execution))["status"] == "CANCELLED"
        await eventually("all have stopped", lambda: len(said) == 3)
    assert sorted(said) == ["task", "thread", "thread"]
