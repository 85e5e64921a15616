"""A cancellation token that a handler shares with its helpers, in any thread."""

import threading
import weakref
from collections.abc import Callable
from typing import Self


class Cancelled(Exception):  # noqa: N818 - public word
    """The work was cancelled. Stop, and do not catch this exception."""


class CancelToken:
    """A token that work checks to see whether it should stop.

    Cancelling a token cancels its children, never its parent. All methods are safe to call from any
    thread. `with token.child() as helpers:` cancels the child at the end of the block. Async work
    is cancelled through its task. The token is for code that no task reaches: threads, and loops
    that never await.
    """

    __slots__ = ("__weakref__", "_cancelled", "_children", "_event", "_over")
    # Of all tokens, because most never take it. Reentrant, because the garbage collector may
    # run while it is held, and end a `with` block of another token, which cancels that token.
    _lock = threading.RLock()

    def __init__(self, over: Callable[[], bool] | None = None) -> None:
        """Create a token, which also counts as cancelled while `over` returns True."""
        self._over = over
        self._cancelled = False
        # Most executions need neither, and an Event takes longer to create than the token.
        self._event: threading.Event | None = None
        self._children: weakref.WeakSet[CancelToken] | None = None

    @property
    def cancelled(self) -> bool:
        """Return whether this token or one of its parents was cancelled."""
        return self._cancelled or (self._over is not None and self._over())

    def check(self) -> None:
        """Raise Cancelled if the work should stop."""
        if self.cancelled:
            raise Cancelled("the work was requested to stop")

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for `seconds` (None: forever) or until cancelled. Return whether it was cancelled.

        Blocks the thread, so async code must not call it.
        """
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self._cancelled:
                    self._event.set()
        return self._event.wait(seconds) or self.cancelled

    def child(self) -> "CancelToken":
        """Return a child of this token, which is cancelled if this token is cancelled."""
        made = CancelToken(self._over)
        with self._lock:
            if self._children is None:
                self._children = weakref.WeakSet()
            self._children.add(made)
            cancelled = self._cancelled
        if cancelled:
            made.cancel()
        return made

    def cancel(self) -> None:
        """Cancel this token and all of its children. Idempotent."""
        with self._lock:
            # Under the lock, so that a child or an event created at the same time is not missed.
            self._cancelled = True
            if self._event is not None:
                self._event.set()
            children = tuple(self._children or ())
        for child in children:
            child.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
