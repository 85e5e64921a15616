"""F41: middleware wraps handlers, sees their outcomes and changes them, and loses no lease."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from cronledger import App, Context, Discard, Middleware, Retry
from tests.db.support.whole_replica import Whole
from tests.db.test_handler_transaction import WRITE, done
from tests.waiting import eventually

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


def turn(error: ValueError, ctx: Context) -> Any:
    """What the middleware of these tests makes of the errors of handlers."""
    match str(error):
        case "busy":
            raise Retry(after=0, message="busy") from error
        case "gone":
            raise Discard("gone", "there is nothing to do") from error
        case "known":
            return "the middleware's"
        case _:
            raise RuntimeError("the middleware's own") from error


def turning(ctx: Context, call_next: Next) -> Any:
    try:
        return call_next()
    except ValueError as error:
        return turn(error, ctx)


async def turning_async(ctx: Context, call_next: AsyncNext) -> Any:
    try:
        return await call_next()
    except ValueError as error:
        return turn(error, ctx)


def fails(ctx: Context, payload: str) -> str:
    if ctx.attempt == 2:
        return "the handler's"
    raise ValueError(payload)


async def fails_async(ctx: Context, payload: str) -> str:
    return fails(ctx, payload)


@pytest.mark.long
async def test_an_exception_becomes_a_retry_a_discard_a_result_or_another_exception(
    whole: Whole,
) -> None:
    whole.app = App(middleware=[Middleware(sync=turning, asynchronous=turning_async)])
    jobs = [whole.job(f, max_attempts=2, retry_backoff=["0s"]) for f in (fails, fails_async)]
    async with whole.replica():
        found = [{x: await whole.run(job, x) for x in ("busy", "gone", "known")} for job in jobs]
        error = await whole.run("fails", "other")
        invalid = await whole.run("fails", ["not", "text"])
    for rows in found:
        assert (rows["busy"]["status"], rows["busy"]["result"]) == ("SUCCESS", "the handler's")
        (first,) = rows["busy"]["attempts"]
        assert first["error_code"] == "retry_requested"
        assert (rows["gone"]["status"], rows["gone"]["error_code"]) == ("FAILED", "gone")
        assert rows["gone"]["attempt"] == 1
        assert (rows["known"]["status"], rows["known"]["result"]) == ("SUCCESS", "the middleware's")
    assert error["attempts"][0]["error_code"] == "handler_error"
    assert error["attempts"][0]["error_msg"].startswith("RuntimeError: the middleware's own")
    assert "ValueError: other" in error["attempts"][0]["error_msg"]
    assert invalid["error_code"] == "payload_invalid"  # pydantic's is a ValueError, not seen here


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
        rows = [await whole.run(job) for job in jobs]
    assert (written["status"], written["result"]) == ("SUCCESS", "written")
    assert [(row["status"], row["result"]) for row in rows] == [("SUCCESS", "swallowed")] * 3
    assert done(whole) == ["committed"]


@pytest.mark.long
async def test_middleware_that_swallows_everything_makes_no_success_of_a_stop(whole: Whole) -> None:
    """A lost lease is one of `tests/unit/test_wrapped_handler.py`."""
    began: list[int] = []

    async def asynchronous(ctx: Context) -> None:
        began.append(ctx.execution_id)
        await asyncio.sleep(600)

    def synchronous(ctx: Context) -> None:
        began.append(ctx.execution_id)
        ctx.cancel_token.wait()
        ctx.cancel_token.check()

    whole.app = App(middleware=[Middleware(sync=swallow, asynchronous=swallow_async)])
    for function in (asynchronous, synchronous):
        function.__qualname__ = function.__name__
        whole.app.job(name=function.__name__)(function)
        whole.app.job(name=f"{function.__name__} for 1s", run_timeout="1s")(function)
    async with whole.replica():
        made = {name: await whole.trigger(name) for name in whole.app.jobs}
        cancelled = [made["asynchronous"], made["synchronous"]]
        await eventually("they run", lambda: {*cancelled} <= {*began})
        for execution in cancelled:
            whole.rows("SELECT cronledger.cancel(%s)", execution)
        rows = [await whole.end(execution) for execution in made.values()]
    ends = {(row["status"], row["error_code"]) for row in rows if row["id"] in cancelled}
    assert ends == {("CANCELLED", "cancelled")}
    late = {(row["status"], row["error_code"]) for row in rows if row["id"] not in cancelled}
    assert late == {("FAILED", "timeout")}


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
