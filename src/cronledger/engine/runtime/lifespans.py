"""The lifespans of the Apps of one runner: entered before the first claim, left at the end.

Each has a task of its own, because an async context manager may have to be left in the task that
entered it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any

from cronledger.declaring.app import App
from cronledger.declaring.callables import place
from cronledger.declaring.resources import LifespanError
from cronledger.engine.apps import AppRegistry
from cronledger.engine.event import Event
from cronledger.engine.log_throttle import reason
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

CLOSE_SECONDS = 5.0
"""The time for which a lifespan may take to end. A drain that ends early leaves it more."""
CANCELLED_SECONDS = 1.0
"""The time for which a lifespan that was cancelled may take to end."""


class Lifespan:
    """The lifespan of one App, from its entry to its end.

    `ended` is called if it ends before `close`. It runs in a copy of `context`.
    """

    def __init__(
        self, app: App, ended: Callable[["Lifespan", BaseException], None], context: Context
    ) -> None:
        assert app.lifespan is not None
        self.app = app
        self.place = place(app.lifespan)
        self._make = app.lifespan
        self._ended = ended
        self._value: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._error: BaseException = asyncio.CancelledError()  # if its task never begins
        self._task = asyncio.create_task(
            self._run(), name=f"cronledger lifespan {self.place}", context=context.copy()
        )

    async def _run(self) -> None:
        try:
            async with self._make(self.app) as value:
                self._value.set_result(value)
                await self._leave.wait()
            if not self._leave.is_set():  # it suppressed what ended it
                raise RuntimeError("it ended by itself")
        except BaseException as error:  # also SystemExit, which only ends the lifespan
            self._error = error
            if not self._value.done():
                return  # `enter` raises it
            if not self._leave.is_set():
                self._ended(self, error)
            if not (self._leave.is_set() and isinstance(error, asyncio.CancelledError)):
                log.error("lifespan_failed", app=self.app.name, lifespan=self.place, exc_info=error)

    async def enter(self) -> Any:
        """Return the value that the lifespan yields. Raises LifespanError if it yields none."""
        await asyncio.wait([self._task, self._value], return_when=asyncio.FIRST_COMPLETED)
        if not self._task.done():
            return self._value.result()
        why = f"{type(self._error).__name__}: {self._error}".removesuffix(": ")
        app = "an App without a name" if self.app.name is None else f"the App {self.app.name!r}"
        raise LifespanError(f"the lifespan {self.place} of {app} raised {why}") from self._error

    async def close(self, seconds: float) -> None:
        """End the lifespan. It is cancelled if it has not yielded yet, or after `seconds`.

        Returns soon after a cancellation, even if the lifespan does not end.
        """
        self._leave.set()
        if not self._value.done():
            self._task.cancel()
        if await self._ends_within(seconds):
            return
        self._task.cancel()
        ended = await self._ends_within(CANCELLED_SECONDS)
        log.error("lifespan_not_closed", app=self.app.name, lifespan=self.place, ended=ended)

    async def _ends_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        return bool(done)


class Lifespans:
    """The lifespans of the Apps in the registry.

    Event: `ended`, a lifespan has ended by itself, so the functions of the runner have changed.
    """

    def __init__(self, apps: AppRegistry) -> None:
        self._apps = apps
        self.ended = Event[[]]()
        self._open: dict[App, Lifespan] = {}
        self._unclosed: set[Lifespan] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._failed: dict[App, str] = {}
        self._context = copy_context()
        """The context variables of the program. A handler, which may register an App, has more."""

    @property
    def failing(self) -> dict[str, str]:
        """The errors of lifespans that ended while the runner worked. Any thread may read this."""
        return {
            f"lifespan {place(app.lifespan)}": error
            for app, error in tuple(self._failed.items())
            if app.lifespan is not None
        }

    def usable(self, app: App) -> bool:
        """Return whether handlers of the App may run: it has no lifespan, or an open one."""
        return app.lifespan is None or app in self._open

    async def enter_all(self) -> None:
        """Enter the lifespans of all Apps, in the order of the Apps. Raises what `enter` does.

        These, and those that are entered later, have the context variables of this call.
        """
        self._context = copy_context()
        for app in self._apps.apps:
            await self.enter(app)

    async def enter(self, app: App) -> None:
        """Enter the lifespan of the App, if it has one that is not open, and offer its functions.

        Raises LifespanError if the lifespan raises, and ConfigurationError if a parameter of a
        handler receives nothing. The lifespan is closed then.
        """
        if self.usable(app):
            return
        lifespan = self._open[app] = Lifespan(app, self._note_end, self._context)
        self._unclosed.add(lifespan)
        try:
            self._apps.provide(app, await lifespan.enter())
        except BaseException:
            self._open.pop(app, None)
            await self._close(lifespan, CLOSE_SECONDS)
            raise
        self._failed.pop(app, None)

    def leave(self, app: App, unused: Callable[[], Awaitable[None]]) -> None:
        """Close the lifespan of an App, which was removed, once `unused()` has returned."""
        self._failed.pop(app, None)
        lifespan = self._open.pop(app, None)
        if lifespan is None:
            return

        async def close() -> None:
            await unused()
            await self._close(lifespan, CLOSE_SECONDS)

        task = asyncio.create_task(
            close(), name=f"cronledger leaves {lifespan.place}", context=self._context.copy()
        )
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self, seconds: float) -> None:
        """Close all lifespans at once, and cancel those that take more than `seconds`."""
        for task in self._leaving:
            task.cancel()
        self._open.clear()
        unclosed = tuple(self._unclosed)
        await asyncio.gather(*(self._close(lifespan, seconds) for lifespan in unclosed))

    async def _close(self, lifespan: Lifespan, seconds: float) -> None:
        await lifespan.close(seconds)
        self._unclosed.discard(lifespan)

    def _note_end(self, lifespan: Lifespan, error: BaseException) -> None:
        """Withhold the functions of an App whose lifespan has ended, because they would fail."""
        self._unclosed.discard(lifespan)
        app = lifespan.app
        if self._open.get(app) is lifespan:
            del self._open[app]
            self._failed[app] = reason(error)
            self._apps.withhold(app)
            self.ended()
