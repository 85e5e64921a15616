"""The firings of a schedule: cron text and a time zone in, UTC instants out.

`cron_fields` reads the text and names days, hours, minutes and seconds. Only that module uses
croniter. This module combines these values, and converts wall time to UTC for one piece of constant
UTC offset (`zones`) at a time, because croniter's own conversion is wrong around clock changes.

Internally, an instant is an int, seconds since 1970 UTC. A *wall* is the same count on the local
clock (wall = instant + offset), and a *day* is wall // 86400. Instants outside the years 1900 to
9899 never fire.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import metadata
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from cronledger.rules import cron_fields, zones
from cronledger.rules.cron_fields import TEN_YEARS, CronError, Days

__all__ = ["FINGERPRINT", "ClockChange", "Cron", "CronError", "Effect", "Firing", "parse"]

FINGERPRINT: dict[str, str] = {
    "croniter": metadata.version("croniter"),
    "tzdata": zones.VERSION,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIRST = (datetime(1900, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND
_LAST = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND - 1
_DAY = 86_400
_HOUR = 3_600
_LONG_GAP = 3 * _HOUR


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing: `plan_time` in UTC, `local` the same instant in the schedule's zone.

    `shifted`: its wall time lies in a gap, so it fires right after the gap. `folded`: its wall time
    occurs twice, and `local.fold` is the number of this occurrence.
    """

    plan_time: datetime
    local: datetime
    shifted: bool
    folded: bool


Effect = Literal["shifted", "skipped", "once", "twice"]


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A clock change in the zone of a schedule that names local times in its gap or fold.

    `at`: the first instant after the change in UTC, `local` the same instant in the schedule's
    zone. `first`: the first of the `count` named local times, without offset. `effect`: in a gap
    they are `shifted` (it fires at `at` instead) or `skipped`, and in a fold they fire `once` or
    `twice`.
    """

    at: datetime
    local: datetime
    first: datetime
    count: int
    effect: Effect


# --- rules -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Every:
    """`@every`: multiples of `period` seconds since the epoch, in any zone."""

    period: int

    def instants(self, low: int, high: int) -> Iterator[int]:
        return iter(range(low + -low % self.period, high, self.period))

    def count(self, low: int, high: int) -> int:
        return (high - 1) // self.period - (low - 1) // self.period

    def names(self, wall: int) -> bool:
        return True

    def shortest(self) -> int:
        return self.period

    def clock_changes(self, low: int, high: int) -> Iterator[tuple[int, int, int, Effect]]:
        return iter(())


@dataclass(frozen=True, slots=True)
class _Calendar:
    """Five or six fields in a zone. `shift` and `both` apply only to fixed times."""

    zone: ZoneInfo
    days: Days
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    elapsed: bool
    shift: bool
    both: bool

    def instants(self, low: int, high: int) -> Iterator[int]:
        """Yield the firings in [low, high), ascending."""
        for first, end, offset, after_gap in self._stretches(low, high):
            if after_gap is not None:
                yield after_gap
            for wall in self.walls(first, end):
                yield wall - offset

    def count(self, low: int, high: int) -> int:
        """Return the number of `instants`, without enumerating them."""
        return sum(
            (after_gap is not None) + self._count_walls(first, end)
            for first, end, _, after_gap in self._stretches(low, high)
        )

    def _stretches(self, low: int, high: int) -> Iterator[tuple[int, int, int, int | None]]:
        """Yield the parts of [low, high) with one offset: (first, end, offset, after_gap).

        All named walls in [first, end) fire. `after_gap`: the instant right after a gap, if a time
        that the gap swallowed fires then, or None.
        """
        repeated_until = low - 3 * _DAY  # below every wall of this walk
        # Start two days earlier: a fold just before `low` decides which times occur a second time.
        for start, end, offset, jump in zones.pieces(self.zone, low - 2 * _DAY, high):
            if jump < 0 and not self.elapsed and not self.both:
                repeated_until = start + offset - jump
            if end <= low:
                continue
            begin = start + offset
            after_gap = start if start >= low and self._fires_after_gap(begin, jump) else None
            yield max(low + offset, begin, repeated_until), end + offset, offset, after_gap

    def _fires_after_gap(self, begin: int, jump: int) -> bool:
        if not self.shift or self.elapsed or not 0 < jump < _LONG_GAP:
            return False
        swallowed = next(self.walls(begin - jump, begin), None)
        return swallowed is not None and not self.names(begin)

    def clock_changes(self, low: int, high: int) -> Iterator[tuple[int, int, int, Effect]]:
        """Yield (instant, first wall, walls, effect) of each change in [low, high) that has walls.

        A rule that keeps elapsed time has none, because a change does not affect it.
        """
        if self.elapsed:
            return
        for start, _, offset, jump in zones.pieces(self.zone, low - 1, high):
            begin = start + offset
            first, end = (begin - jump, begin) if jump > 0 else (begin, begin - jump)
            if count := self._count_walls(first, end):
                yield start, next(self.walls(first, end)), count, self._effect(begin, jump)

    def _effect(self, begin: int, jump: int) -> Effect:
        if jump < 0:
            return "twice" if self.both else "once"
        shifted = self.shift and jump < _LONG_GAP
        return "shifted" if shifted else "skipped"

    def names(self, wall: int) -> bool:
        return next(self.walls(wall, wall + 1), None) is not None

    def walls(self, low: int, high: int) -> Iterator[int]:
        """Yield the named walls in [low, high), also those that do not exist in the zone."""
        day, second = divmod(low, _DAY)
        while (named := self.days.on_or_after(day)) is not None and named * _DAY < high:
            midnight = named * _DAY
            for time in self._times(second if named == day else 0):
                if midnight + time >= high:
                    return
                yield midnight + time
            day, second = named + 1, 0

    def _count_walls(self, low: int, high: int) -> int:
        """Return the number of `walls`."""
        if low >= high:
            return 0
        first, low_second = divmod(low, _DAY)
        last, high_second = divmod(high, _DAY)
        times = len(self.hours) * len(self.minutes) * len(self.seconds)
        return (
            self.days.count(first, last) * times
            - self.days.count(first, first + 1) * self._count_times(low_second)
            + self.days.count(last, last + 1) * self._count_times(high_second)
        )

    def _count_times(self, high: int) -> int:
        """Return the number of named times of a day before its second `high`."""
        count, same = 0, True  # the larger units of `high` are named
        for values, value in (
            (self.hours, high // _HOUR),
            (self.minutes, high % _HOUR // 60),
            (self.seconds, high % 60),
        ):
            count = count * len(values) + (bisect_left(values, value) if same else 0)
            same = same and value in values
        return count

    def _times(self, low: int) -> Iterator[int]:
        for hour in self.hours[bisect_left(self.hours, low // _HOUR) :]:
            for minute in self.minutes:
                base = hour * _HOUR + minute * 60
                if base + 59 < low:
                    continue
                for second in self.seconds:
                    if base + second >= low:
                        yield base + second

    def shortest(self) -> int:
        """Return the shortest distance between two named walls, in seconds."""
        closest, first, last = 2**62, 0, 0
        for values, unit in ((self.seconds, 1), (self.minutes, 60), (self.hours, _HOUR)):
            for a, b in pairwise(values):
                closest = min(closest, (b - a) * unit + first - last)
            first, last = first + values[0] * unit, last + values[-1] * unit
        if closest <= _DAY + first - last:
            return closest
        return min(closest, self.days.shortest() * _DAY + first - last)


@dataclass(slots=True)
class _Memo:
    """The last result of `next_after`: (after, firing), always replaced as a whole."""

    latest: tuple[datetime, Firing] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Cron:
    """A schedule in its zone, as `parse` returns it. Safe to share between threads.

    `elapsed`: the minute or hour field begins with `*`, or the schedule is `@every`. Then both
    occurrences of a repeated time fire, and times inside a gap do not. `warnings`: sentences about
    surprising properties of the schedule.
    """

    text: str
    timezone: str
    warnings: tuple[str, ...]
    elapsed: bool
    is_every: bool
    _zone: ZoneInfo = field(repr=False)
    _rule: _Every | _Calendar = field(repr=False)
    _memo: _Memo = field(repr=False, default_factory=_Memo)

    @property
    def shortest_period(self) -> timedelta:
        """The shortest distance between two firings on the local clock.

        Exact for `@every`. Otherwise it follows from the fields, and from the closest named days of
        28 years if it is longer than a day. A clock change may bring two firings closer together.
        """
        return timedelta(seconds=self._rule.shortest())

    def firings(self, after: datetime, through: datetime) -> Iterator[Firing]:
        """Yield the firings with plan_time in (after, through], lazily and strictly ascending.

        Both arguments are aware. Raises CronError if croniter fails or goes backwards.
        """
        for instant in self._instants(after, through):
            local = datetime.fromtimestamp(instant, self._zone)
            twin = local.replace(fold=1 - local.fold)
            yield Firing(
                plan_time=datetime.fromtimestamp(instant, UTC),
                local=local,
                shifted=not self._rule.names(instant + zones.offset_at(self._zone, instant)),
                folded=local.utcoffset() != twin.utcoffset(),
            )

    def plan_times(self, after: datetime, through: datetime) -> Iterator[datetime]:
        """Yield the plan_times of `firings` as aware UTC datetimes, which is faster."""
        for instant in self._instants(after, through):
            yield datetime.fromtimestamp(instant, UTC)

    def count(self, after: datetime, through: datetime) -> int:
        """Return the number of `plan_times`. It enumerates at most their days."""
        low, high = _range(after, through)
        return self._rule.count(low, high) if low < high else 0

    def clock_changes(self, after: datetime, through: datetime) -> Iterator[ClockChange]:
        """Yield the clock changes in (after, through] that affect firings, in order.

        There are none for a schedule that keeps elapsed time.
        """
        for start, wall, count, effect in self._rule.clock_changes(*_range(after, through)):
            yield ClockChange(
                at=datetime.fromtimestamp(start, UTC),
                local=datetime.fromtimestamp(start, self._zone),
                first=datetime.fromtimestamp(wall, UTC).replace(tzinfo=None),
                count=count,
                effect=effect,
            )

    def next_after(self, after: datetime, horizon: datetime | None = None) -> Firing | None:
        """Return the first firing strictly after `after`, up to and including `horizon`, or None.

        `horizon` is by default ten years after `after`.
        """
        through = after + TEN_YEARS if horizon is None else horizon
        memo = self._memo.latest
        if memo is not None and memo[0] <= after < memo[1].plan_time:
            return memo[1] if memo[1].plan_time <= through else None
        firing = next(self.firings(after, through), None)
        if firing is not None:
            # The tuple is replaced as a whole, so a race between threads cannot mix two results.
            self._memo.latest = (after, firing)
        return firing

    def _instants(self, after: datetime, through: datetime) -> Iterator[int]:
        low, high = _range(after, through)
        if low >= high:
            return
        last = low - 1
        for instant in self._rule.instants(low, high):
            if instant <= last:
                problem = f"the firing at {instant} s is not after the one at {last} s"
                raise CronError("schedule", self.text, problem, "report this as a defect")
            last = instant
            yield instant


def _range(after: datetime, through: datetime) -> tuple[int, int]:
    """Return (after, through] as seconds [low, high), within the years that fire."""
    low = max((after - _EPOCH) // _SECOND + 1, _FIRST)
    return low, min((through - _EPOCH) // _SECOND, _LAST) + 1


# --- parsing -----------------------------------------------------------------------------------


def parse(
    text: str,
    *,
    timezone: str = "UTC",
    day_or: bool = True,
    dst_gap: Literal["shift", "skip"] = "shift",
    dst_fold: Literal["first", "both"] = "first",
    job: str = "",
    scope: str = "",
) -> Cron:
    """Return the schedule that `text` names; equal arguments share one object.

    `text` has five fields or six (seconds first), is an alias such as `@daily`, or is `@every` with
    a duration of whole seconds. `H` is a hash of (job, scope) and never changes. Raises CronError.
    """
    if "h" not in text.lower():
        job = scope = ""  # Without H, all scopes share one object: there may be a million.
    return _parse(
        text,
        timezone=timezone,
        day_or=day_or,
        dst_gap=dst_gap,
        dst_fold=dst_fold,
        job=job,
        scope=scope,
    )


@lru_cache(maxsize=8192)
def _parse(
    text: str, *, timezone: str, day_or: bool, dst_gap: str, dst_fold: str, job: str, scope: str
) -> Cron:
    zone = zones.named(timezone)
    if dst_gap not in ("shift", "skip"):
        raise CronError("dst_gap", dst_gap, "unknown policy", "write 'shift' or 'skip'")
    if dst_fold not in ("first", "both"):
        raise CronError("dst_fold", dst_fold, "unknown policy", "write 'first' or 'both'")
    meant = cron_fields.read(text, day_or=day_or, hash_id=f"{job}\0{scope}".encode())
    if isinstance(meant, int):
        warned = _every_warnings(meant, timezone)
        return Cron(text, timezone, warned, True, True, zone, _Every(meant))
    calendar = _Calendar(
        zone=zone,
        days=meant.days,
        hours=meant.hours,
        minutes=meant.minutes,
        seconds=meant.seconds,
        elapsed=meant.elapsed,
        shift=dst_gap == "shift",
        both=dst_fold == "both",
    )
    return Cron(text, timezone, meant.warnings, meant.elapsed, False, zone, calendar)


def _every_warnings(period: int, timezone: str) -> tuple[str, ...]:
    warned = []
    if period % (7 * _DAY) == 0:
        warned.append(
            "@every counts from 1970-01-01, so whole weeks fire on Thursdays at 00:00 UTC"
        )
    if timezone not in ("UTC", "Etc/UTC"):
        warned.append(f"@every counts in UTC, so timezone {timezone!r} has no effect on it")
    return tuple(warned)
