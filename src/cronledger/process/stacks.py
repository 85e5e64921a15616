"""The stacks of a process's asyncio tasks and threads, logged on SIGUSR1.

A thread of its own logs them, so that they also show a handler that blocks the event loop or holds
a lock.
"""

import asyncio
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

MOST_TASKS = 100
MOST_FRAMES = 12


class Reporter:
    """Logs `diagnostics_requested` on request: the result of `diagnose`, the tasks, the threads.

    A signal handler may call `request`, which takes no lock and never waits.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, diagnose: Callable[[], dict[str, Any]]
    ) -> None:
        self._loop = loop
        self._diagnose = diagnose
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)
        self._thread = threading.Thread(target=self._work, name="diagnostics", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Request a report. Simultaneous requests share one."""
        with suppress(BlockingIOError):  # the pipe is full of requests
            os.write(self._wake_w, b".")

    def close(self) -> None:
        """Stop. A report in progress is completed."""
        os.close(self._wake_w)
        self._thread.join(2)
        if not self._thread.is_alive():
            os.close(self._wake_r)

    def _work(self) -> None:
        while select.select([self._wake_r], [], []) and os.read(self._wake_r, 4096):
            try:
                log.info(
                    "diagnostics_requested",
                    diagnostics=self._diagnose(),
                    tasks=tasks(self._loop),
                    threads=threads(),
                )
            except Exception:
                # Other threads change the objects that it reads.
                log.exception("diagnostics_crashed")


def tasks(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    """Return the unfinished tasks of `loop` with stacks, outermost call first. Thread-safe."""
    found = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return [
        {"task": task.get_name(), "stack": [_place(x, x.f_lineno) for x in _frames(task)]}
        for task in found[:MOST_TASKS]
    ]


def threads() -> list[dict[str, Any]]:
    """Return all Python threads with their stacks, outermost call first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        {
            "thread": names.get(number, str(number)),
            "stack": [_place(f, line) for f, line in traceback.walk_stack(frame)][MOST_FRAMES::-1],
        }
        for number, frame in sys._current_frames().items()
    ]


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames from the task to where it waits; `Task.get_stack` has only the first."""
    frames: list[FrameType] = []
    inner: Any = task.get_coro()
    while inner is not None and len(frames) < MOST_FRAMES:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return frames


def _place(frame: FrameType, line: int | None) -> str:
    return f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}"
