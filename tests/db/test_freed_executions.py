"""The objects of an execution are freed when it ends, without a search for cycles of objects."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from cronledger import CancelToken, Context
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def no_search_for_cycles() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_ended_execution_leaves_no_cycle_of_objects(whole: Whole) -> None:
    tokens: list[weakref.ref[CancelToken]] = []

    async def asynchronous(ctx: Context) -> None:
        tokens.append(weakref.ref(ctx.cancel_token))
        await asyncio.sleep(0)
        print("printed")

    def synchronous(ctx: Context) -> None:
        tokens.append(weakref.ref(ctx.cancel_token))

    async def failing(ctx: Context) -> None:
        tokens.append(weakref.ref(ctx.cancel_token))
        raise ValueError("no")

    async def transactional(ctx: Context) -> None:
        tokens.append(weakref.ref(ctx.cancel_token))
        async with ctx.transaction() as connection:
            await connection.execute("SELECT")

    jobs = [whole.job(one) for one in (asynchronous, synchronous, failing, transactional)]
    async with whole.replica():
        for number, job in enumerate(jobs, 1):
            await whole.run(job)
            assert len(tokens) == number
            await eventually(f"the objects of {job} are freed", lambda: tokens[-1]() is None)
