"""The database's time between two answers, by the monotonic clock of this host.

Sleeping and deadlines use it; what may start is decided by the database alone.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic

from psycopg import AsyncCursor

LEAP = timedelta(seconds=1)
DRIFT = 1e-4  # how far two clocks may part, in seconds per second
NO_TRUST = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class DatabaseClock:
    """What this runner believes of the database's clock.

    `trusted_since`: database time since which its view is unbroken: connected, no leap of more than
    a second against the monotonic clock. Leases are neither stolen nor swept before one
    stale_timeout of that.
    """

    _now: datetime | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)
    _error: float = field(default=0.0, init=False)  # seconds that _now may be off
    _trusted_since: datetime | None = field(default=None, init=False)

    @property
    def known(self) -> bool:
        return self._now is not None

    @property
    def trusted_since(self) -> datetime:
        """Far in the future while there is no trust."""
        return NO_TRUST if self._trusted_since is None else self._trusted_since

    def observe(self, now: datetime, sent: float, received: float | None = None) -> bool:
        """Take in an answer; true if the database's clock leapt.

        `sent` and `received` are monotonic; the answer was made somewhere between, so half of the
        way is the least wrong. An answer that took long does not replace a better one, unless that
        one is so old that the clocks may have drifted apart by more.
        """
        received = monotonic() if received is None else received
        at = (sent + received) / 2
        leapt = self._now is not None and abs(self.at(at) - now) > LEAP + timedelta(
            seconds=received - sent
        )
        if self._trusted_since is None or leapt:
            self._trusted_since = now
        error = (received - sent) / 2
        before = self._error + (at - self._at) * DRIFT
        if self._now is None or error <= before or self._off(now, at) > error + before:
            self._now, self._at, self._error = now, at, error
        return leapt

    def _off(self, now: datetime, at: float) -> float:
        """Seconds by which `now` differs from what was believed of the monotonic time `at`."""
        return abs((self.at(at) - now).total_seconds())

    def agrees(self, now: datetime, sent: float, received: float) -> bool:
        """Whether `now`, answered between these monotonic times, rules out a leap. Also false when
        the answer took so long that it cannot tell."""
        return self.at(received) - LEAP <= now <= self.at(sent) + LEAP

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


async def fetch_now(answer: AsyncCursor[datetime]) -> datetime:
    """Return the database's time from the answer to `Statements.read_clock`."""
    now = await answer.fetchone()
    assert now is not None, "the statement returns one row"
    return now
