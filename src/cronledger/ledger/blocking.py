"""One body for programs with an event loop and for those without.

The body is a coroutine. It passes what a method returned to `result`, and each context manager to
`entered`. With blocking objects it never suspends, and `completed` runs it without a loop.
"""

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Manager: TypeAlias = AbstractContextManager[T] | AbstractAsyncContextManager[T]


async def result(returned: T | Coroutine[Any, Any, T]) -> T:
    """Return what a method returned, or the value of the coroutine that it returned."""
    if isinstance(returned, Coroutine):
        value: T = await returned
        return value
    return returned


def entered(manager: Manager[T]) -> AbstractAsyncContextManager[T]:
    """Return a context manager of either kind for `async with`."""
    return manager if isinstance(manager, AbstractAsyncContextManager) else _Entered(manager)


class _Entered(AbstractAsyncContextManager[T], Generic[T]):
    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._manager = manager

    async def __aenter__(self) -> T:
        return self._manager.__enter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return self._manager.__exit__(*error)


def completed(body: Coroutine[Any, Any, T]) -> T:
    """Return the value of a coroutine whose objects are all blocking. Raises what it raises."""
    try:
        body.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    body.close()
    raise RuntimeError("a coroutine suspended outside of an event loop")
