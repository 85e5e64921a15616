"""The database's time between two answers, by the monotonic clock of this host.

Sleeping and deadlines use it; what may start is decided by the database alone.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic

LEAP = timedelta(seconds=1)


@dataclass(slots=True)
class DatabaseClock:
    """What this runner believes of the database's clock.

    `trusted_since`: database time since which its view is unbroken: connected, no leap of more than
    a second against the monotonic clock. Leases are neither stolen nor swept before one
    stale_timeout of that.
    """

    _now: datetime | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)
    _trusted_since: datetime | None = field(default=None, init=False)

    @property
    def known(self) -> bool:
        return self._now is not None

    @property
    def trusted_since(self) -> datetime:
        assert self._trusted_since is not None, "no answer of the database was observed yet"
        return self._trusted_since

    def observe(self, now: datetime, sent: float, received: float | None = None) -> bool:
        """Take in an answer; true if the database's clock leapt.

        `sent` and `received` are monotonic; the answer was made somewhere between, so half of the
        way is the least wrong.
        """
        received = monotonic() if received is None else received
        at = (sent + received) / 2
        leapt = self._now is not None and abs(self.at(at) - now) > LEAP + timedelta(
            seconds=received - sent
        )
        if self._trusted_since is None or leapt:
            self._trusted_since = now
        self._now, self._at = now, at
        return leapt

    def distrust(self) -> None:
        """The connection was lost: the next answer begins a new time of trust."""
        self._trusted_since = None

    def at(self, monotonic_time: float) -> datetime:
        """Database time at a monotonic time."""
        assert self._now is not None, "no answer of the database was observed yet"
        return self._now + timedelta(seconds=monotonic_time - self._at)

    def until(self, instant: datetime) -> float:
        """Seconds from now until `instant` of database time; never negative."""
        return max(0.0, (instant - self.at(monotonic())).total_seconds())
