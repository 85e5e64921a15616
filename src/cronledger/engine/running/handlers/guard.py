"""Resumes a handler's coroutines only while its lease is usable.

After a process had no CPU for a while, the queue of its event loop contains everything that became
ready meanwhile. The request to stop a handler is at the end of that queue. So the lease is checked
at each resumption, before any line of the handler runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

from cronledger.declaring.app import Cancelled, LeaseLost
from cronledger.engine.lease import Lease

T = TypeVar("T")

_GUARD: ContextVar["Guard | None"] = ContextVar("cronledger_guard", default=None)


class LeaseEndedError(Exception):
    """The lease ended before the handler did, or before it began.

    `output`: the tail of the handler's output.
    """

    def __init__(self, output: str | None = None) -> None:
        super().__init__("the lease ended before the work did")
        self.output = output


class Guard:
    """Guards the coroutines of one handler while the `with` block lasts, in the loop's thread.

    `stop` requests the end of the handler because its lease is lost, and cancels its task. It
    returns False if the end was already requested.

    Tasks that the handler starts are guarded too. They are not cancelled, because some may belong
    to a library and outlive the handler. They are held back until the handler, which is being
    cancelled, has cancelled them or has ended.
    """

    def __init__(self, lease: Lease, stop: Callable[[], bool]) -> None:
        self._lease = lease
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._held_back: set[asyncio.Future[None]] = set()
        self._token: Token[Guard | None] | None = None

    def __enter__(self) -> "Guard":
        self._token = _GUARD.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._token is not None
        _GUARD.reset(self._token)
        self._over = True
        for waiting in self._held_back:
            if not waiting.done():
                waiting.set_result(None)

    def call(self, function: Callable[..., T], *given: Any) -> T:
        """Call `function`, in any thread. Raises LeaseEndedError if the lease is not usable."""
        if not self._lease.usable:
            raise LeaseEndedError
        return function(*given)

    def drive(self, work: Awaitable[T]) -> "Coroutine[Any, Any, T]":
        """Return `work` as a coroutine for the handler's own task to await."""
        return _Main(self, work if asyncio.iscoroutine(work) else _awaited(work))

    def covers(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether tasks that are started on `loop` now belong to the running handler."""
        return not self._over and loop is self._loop

    def lapsed(self) -> bool:
        """Return whether the handler runs although its lease is not usable any more."""
        return not self._over and not self._lease.usable

    def ended_by(self, error: BaseException) -> bool:
        """Return whether the handler raised `error` because it noticed that its lease had ended."""
        return isinstance(error, Cancelled | LeaseLost) and self.lapsed()

    def stop(self) -> bool:
        """Request the end of the handler. Return False if it was already requested."""
        return self._stop()

    def hold_back(self) -> "asyncio.Future[None]":
        """Return a future that is done once the handler has ended."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._held_back.add(waiting)
        waiting.add_done_callback(self._held_back.discard)
        return waiting


async def _awaited(work: Awaitable[T]) -> T:
    return await work


class _Guarded(Coroutine[Any, Any, T]):
    """A coroutine around another one, with the same interface."""

    __slots__ = ("__name__", "__qualname__", "_guard", "_inner")

    def __init__(self, guard: Guard, inner: Coroutine[Any, Any, T]) -> None:
        self._guard = guard
        self._inner = inner
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.__qualname__ = getattr(inner, "__qualname__", self.__name__)

    def _resume(self, error: BaseException | None) -> Any:
        return self._inner.send(None) if error is None else self._inner.throw(error)

    def send(self, value: Any) -> Any:
        return self._resume(None)

    def throw(self, kind: Any, value: Any = None, at: TracebackType | None = None) -> Any:
        error = kind if isinstance(kind, BaseException) else value
        if not isinstance(error, BaseException):
            error = kind() if value is None else kind(value)
        return self._resume(error if at is None else error.with_traceback(at))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __iter__(self) -> "_Guarded[T]":
        return self

    def __next__(self) -> Any:
        return self._resume(None)

    # Tools that print stacks read these.

    @property
    def cr_frame(self) -> Any:
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_code(self) -> Any:
        return getattr(self._inner, "cr_code", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._inner, "cr_await", None)

    @property
    def cr_running(self) -> bool:
        return bool(getattr(self._inner, "cr_running", False))


class _Main(_Guarded[T]):
    """The handler itself."""

    __slots__ = ()

    def _resume(self, error: BaseException | None) -> Any:
        # `stop` cancels the task that runs this. Yielding nothing makes the loop resume it at once,
        # with that cancellation. It replaces whatever was awaited, `error` included.
        if self._guard.lapsed() and self._guard.stop():
            return None
        return super()._resume(error)


class _Helper(_Guarded[T]):
    """A task that the handler started, directly or not."""

    __slots__ = ("_cancelled", "_held")

    def __init__(self, guard: Guard, inner: Coroutine[Any, Any, T]) -> None:
        super().__init__(guard, inner)
        self._cancelled = False
        self._held: BaseException | None = None

    def _resume(self, error: BaseException | None) -> Any:
        if self._guard.lapsed():
            self._guard.stop()
            # A cancelled task cleans up, like the handler itself.
            self._cancelled = self._cancelled or isinstance(error, asyncio.CancelledError)
            if not self._cancelled:
                self._held = error
                return self._guard.hold_back().__await__().send(None)
        held, self._held = self._held, None
        return super()._resume(error or held)


class TaskFactory:
    """A task factory that guards the tasks of handlers and leaves every other task as it is."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.users = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        context = options.get("context")
        guard = _GUARD.get() if context is None else context.get(_GUARD)
        if guard is not None and guard.covers(loop) and asyncio.iscoroutine(work):
            work = _Helper(guard, work)
        if self.previous is not None:
            return self.previous(loop, work, **options)
        return asyncio.Task(work, loop=loop, **options)


def start_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], *, name: str
) -> asyncio.Task[T]:
    """Start a task that belongs to no handler. It is faster than `loop.create_task`."""
    factory: Any = loop.get_task_factory()
    if isinstance(factory, TaskFactory) and factory.previous is None:
        return asyncio.Task(work, loop=loop, name=name)
    return loop.create_task(work, name=name)


def guard_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Guard the tasks that handlers start on `loop`. A factory that is set already is kept."""
    factory: Any = loop.get_task_factory()
    if not isinstance(factory, TaskFactory):
        factory = TaskFactory(factory)
        loop.set_task_factory(factory)
    factory.users += 1


def unguard_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Undo one `guard_tasks`, unless another factory was set on top of it meanwhile."""
    factory: Any = loop.get_task_factory()
    if isinstance(factory, TaskFactory):
        factory.users -= 1
        if not factory.users:
            loop.set_task_factory(factory.previous)
