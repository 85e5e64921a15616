"""F41: middleware wraps handlers, sees their outcomes and changes them, and loses no lease."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from cronledger import App, Context, Discard, Middleware, Retry
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

Next = Callable[[], Any]
AsyncNext = Callable[[], Awaitable[Any]]
WRITE = "INSERT INTO done VALUES (%s)"
STEAL = (
    "UPDATE cronledger.executions SET lease_token = gen_random_uuid(), runner_id = 'thief',"
    " stale_after = now() + '1 day' WHERE id = %s"
)


@pytest.fixture
def whole(whole: Whole) -> Whole:
    whole.rows("CREATE TABLE done (what text)")
    return whole


def done(whole: Whole) -> list[str]:
    return [row["what"] for row in whole.rows("SELECT what FROM done ORDER BY 1")]


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


@pytest.mark.parametrize("function", [fails, fails_async], ids=["sync", "async"])
async def test_an_exception_becomes_a_retry_a_discard_a_result_or_another_exception(
    whole: Whole, function: Callable[..., Any]
) -> None:
    whole.app = App(middleware=[Middleware(sync=turning, asynchronous=turning_async)])
    job = whole.job(function, max_attempts=2)
    async with whole.replica():
        rows = {x: await whole.run(job, x) for x in ("busy", "gone", "known")}
    assert (rows["busy"]["status"], rows["busy"]["result"]) == ("SUCCESS", "the handler's")
    (first,) = rows["busy"]["attempts"]
    assert first["error_code"] == "retry_requested"
    assert (rows["gone"]["status"], rows["gone"]["error_code"]) == ("FAILED", "gone")
    assert rows["gone"]["attempt"] == 1
    assert (rows["known"]["status"], rows["known"]["result"]) == ("SUCCESS", "the middleware's")


async def test_an_error_of_the_middleware_fails_the_attempt(whole: Whole) -> None:
    whole.app = App(middleware=[turning])
    job = whole.job(fails)
    async with whole.replica():
        row = await whole.run(job, "other")
        invalid = await whole.run(job, ["not", "text"])
    assert (row["status"], row["error_code"]) == ("FAILED", "handler_error")
    assert row["error_msg"].startswith("RuntimeError: the middleware's own")
    assert "ValueError: other" in row["error_msg"]
    assert invalid["error_code"] == "payload_invalid"  # pydantic's is a ValueError, not seen here


async def test_the_transaction_commits_with_the_success_and_is_of_the_handler(
    whole: Whole,
) -> None:
    async def keeps(ctx: Context, call_next: AsyncNext) -> Any:
        with suppress(ValueError):
            return await call_next()
        return "hidden"

    def keeps_sync(ctx: Context, call_next: Next) -> Any:
        with suppress(ValueError):
            return call_next()
        return "hidden"

    async def breaks(ctx: Context, call_next: AsyncNext) -> Any:
        await call_next()
        raise ValueError("after the handler")

    async def writes(ctx: Context) -> str:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["committed"])
        return "written"

    async def writes_and_raises(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])
        raise ValueError("after the block")

    def writes_and_raises_sync(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
        raise ValueError("after the block")

    async def writes_in_vain(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])

    whole.app = App(middleware=[Middleware(sync=keeps_sync, asynchronous=keeps)])
    jobs = [whole.job(f) for f in (writes, writes_and_raises, writes_and_raises_sync)]
    whole.app.job(name="in_vain", middleware=[breaks])(writes_in_vain)
    async with whole.replica():
        rows = [await whole.run(job) for job in [*jobs, "in_vain"]]
    assert [row["status"] for row in rows] == ["SUCCESS"] * 4
    assert [row["result"] for row in rows] == ["written", *["hidden"] * 3]
    assert done(whole) == ["committed"]


def swallow(ctx: Context, call_next: Next) -> Any:
    with suppress(BaseException):
        return call_next()
    return "swallowed"


async def swallow_async(ctx: Context, call_next: AsyncNext) -> Any:
    with suppress(BaseException):
        return await call_next()
    return "swallowed"


@pytest.mark.parametrize("how", ["lease", "cancel", "timeout"])
async def test_middleware_that_swallows_everything_makes_no_success_of_a_stop(
    whole: Whole, how: str
) -> None:
    began: list[int] = []
    stolen = threading.Event()

    async def asynchronous(ctx: Context) -> None:
        began.append(ctx.execution_id)
        await asyncio.sleep(600)

    def synchronous(ctx: Context) -> None:
        began.append(ctx.execution_id)
        ctx.cancel_token.wait()
        ctx.cancel_token.check()

    def at_once(ctx: Context) -> None:  # before the runner knows that the lease is lost
        began.append(ctx.execution_id)
        stolen.wait(90)
        ctx.cancel_token.wait()
        ctx.check_lease()

    whole.app = App(middleware=[Middleware(sync=swallow, asynchronous=swallow_async)])
    policies = {"run_timeout": "200ms"} if how == "timeout" else {"stale_timeout": "15s"}
    jobs = [whole.job(f, **policies) for f in (asynchronous, synchronous, at_once)]
    async with whole.replica():
        executions = [await whole.trigger(job) for job in jobs]
        if how == "cancel":
            await eventually("they run", lambda: len(began) == 3)
            for execution in executions:
                whole.rows("SELECT cronledger.cancel(%s)", execution)
        if how == "lease":
            await eventually("they run", lambda: len(began) == 3)
            for execution in executions:
                whole.rows(STEAL, execution)
        stolen.set()
        if how != "lease":
            rows = [await whole.end(execution) for execution in executions]
    if how == "lease":
        rows = [whole.get(execution) for execution in executions]
    expected = {
        "lease": ("RUNNING", None),  # the thief's
        "cancel": ("CANCELLED", "cancelled"),
        "timeout": ("FAILED", "timeout"),
    }
    assert [(row["status"], row["error_code"]) for row in rows] == [expected[how]] * 3


async def test_a_timeout_of_the_middleware_is_its_own(whole: Whole) -> None:
    async def impatient(ctx: Context, call_next: AsyncNext) -> Any:
        try:
            async with asyncio.timeout(0.01):
                return await call_next()
        except TimeoutError:
            return "took too long"

    async def sleeps() -> None:
        await asyncio.sleep(600)

    job = whole.job(sleeps, middleware=[impatient])
    async with whole.replica():
        row = await whole.run(job)
    assert (row["status"], row["result"]) == ("SUCCESS", "took too long")


async def test_a_def_that_returns_an_awaitable_has_no_middleware(whole: Whole) -> None:
    async def inner() -> str:
        return "never"

    def outer() -> Awaitable[str]:
        return inner()

    whole.app = App(middleware=[swallow_nothing])
    job = whole.job(outer)
    async with whole.replica():
        row = await whole.run(job)
    assert row["error_code"] == "handler_error"
    assert "declare the handler as an `async def`" in row["error_msg"]


async def test_the_writes_of_a_def_that_returns_an_awaitable_are_rolled_back(
    whole: Whole,
) -> None:
    async def inner() -> str:
        return "never"

    def outer(ctx: Context) -> Awaitable[str]:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
        return inner()

    job = whole.job(outer, middleware=[swallow])
    async with whole.replica():
        row = await whole.run(job)
    assert (row["status"], row["result"]) == ("SUCCESS", "swallowed")
    assert done(whole) == []


def swallow_nothing(ctx: Context, call_next: Next) -> Any:
    return call_next()
