"""Threads for sync handlers.

They are daemons, so that a handler that never returns does not delay the end of the process. The
threads of `ThreadPoolExecutor` would.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from queue import SimpleQueue
from typing import Any

Returned = tuple[Any, BaseException | None]
"""The value that a function returned, or the exception that it raised."""

_Task = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Returned]", Callable[[], Any]]


class Threads:
    """One thread for each running function. Idle threads are reused. The caller limits the number.

    An exception of the function is part of the result, not an exception of the future. A future
    refuses StopIteration, and a CancelledError of the function must not look like one of the task.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._waited_for: set[asyncio.Future[Returned]] = set()
        self._started = 0

    def call(self, function: Callable[[], Any]) -> "asyncio.Future[Returned]":
        """Call `function` in a thread now. Return a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Returned] = loop.create_future()
        self._waited_for.add(future)
        future.add_done_callback(self._waited_for.discard)
        self._tasks.put((loop, future, function))
        if not self._idle.acquire(blocking=False):
            self._started += 1
            name = f"{self._name} {self._started}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            Context().run(thread.start)  # without the variables of this handler
        return future

    def close(self) -> None:
        """Stop waiting for threads. Each thread ends when its function returns.

        The result of a function that still runs is a TimeoutError. Must not run concurrently with
        `call`.
        """
        for future in tuple(self._waited_for):
            _resolve(future, (None, TimeoutError("the thread has not returned")))
        for _ in range(self._started):
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            loop, future, function = task
            returned: Returned
            try:
                returned = function(), None
            except BaseException as error:  # noqa: BLE001 - SystemExit only ends the handler
                returned = None, error
            self._idle.release()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, future, returned)
            del task, loop, future, function, returned  # idle threads keep nothing alive


def _resolve(future: "asyncio.Future[Returned]", returned: Returned) -> None:
    if not future.done():
        future.set_result(returned)
