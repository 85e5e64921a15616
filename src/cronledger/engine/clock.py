"""An estimate of the database's time, by the monotonic clock of this host.

It decides how long to sleep. Only the database itself decides whether something may start.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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

    # The database's time and its monotonic instant. One value, because other threads read it.
    _reading: tuple[datetime, float] | None = field(default=None, init=False)
    _error: float = field(default=0.0, init=False)  # seconds that the time may be off

    @property
    def known(self) -> bool:
        return self._reading is not None

    def observe(self, now: datetime, sent: float, received: float | None = None) -> bool:
        """Update the estimate with a reading of the clock. Return whether the clock leapt.

        `sent` and `received` are monotonic. The database read its clock at an unknown instant
        between them, so their mean has the smallest possible error. A slow reply does not replace a
        more precise one, unless that one is so old that the clocks may have drifted apart by more.
        """
        received = monotonic() if received is None else received
        at = (sent + received) / 2
        leapt = self._reading is not None and abs(self.at(at) - now) > LEAP + timedelta(
            seconds=received - sent
        )
        if self.trusted_since is None or leapt:
            self.trusted_since = now
        error = (received - sent) / 2
        read_at = 0.0 if self._reading is None else self._reading[1]
        before = self._error + (at - read_at) * DRIFT
        if self._reading is None or error <= before or self._off(now, at) > error + before:
            self._reading, self._error = (now, at), error
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
        reading = self._reading
        assert reading is not None, "the database's clock has not been read yet"
        return reading[0] + timedelta(seconds=monotonic_time - reading[1])

    def skew(self) -> timedelta | None:
        """Return the clock of this host minus that of the database; None: the latter is not known.

        Any thread may call this.
        """
        now = datetime.now(UTC)  # noqa: TID251 - shown to people; decides nothing
        return now - self.at(monotonic()) if self.known else None

    def until(self, instant: datetime) -> float:
        """Return the seconds from now until `instant` of database time. Never negative."""
        return max(0.0, (instant - self.at(monotonic())).total_seconds())


async def fetch_now(result: StepCursor[datetime]) -> datetime:
    """Return the database's time from the result of `Statements.read_clock`."""
    now = await result.fetchone()
    assert now is not None, "the statement returns one row"
    return now
