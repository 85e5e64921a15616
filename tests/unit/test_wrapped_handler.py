"""F41: middleware makes no outcome of a lease that has ended, even if nothing else noticed it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any, cast

import pytest

from cronledger import CancelToken, Context, LeaseLost
from cronledger.declaring.app import bind
from cronledger.engine.lease import Lease
from cronledger.engine.running.handlers.guard import Guard, LeaseEndedError
from cronledger.engine.running.handlers.python import PythonHandlers
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.engine.threads import Threads
from cronledger.rules.model import Handler, Job
from cronledger.testing import context

pytestmark = pytest.mark.usefixtures("guarded")

Lapse = Callable[[], None]


async def run(
    function: Callable[[Context, Lapse], Any],
    *middleware: Any,
    lapses: dict[str, Lapse] | None = None,
) -> None:
    """Run a handler that is given a way to let its lease end; `lapses` receives it."""
    job = Job(name="job", handler=Handler.PYTHON, stale_timeout=timedelta(seconds=600))
    lease = Lease(cast(Any, None), job, monotonic())
    stops: list[int] = []
    task = asyncio.current_task()
    assert task is not None

    def stop() -> bool:
        stops.append(1)
        return len(stops) == 1 and task.cancel()

    def lapse() -> None:
        lease.deadline = monotonic() - 1

    if lapses is not None:
        lapses["it"] = lapse

    def handler(ctx: Context) -> Any:
        return function(ctx, lapse)

    async def handler_async(ctx: Context) -> Any:
        return await function(ctx, lapse)

    chosen = handler_async if asyncio.iscoroutinefunction(function) else handler
    bound = replace(bind(chosen), middleware=middleware)
    threads = Threads("test")
    handlers = PythonHandlers({"f": bound}, threads, 1000)
    transaction = ExecutionTransaction(cast(Any, None), lease, CancelToken(), lambda: 0)
    try:
        await handlers.run_with(context(), transaction, "f", Guard(lease, stop))
    finally:
        threads.close()


def swallow(ctx: Context, call_next: Callable[[], Any]) -> Any:
    with suppress(BaseException):
        return call_next()
    return "swallowed"


async def swallow_async(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    with suppress(BaseException):
        return await call_next()
    return "swallowed"


def notices(ctx: Context, lapse: Lapse) -> None:
    lapse()
    raise LeaseLost("noticed by itself")


async def notices_async(ctx: Context, lapse: Lapse) -> None:
    notices(ctx, lapse)


@pytest.mark.parametrize(
    ("function", "middleware"),
    [(notices, (swallow,)), (notices_async, (swallow_async,))],
)
async def test_a_lost_lease_that_a_handler_noticed_is_not_swallowed(
    function: Callable[..., Any], middleware: tuple[Any, ...]
) -> None:
    with pytest.raises(LeaseEndedError):
        await run(function, *middleware)


async def test_a_lease_that_ends_during_middleware_starts_no_handler() -> None:
    lease_of: dict[str, Lapse] = {}
    began: list[str] = []

    def slow(ctx: Context, call_next: Callable[[], Any]) -> Any:
        lease_of["it"]()
        return call_next()

    def handler(ctx: Context, lapse: Lapse) -> None:
        began.append("began")

    with pytest.raises(LeaseEndedError):
        await run(handler, swallow, slow, lapses=lease_of)
    assert began == []


async def test_a_cancelled_task_stays_cancelled() -> None:
    async def waits(ctx: Context, lapse: Lapse) -> None:
        lapse()
        await asyncio.sleep(0)  # where the guard cancels it

    task = asyncio.ensure_future(run(waits, swallow_async))
    await asyncio.wait([task])
    assert task.cancelled()
