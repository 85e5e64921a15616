"""Python handlers: async functions on the main loop, sync functions in threads."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cronledger.declaring.app import Bound, Context
from cronledger.engine.running import capturing
from cronledger.engine.running.capturing import Printed
from cronledger.engine.running.handlers.guard import Guard, LeaseEndedError
from cronledger.engine.running.handlers.middleware import WrappedHandler
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.engine.threads import Threads
from cronledger.rules import outcome
from cronledger.rules.model import Status
from cronledger.rules.outcome import Outcome
from cronledger.rules.problems import PayloadInvalidError


@dataclass(frozen=True, slots=True)
class PythonHandlers:
    """Runs the functions of a runner, which have names of the form `module:qualname`."""

    functions: Mapping[str, Bound]
    threads: Threads
    max_result_bytes: int

    async def run(self, name: str, guard: Guard, printed: Printed | None = None) -> Outcome:
        """Run a function that needs no context to its end. `printed` receives its output.

        A cancellation stops an async function. A sync one can only be requested to end
        (`ctx.cancelled`). Its cancellation is deferred until it returns, so that its slot and its
        lease stay taken. If a sync function returns an awaitable (a `def` around an `async def`),
        that is awaited.

        Raises LeaseEndedError if the lease had ended before a sync function could start, or if the
        function noticed the end of its lease.
        """
        bound = self.functions[name]
        if printed is not None:
            capturing.begin(printed)
        try:
            with guard:
                return await self._ended(bound, bound.is_async, None, guard)
        finally:
            if printed is not None:
                printed.over = True

    async def run_with(
        self,
        context: Context,
        transaction: ExecutionTransaction,
        name: str,
        guard: Guard,
        printed: Printed | None = None,
    ) -> Outcome:
        """Do what `run` does, and commit the function's writes in `transaction` with its SUCCESS.

        Middleware wraps the call of the function, and neither the validation of its payload nor the
        COMMIT.
        """
        bound = self.functions[name]
        wrapped = WrappedHandler(bound, guard, transaction) if bound.middleware else None
        try:
            if printed is not None:
                capturing.begin(printed)
            with guard:
                ended = await self._ended(wrapped or bound, bound.is_async, context, guard)
            if wrapped is not None:
                wrapped.raise_interruption()
            if ended.status is not Status.SUCCESS:
                return ended
            if transaction.inside:
                return outcome.failure(
                    RuntimeError(
                        "the handler returned while one of its helpers was inside ctx.transaction()"
                    )
                )
            if not transaction.pending:
                return ended
            return await transaction.commit(ended if printed is None else printed.end(ended))
        finally:
            if printed is not None:
                printed.over = True
            await transaction.close()

    async def _ended(
        self, handler: Callable[[Any], Any], is_async: bool, context: Context | None, guard: Guard
    ) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        try:
            if is_async:
                value = handler(context)
            else:
                value = await self._in_thread(handler, context, guard)
            if inspect.isawaitable(value):
                value = await guard.drive(value)
        except PayloadInvalidError as error:
            return outcome.payload_invalid(str(error))
        except _RaisedError as raised:
            if isinstance(raised.error, LeaseEndedError) or guard.ended_by(raised.error):
                raise LeaseEndedError from raised.error
            if isinstance(raised.error, PayloadInvalidError):
                return outcome.payload_invalid(str(raised.error))
            return outcome.failure(raised.error)
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            # The task was not cancelled, but something that it awaited was.
            return outcome.failure(error)
        except BaseException as error:
            if guard.ended_by(error):
                raise LeaseEndedError from error
            return outcome.failure(error)
        return outcome.success(value, max_result_bytes=self.max_result_bytes)

    async def _in_thread(
        self, handler: Callable[[Any], Any], context: Context | None, guard: Guard
    ) -> Any:
        inside = contextvars.copy_context()
        thread = self.threads.call(lambda: inside.run(guard.call, handler, context))
        cancelled: asyncio.CancelledError | None = None
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError as error:
                cancelled = error
        value, raised = thread.result()
        if cancelled is not None:
            if inspect.iscoroutine(value):
                value.close()
            raise cancelled
        if raised is not None:
            raise _RaisedError(raised)
        return value


class _RaisedError(Exception):
    """Carries the exception of a function, because a coroutine cannot raise a StopIteration."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
