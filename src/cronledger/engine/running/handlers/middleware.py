"""A handler inside its middleware, for one execution."""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from cronledger.declaring.app import Bound, Context
from cronledger.engine.running.handlers.guard import Guard, LeaseEndedError
from cronledger.engine.running.handlers.transaction import ExecutionTransaction


class WrappedHandler:
    """Calls a handler inside its middleware. Has to be created in the handler's task.

    Middleware may turn an exception into anything, with two limits. If something was raised because
    the task was cancelled or the lease had ended, there is no outcome, whatever middleware returns.
    And each exception rolls back what was written in `ctx.transaction()` before.
    """

    def __init__(self, bound: Bound, guard: Guard, transaction: ExecutionTransaction) -> None:
        self._bound = bound
        self._guard = guard
        self._transaction = transaction
        self._task = asyncio.current_task()
        self._interruption: BaseException | None = None

    def __call__(self, context: Context) -> Any:
        """Call the outermost middleware. Raises PayloadInvalidError before that."""
        given, named = self._bound.arguments(context)
        watched = self._awaited if self._bound.is_async else self._called
        call: Callable[[], Any] = partial(watched, partial(self._bound.function, *given, **named))
        for wrap in reversed(self._bound.middleware):
            call = partial(watched, partial(wrap, context, call))
        return call()

    def raise_interruption(self) -> None:
        """Raise the reason for which there is no outcome, if there is one."""
        match self._interruption:
            case None:
                return
            case asyncio.CancelledError():
                # A timeout of the middleware cancels the task as well, and takes that back.
                if self._task is not None and self._task.cancelling():
                    raise self._interruption
            case _:
                raise LeaseEndedError from self._interruption

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            return _result(self._guard.call(call))
        except BaseException as error:
            self._note(error)
            self._transaction.roll_back_sync()
            raise

    async def _awaited(self, call: Callable[[], Any]) -> Any:
        try:
            return await self._guard.call(call)
        except BaseException as error:
            self._note(error)
            await self._transaction.roll_back()
            raise

    def _note(self, error: BaseException) -> None:
        lost = isinstance(error, LeaseEndedError) or self._guard.ended_by(error)
        if lost or isinstance(error, asyncio.CancelledError):
            self._interruption = error


def _result(value: Any) -> Any:
    """Return the result of a `def`. Raises TypeError if it is an awaitable."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(
        "a `def` with middleware returned an awaitable, which would run outside of the "
        "middleware; declare the handler as an `async def`"
    )
