"""Python functions: async ones on the main loop, sync ones in threads."""

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cronledger.app import Bound, Context
from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome


@dataclass(frozen=True, slots=True)
class PythonHandlers:
    """The functions of a runner by name (`module:qualname`), and the threads for sync ones."""

    functions: Mapping[str, Bound]
    threads: ThreadPoolExecutor
    max_result_bytes: int

    async def run(self, name: str, context: Context, overran: Callable[[], None]) -> Outcome:
        """Run the function to its end. Cancelling stops an async one.

        A sync one can only be asked (`ctx.cancelled`): the cancellation is held until it
        returns, so that its slot and its lease stay taken; `overran` is called when it goes on.
        """
        bound = self.functions[name]
        try:
            if bound.is_async:
                value = await bound(context)
            else:
                value = await self._in_thread(bound, context, overran)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            if isinstance(error, KeyboardInterrupt | SystemExit) and bound.is_async:
                error.__suppress_context__ = True
            return outcome.failure(error)
        return outcome.success(value, max_result_bytes=self.max_result_bytes)

    async def _in_thread(
        self, bound: Bound, context: Context, overran: Callable[[], None]
    ) -> object:
        loop = asyncio.get_running_loop()
        inside = contextvars.copy_context()
        thread = loop.run_in_executor(self.threads, lambda: inside.run(bound, context))
        cancelled: asyncio.CancelledError | None = None
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError as error:
                cancelled = error
                overran()
        if cancelled is not None:
            thread.exception()  # seen: what it raised after being stopped is not its outcome
            raise cancelled
        return thread.result()
