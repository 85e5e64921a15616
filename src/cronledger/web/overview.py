"""What an overview of several ledgers shows: each is read on its own, and none delays the page."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from cronledger.web.glance import Glance, glance
from cronledger.web.reading import Away, Reader
from cronledger.web.site import Frame

PATIENCE = 2.0
"""The longest time in seconds that the page waits for a ledger. Then it shows what it read last."""

AWAY_PATIENCE = 0.2
"""The same for a ledger whose database did not respond last."""


@dataclass(frozen=True, slots=True)
class Look:
    """One ledger, as the page shows it.

    `glance`: what was read last; None: nothing yet. `away`: since when its database does not
    respond. `is_slow`: it has not responded while the page waited.
    """

    name: str
    glance: Glance | None
    away: Away | None
    is_slow: bool

    @property
    def now(self) -> datetime | None:
        """The present in the time of its database; None: it was never read."""
        return None if self.glance is None else self._at(monotonic())

    @property
    def age(self) -> float:
        """Seconds since it was read."""
        return 0.0 if self.glance is None else monotonic() - self.glance.read_at

    @property
    def away_since(self) -> datetime | None:
        """Since when it is away, in the time of its database; None: it was never read."""
        return None if self.away is None else self._at(self.away.since)

    @property
    def away_seconds(self) -> float:
        """For how long it is away."""
        return 0.0 if self.away is None else monotonic() - self.away.since

    def _at(self, monotonic_time: float) -> datetime | None:
        if self.glance is None or self.glance.now is None:
            return None
        return self.glance.now + timedelta(seconds=monotonic_time - self.glance.read_at)


class Watch:
    """Reads one ledger, once at a time, for all pages that show it."""

    def __init__(self, name: str, reader: Reader) -> None:
        self._name = name
        self._reader = reader
        self._reading: asyncio.Task[Glance] | None = None
        self._last: Glance | None = None

    async def look(self) -> Look:
        """Return the ledger as it is, or, if that takes too long, as it was read last."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(glance(self._reader))
        reading = self._reading
        patience = PATIENCE if self._reader.away is None else AWAY_PATIENCE
        await asyncio.wait([reading], timeout=patience)
        if reading.done():
            self._last = reading.result()
        return Look(self._name, self._last, self._reader.away, not reading.done())

    async def close(self) -> None:
        """End a reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading], timeout=1)  # its connection may hang


class Overview(Frame):
    """The page over several ledgers: what its requests share."""

    def __init__(self, watches: Sequence[Watch], **frame: Any) -> None:
        super().__init__(**frame)
        self._watches = watches

    async def looks(self) -> list[Look]:
        """Return all ledgers, which are read at the same time."""
        return await asyncio.gather(*(watch.look() for watch in self._watches))

    async def close(self) -> None:
        for watch in self._watches:
            await watch.close()
        await super().close()
