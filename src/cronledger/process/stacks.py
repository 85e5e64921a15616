"""What a process is doing, for people: stacks of its asyncio tasks and threads, on SIGUSR1.

They are taken and logged by a thread of its own, so that a handler that blocks the event loop, or
holds whatever lock, can be seen doing it.
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

from cronledger.logger import get_logger

log = get_logger(__name__)

MOST_TASKS = 100
MOST_FRAMES = 12


class Reporter:
    """Logs `diagnostics_requested` each time `ask` is called: what `diagnose` answers, the tasks of
    `loop`, all threads. `ask` may be called by a signal handler: it takes no lock and never waits.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, diagnose: Callable[[], dict[str, Any]]
    ) -> None:
        self._loop = loop
        self._diagnose = diagnose
        self._told, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        self._thread = threading.Thread(target=self._work, name="diagnostics", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """A report is logged soon; one for many that come at once."""
        with suppress(BlockingIOError):  # the pipe is full: enough are asked for
            os.write(self._tell, b".")

    def close(self) -> None:
        """No more reports; one that is under way is logged to its end."""
        os.close(self._tell)
        self._thread.join(2)
        if not self._thread.is_alive():
            os.close(self._told)

    def _work(self) -> None:
        while select.select([self._told], [], []) and os.read(self._told, 4096):
            try:
                log.info(
                    "diagnostics_requested",
                    diagnostics=self._diagnose(),
                    tasks=tasks(self._loop),
                    threads=threads(),
                )
            except Exception:
                # It looks at what others change meanwhile.
                log.exception("diagnostics_crashed")


def tasks(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    """The unfinished tasks of `loop` and their stacks, outermost call first, for any thread."""
    found = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return [
        {"task": task.get_name(), "stack": [_place(x, x.f_lineno) for x in _frames(task)]}
        for task in found[:MOST_TASKS]
    ]


def threads() -> list[dict[str, Any]]:
    """All threads of Python with their stacks, outermost call first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        {
            "thread": names.get(number, str(number)),
            "stack": [_place(f, line) for f, line in traceback.walk_stack(frame)][MOST_FRAMES::-1],
        }
        for number, frame in sys._current_frames().items()
    ]


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Through what it awaits, down to where it waits; `Task.get_stack` knows the outermost only."""
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
