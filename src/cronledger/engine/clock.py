"""An estimate of the database's time, by the monotonic clock of this host.

It decides how long to sleep. Only the database itself decides whether something may start.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic

from cronledger.ledger.connections import StepCursor

LEAP = timedelta(seconds=1)
DRIFT = 1e-4  # the largest difference in speed between two clocks, in seconds per second


@dataclass(slots=True)
class DatabaseClock:
    """The runner's estimate of the database's clock.

    `trusted_since`: the database time since which the runner was connected and the clock did not
    leap by more than a second against the monotonic clock, or None while it is not trusted. A
    runner neither steals nor sweeps a lease before it has trusted the clock for one stale_timeout.
    """

    trusted_since: datetime | None = field(default=None, init=False)

    _now: datetime | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)
    _error: float = field(default=0.0, init=False)  # seconds that _now may be off

    @property
    def known(self) -> bool:
        return self._now is not None

    def observe(self, now: datetime, sent: float, received: float | None = None) -> bool:
        """Update the estimate with a reading of the clock. Return whether the clock leapt.

        `sent` and `received` are monotonic. The database read its clock at an unknown instant
        between them, so their mean has the smallest possible error. A slow reply does not replace a
        more precise one, unless that one is so old that the clocks may have drifted apart by more.
        """
        received = monotonic() if received is None else received
        at = (sent + received) / 2
        leapt = self._now is not None and abs(self.at(at) - now) > LEAP + timedelta(
            seconds=received - sent
        )
        if self.trusted_since is None or leapt:
            self.trusted_since = now
        error = (received - sent) / 2
        before = self._error + (at - self._at) * DRIFT
        if self._now is None or error <= before or self._off(now, at) > error + before:
            self._now, self._at, self._error = now, at, error
        return leapt

    def _off(self, now: datetime, at: float) -> float:
        """Return the seconds between `now` and the estimate for the monotonic instant `at`."""
        return abs((self.at(at) - now).total_seconds())

    def agrees(self, now: datetime, sent: float, received: float) -> bool:
        """Return whether `now`, received between these monotonic instants, rules out a leap.

        Also returns False if the reply took so long that a leap cannot be ruled out.
        """
        return self.at(received) - LEAP <= now <= self.at(sent) + LEAP

    def distrust(self) -> None:
        """Distrust the clock, because the connection was lost. The next reading ends this."""
        self.trusted_since = None

    def at(self, monotonic_time: float) -> datetime:
        """Return the database time at a monotonic instant."""
        assert self._now is not None, "the database's clock has not been read yet"
        return self._now + timedelta(seconds=monotonic_time - self._at)

    def until(self, instant: datetime) -> float:
        """Return the seconds from now until `instant` of database time. Never negative."""
        return max(0.0, (instant - self.at(monotonic())).total_seconds())


async def fetch_now(result: StepCursor[datetime]) -> datetime:
    """Return the database's time from the result of `Statements.read_clock`."""
    now = await result.fetchone()
    assert now is not None, "the statement returns one row"
    return now
