"""Cancellation that a handler shares with its helpers, in any thread."""

import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Cancelled(Exception):  # noqa: N818 - public word
    """The scope was cancelled: stop, and let this exception pass."""


class CancelToken:
    """Whether work should stop. Cancelling a scope cancels its children, never its parent.

    Every method may be called from any thread. `with scope.child() as helpers:` cancels the child
    when the block ends, however it ends. Async work is cancelled through its task; this is for
    what no task reaches: threads, and loops that never await.
    """

    __slots__ = ("__weakref__", "_children", "_event", "_lock", "_over")

    def __init__(self, over: Callable[[], bool] | None = None) -> None:
        """Make a scope; it counts as cancelled while `over` returns True, without being told."""
        self._over = over
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._children: weakref.WeakSet[CancelToken] | None = None  # one in each execution is dear

    @property
    def cancelled(self) -> bool:
        """Whether this scope, or one above it, was cancelled."""
        return self._event.is_set() or (self._over is not None and self._over())

    def check(self) -> None:
        """Return while the work may go on; raise Cancelled once it should stop."""
        if self.cancelled:
            raise Cancelled("the work was asked to stop")

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep for `seconds` (None: for ever), or until cancelled; answers whether it was. Blocks
        its thread: not for async code."""
        return self._event.wait(seconds) or self.cancelled

    def child(self) -> "CancelToken":
        """A scope below this one; cancelled already if this one is."""
        made = CancelToken(self._over)
        with self._lock:
            if self._children is None:
                self._children = weakref.WeakSet()
            self._children.add(made)
            cancelled = self._event.is_set()
        if cancelled:
            made.cancel()
        return made

    def cancel(self) -> None:
        """This scope and all below it are cancelled. Idempotent."""
        with self._lock:
            # Set under the lock: a child made beside this is either seen here or sees it set.
            self._event.set()
            children = tuple(self._children or ())
        for child in children:
            child.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.cancel()
