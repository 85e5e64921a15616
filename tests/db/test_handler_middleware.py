"""F41: middleware wraps handlers, sees their outcomes and changes them, and loses no lease."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from cronledger import App, Context, Middleware
from tests.db.support.whole_replica import Whole
from tests.db.test_handler_transaction import WRITE, done

Next = Callable[[], Any]
AsyncNext = Callable[[], Awaitable[Any]]


@pytest.fixture
def whole(whole: Whole) -> Whole:
    whole.rows("CREATE TABLE done (what text)")
    return whole


@pytest.mark.long
async def test_the_apps_is_outside_and_the_jobs_inside_in_one_thread(whole: Whole) -> None:
    steps: list[tuple[str, str, int]] = []

    def note(what: str, ctx: Context) -> None:
        steps.append((what, ctx.job, threading.get_ident()))

    def outer(ctx: Context, call_next: Next) -> Any:
        note("outer", ctx)
        return [*call_next(), "outer"]

    async def outer_async(ctx: Context, call_next: AsyncNext) -> Any:
        note("outer", ctx)
        return [*await call_next(), "outer"]

    def inner(ctx: Context, call_next: Next) -> Any:
        note("inner", ctx)
        return [*call_next(), "inner"]

    def sync(ctx: Context) -> list[str]:
        note("handler", ctx)
        return ["sync"]

    async def asynchronous(ctx: Context) -> list[str]:
        note("handler", ctx)
        return ["async"]

    whole.app = App(middleware=[Middleware(sync=outer, asynchronous=outer_async)])
    whole.job(sync, middleware=[inner])
    whole.job(asynchronous)
    async with whole.replica():
        rows = [await whole.run("sync"), await whole.run("asynchronous")]
    assert [row["result"] for row in rows] == [["sync", "inner", "outer"], ["async", "outer"]]
    in_thread = [(what, thread) for what, job, thread in steps if job == "sync"]
    assert [what for what, _ in in_thread] == ["outer", "inner", "handler"]
    (thread,) = {thread for _, thread in in_thread}
    assert thread != threading.get_ident()
    assert {thread for _, job, thread in steps if job != "sync"} == {threading.get_ident()}


def swallow(ctx: Context, call_next: Next) -> Any:
    with suppress(BaseException):
        return call_next()
    return "swallowed"


async def swallow_async(ctx: Context, call_next: AsyncNext) -> Any:
    with suppress(BaseException):
        return await call_next()
    return "swallowed"


@pytest.mark.long
async def test_the_transaction_commits_with_the_success_and_is_of_the_handler(whole: Whole) -> None:
    async def breaks(ctx: Context, call_next: AsyncNext) -> Any:
        await call_next()
        raise ValueError("after the handler")

    async def writes(ctx: Context, payload: str) -> str:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, [payload])
        return "written"

    async def writes_and_raises(ctx: Context) -> None:
        await writes(ctx, "never")
        raise ValueError("after the block")

    def writes_and_raises_sync(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
        raise ValueError("after the block")

    async def writes_in_vain(ctx: Context) -> None:
        await writes(ctx, "never")

    whole.app = App(middleware=[Middleware(sync=swallow, asynchronous=swallow_async)])
    jobs = [whole.job(f) for f in (writes_and_raises, writes_and_raises_sync)]
    jobs.append(whole.job(writes_in_vain, middleware=[breaks]))
    whole.job(writes)
    async with whole.replica():
        written = await whole.run("writes", "committed")
        invalid = await whole.run("writes", ["not", "text"])
        rows = [await whole.run(job) for job in jobs]
    assert (written["status"], written["result"]) == ("SUCCESS", "written")
    assert invalid["error_code"] == "payload_invalid"  # which middleware does not see
    assert [(row["status"], row["result"]) for row in rows] == [("SUCCESS", "swallowed")] * 3
    assert done(whole) == ["committed"]


async def test_a_timeout_of_the_middleware_is_its_own_and_a_def_returns_no_awaitable(
    whole: Whole,
) -> None:
    async def impatient(ctx: Context, call_next: AsyncNext) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await call_next()
        except TimeoutError:
            return "took too long"

    def passes_on(ctx: Context, call_next: Next) -> Any:
        return call_next()

    async def sleeps() -> None:
        await asyncio.sleep(600)

    async def inner() -> str:
        return "never"

    def writes(ctx: Context) -> Awaitable[str]:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
        return inner()

    whole.job(sleeps, middleware=[impatient])
    whole.job(writes, middleware=[passes_on])
    async with whole.replica():
        late, refused = await whole.run("sleeps"), await whole.run("writes")
    assert (late["status"], late["result"]) == ("SUCCESS", "took too long")
    assert refused["error_code"] == "handler_error"
    assert "declare the handler as an `async def`" in refused["error_msg"]
    assert done(whole) == []
