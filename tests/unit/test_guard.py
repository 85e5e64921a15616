"""A handler's coroutines are resumed only while its lease is usable, and asyncio is as ever."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from time import monotonic
from typing import Any, cast

import pytest

from cronledger.engine.lease import Lease
from cronledger.engine.running.handlers.guard import (
    Guard,
    LeaseEndedError,
    guard_tasks,
    unguard_tasks,
)
from cronledger.process.stacks import tasks
from cronledger.rules.model import Handler as Kind
from cronledger.rules.model import Job

pytestmark = pytest.mark.usefixtures("guarded")

Handler = Callable[["Scene"], Awaitable[Any]]


class Scene:
    """One handler under a guard, as the executor has it, and the lines that it wrote."""

    def __init__(self, handler: Handler) -> None:
        job = Job(name="job", handler=Kind.PYTHON, stale_timeout=timedelta(seconds=600))
        self.lease = Lease(cast(Any, None), job, monotonic())
        self.lines: list[str] = []
        self.stops = 0
        self.guard = Guard(self.lease, self._stop)
        self.task = asyncio.ensure_future(self._run(handler))

    async def _run(self, handler: Handler) -> Any:
        with self.guard:
            return await self.guard.drive(handler(self))

    def _stop(self) -> bool:
        self.stops += 1
        if self.stops > 1:
            return False
        return self.task.cancel()

    def lapse(self) -> None:
        """The deadline passes, and the stop of it is not even queued."""
        self.lease.deadline = monotonic() - 1

    def line(self, text: str) -> None:
        self.lines.append(text)


async def lapsed(handler: Handler) -> Scene:
    """The scene of `handler`, which was cancelled because of its lease."""
    scene = Scene(handler)
    await asyncio.wait([scene.task], timeout=90)
    assert scene.task.cancelled()
    assert scene.stops >= 1
    return scene


# -- the handler itself -----------------------------------------------------------------------


async def test_a_handler_is_not_resumed_after_its_deadline() -> None:
    async def handler(scene: Scene) -> None:
        scene.line("began")
        scene.lapse()
        try:
            await asyncio.sleep(0)
            scene.line("went on")
        except asyncio.CancelledError:
            scene.line("cancelled")
            raise
        finally:
            await asyncio.sleep(0)  # cleaning up takes its time, and is cancelled once
            scene.line("cleaned up")

    assert (await lapsed(handler)).lines == ["began", "cancelled", "cleaned up"]


async def test_a_handler_does_not_begin_after_its_deadline() -> None:
    async def handler(scene: Scene) -> None:
        scene.line("began")

    scene = Scene(handler)
    scene.lapse()
    await asyncio.wait([scene.task])
    assert (scene.task.cancelled(), scene.lines) == (True, [])


async def test_a_sync_handler_does_not_begin_after_its_deadline() -> None:
    async def handler(scene: Scene) -> None:
        assert scene.guard.call(divmod, 7, 2) == (3, 1)
        scene.lapse()
        with pytest.raises(LeaseEndedError):
            scene.guard.call(scene.line, "began")

    scene = Scene(handler)
    await scene.task
    assert scene.lines == []


async def test_an_error_that_was_awaited_gives_way_to_the_cancellation() -> None:
    async def handler(scene: Scene) -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failed.set_exception, OSError("try again"))
        scene.lapse()
        try:
            await failed
        except OSError:
            scene.line("tries again")

    assert (await lapsed(handler)).lines == []


async def test_a_timeout_at_that_moment_does_not_swallow_the_cancellation() -> None:
    async def handler(scene: Scene) -> None:
        try:
            async with asyncio.timeout(0):
                scene.lapse()
                await asyncio.sleep(60)
        except TimeoutError:
            scene.line("tries again")

    assert (await lapsed(handler)).lines == []


async def test_a_cancellation_that_is_under_way_is_not_lost() -> None:
    """The queued stop came first: the guard neither repeats nor drops it."""

    async def handler(scene: Scene) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            scene.line("ended")

    scene = Scene(handler)
    await asyncio.sleep(0)
    scene.lapse()
    scene._stop()
    await asyncio.wait([scene.task])
    assert scene.task.cancelled()
    assert scene.task.cancelling() == 1
    assert scene.lines == ["ended"]


# -- the tasks that it started ----------------------------------------------------------------


async def test_no_task_of_a_handler_is_resumed_after_its_deadline() -> None:
    async def handler(scene: Scene) -> None:
        gate = asyncio.Event()

        async def one(name: str) -> None:
            await gate.wait()
            scene.line(f"{name} went on")

        def lapse() -> None:
            scene.lapse()
            gate.set()

        asyncio.get_running_loop().call_later(0.01, lapse)
        async with asyncio.TaskGroup() as group:
            for name in "ab":
                group.create_task(one(name))
        scene.line("the handler went on")

    assert (await lapsed(handler)).lines == []


async def test_a_cancelled_task_of_a_handler_cleans_up() -> None:
    async def handler(scene: Scene) -> None:
        async def helper() -> None:
            try:
                scene.lapse()
                await asyncio.sleep(0)
                scene.line("went on")
            finally:
                await asyncio.sleep(0)
                scene.line("cleaned up")

        async with asyncio.TaskGroup() as group:
            group.create_task(helper())

    assert (await lapsed(handler)).lines == ["cleaned up"]


async def test_shared_tasks_are_suspended_until_the_handler_ends() -> None:
    """The worker of a pool that a library opened in this handler serves the next one too."""
    started: list[asyncio.Task[str]] = []

    async def handler(scene: Scene) -> None:
        async def worker() -> str:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(failed.set_exception, OSError("reset"))
            try:
                await failed
            except OSError:
                scene.line("worker")
            return "served"

        started.append(asyncio.create_task(worker()))
        await asyncio.sleep(0)
        scene.lapse()
        try:
            await asyncio.sleep(0)
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            scene.line("handler ended")

    scene = await lapsed(handler)
    assert await asyncio.wait_for(started[0], 90) == "served"
    assert scene.lines == ["handler ended", "worker"]


async def test_after_its_end_nothing_of_a_handler_is_guarded() -> None:
    async def handler(scene: Scene) -> asyncio.Task[str]:
        async def left() -> str:
            await asyncio.sleep(0)
            scene.lapse()
            await asyncio.sleep(0)
            return "done"

        return asyncio.create_task(left())

    scene = Scene(handler)
    assert await (await scene.task) == "done"
    assert scene.stops == 0


# -- asyncio is as ever -----------------------------------------------------------------------

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("COLOUR", default="none")


class Custom:
    """Something that can be awaited and is no coroutine."""

    def __await__(self) -> Generator[Any, Any, str]:
        yield from asyncio.sleep(0).__await__()
        return "custom"


async def keeps_variables() -> tuple[str, str, str]:
    async def child() -> str:
        before = COLOUR.get()
        COLOUR.set("red")
        await asyncio.sleep(0)
        return before

    COLOUR.set("blue")
    inherited = await asyncio.create_task(child())
    fresh = contextvars.Context()
    other = await asyncio.get_running_loop().create_task(child(), context=fresh)
    return inherited, other, COLOUR.get()


async def cancels_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return f"{task.uncancel()} left"
    return "not cancelled"


@pytest.mark.parametrize("program", [keeps_variables, cancels_itself, Custom])
async def test_a_guarded_handler_does_what_it_would_do_alone(program: Callable[[], Any]) -> None:
    async def alone() -> Any:
        return await program()

    scene = Scene(lambda _: program())
    assert await scene.task == await asyncio.create_task(alone())
    assert scene.stops == 0


async def test_a_stack_shows_where_a_handler_waits() -> None:
    gate = asyncio.Event()

    async def deep() -> None:
        await gate.wait()

    async def handler(scene: Scene) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(deep(), name="helper")
            await deep()

    scene = Scene(handler)
    scene.task.set_name("handler")
    for _ in range(3):
        await asyncio.sleep(0)
    stacks = {x["task"]: " ".join(x["stack"]) for x in tasks(asyncio.get_running_loop())}
    assert "handler" in stacks["handler"]
    assert "deep" in stacks["handler"]
    assert "deep" in stacks["helper"]
    assert "deep" in repr(next(x for x in asyncio.all_tasks() if x.get_name() == "helper"))
    gate.set()
    await scene.task


async def test_another_task_factory_is_kept() -> None:
    loop = asyncio.get_running_loop()
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        made.append(work.__name__)
        return asyncio.Task(work, loop=loop, **options)

    unguard_tasks(loop)
    loop.set_task_factory(factory)
    guard_tasks(loop)
    guard_tasks(loop)  # a second replica in the same loop

    async def handler(scene: Scene) -> str:
        return await asyncio.create_task(asyncio.sleep(0, "done"))

    assert await Scene(handler).task == "done"
    assert made == ["_run", "sleep"]
    unguard_tasks(loop)
    unguard_tasks(loop)
    assert loop.get_task_factory() is cast(Any, factory)
    loop.set_task_factory(None)
    unguard_tasks(loop)  # nothing of ours is there
    guard_tasks(loop)


async def test_create_task_of_a_value_that_is_not_a_coroutine_is_refused() -> None:
    async def handler(scene: Scene) -> None:
        asyncio.get_running_loop().create_task(cast(Any, 5))

    with pytest.raises(TypeError, match="a coroutine was expected"):
        await Scene(handler).task
