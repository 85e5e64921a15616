"""Signals as events, and a watchdog that ends the process in time, even if its threads hang."""

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, Self

from cronledger.rules.problems import Exit

ABORT_SECONDS = 25.0
REPEAT_SECONDS = 1.0
"""The time within which another SIGTERM is a repetition.

`timeout` and some service wrappers send one to the process and one to its process group.
"""


class Signals:
    """SIGTERM and SIGINT as events. SIGUSR1 calls `report`.

    A SIGTERM within REPEAT_SECONDS of the last signal is ignored. A SIGINT always counts, because
    a person presses Ctrl-C. SIGTERM and SIGINT also set the deadline of the watchdog. The event
    loop's own signal handlers would wait while a job's handler blocks the loop. These handlers run
    between any two instructions of the main thread, so they take no lock and start no thread.
    """

    def __init__(
        self, watchdog: "Watchdog", drain_seconds: float, report: Callable[[], None]
    ) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._watchdog = watchdog
        self._drain_seconds = drain_seconds
        self._report = report
        self._count = 0
        self._counted_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._received)
        self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: self._report())
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        now = monotonic()
        if self._count and number == signal.SIGTERM and now < self._counted_at + REPEAT_SECONDS:
            return
        self._count += 1
        self._counted_at = now
        if self._count == 1:
            self._watchdog.end_within(self._drain_seconds, Exit.FAILED)
            self._loop.call_soon_threadsafe(self.first.set)
        elif self._count == 2:
            self._watchdog.end_within(ABORT_SECONDS, Exit.FAILED)
            self._loop.call_soon_threadsafe(self.second.set)
        else:
            os._exit(Exit.FAILED)


class Watchdog:
    """A thread that ends the process at its deadline, even if every other thread hangs."""

    def __init__(self) -> None:
        self._end: tuple[float, Exit] | None = None
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def end_within(self, seconds: float, code: Exit) -> None:
        """End the process with `code` after `seconds`. A later call replaces this one."""
        self._end = (monotonic() + seconds, code)
        with suppress(BlockingIOError):  # the pipe is full, so the thread wakes up anyway
            os.write(self._wake_w, b".")

    def _watch(self) -> None:
        while True:
            end = self._end
            wait = None if end is None else max(0.0, end[0] - monotonic())
            if select.select([self._wake_r], [], [], wait)[0]:
                os.read(self._wake_r, 4096)
            elif end is not None and end is self._end:
                # No flush, because it could wait for a lock of a thread that hangs.
                os._exit(end[1])
