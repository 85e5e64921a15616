"""Refresh: one LISTEN of the process tells all open pages that something changed.

A page then reads itself again. The reader shares what it reads, so that a panel is read at most
once a second, however many people watch.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from time import monotonic

from cronledger.engine.maintenance.listener import Listener
from cronledger.engine.runtime.loops import end
from cronledger.ledger.access import Access

TICK = 5.0
"""Seconds after which a page reads itself without a notification: ends of executions have none."""
PAUSE = 1.0
"""The shortest time in seconds between two events of a stream."""
STREAM_SECONDS = 30.0
"""A stream ends after this time, and the browser opens another, so that no server waits long for it
when it stops.
"""
MOST_STREAMS = 1_000
UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Headers of a stream: nginx would keep its events back."""
ANNOUNCEMENTS = ("wait ", "follow ")
"""Notifications that somebody is interested in an execution, which change nothing."""
EVENT = "event: change\ndata: -\n\n"


class Refresh:
    """Streams of events, and the listener that exists while there are streams.

    `access` None: notifications cannot be received, so that only TICK counts.
    """

    def __init__(self, access: Access | None, schema: str) -> None:
        self._access = access
        self._schema = schema
        self._streams: set[asyncio.Event] = set()
        self._listening: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    @property
    def is_full(self) -> bool:
        """Return whether there are as many streams as this process serves."""
        return len(self._streams) >= MOST_STREAMS

    async def stream(self) -> AsyncGenerator[str, None]:
        """Yield an event after each change, and at least every TICK seconds."""
        changed = asyncio.Event()
        self._open(changed)
        try:
            until = monotonic() + STREAM_SECONDS
            yield "retry: 1000\n\n"
            while monotonic() < until:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), TICK)
                changed.clear()
                if self._stopped:
                    return
                yield EVENT
                await asyncio.sleep(PAUSE)
        finally:
            await self._close(changed)

    def notify(self) -> None:
        """Let all open pages read themselves again, because this process changed something."""
        self._woken("notified")

    @property
    def is_stopped(self) -> bool:
        """Return whether the server stops, so that its streams have to end."""
        return self._stopped

    def stop(self) -> None:
        """End all streams soon. A signal handler may call this."""
        self._stopped = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken, "stopped")

    def _open(self, changed: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams.add(changed)
        if self._stopped:
            changed.set()
        if self._access is not None and self._listening is None:
            self._listening = asyncio.create_task(self._listen(self._access))

    async def _close(self, changed: asyncio.Event) -> None:
        self._streams.discard(changed)
        if not self._streams and self._listening is not None:
            listening, self._listening = self._listening, None
            await end({listening})

    async def _listen(self, access: Access) -> None:
        listener = Listener(access, self._schema)
        listener.notified.then(self._woken)
        try:
            while True:  # noqa: ASYNC110 - a step waits for a notification
                await asyncio.sleep(await listener.step())
        finally:
            await listener.close()

    def _woken(self, payload: str) -> None:
        if payload.startswith(ANNOUNCEMENTS):
            return
        for changed in self._streams:
            changed.set()
