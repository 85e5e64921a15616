"""The firings of a schedule: cron text and a time zone in, UTC instants out.

`cron_fields` reads the text and names days, hours, minutes and seconds. Only that module uses
croniter. This module combines these values, and converts wall time to UTC for one piece of constant
UTC offset (`zones`) at a time, because croniter's own conversion is wrong around clock changes.

Internally, an instant is an int, seconds since 1970 UTC. A *wall* is the same count on the local
clock (wall = instant + offset), and a *day* is wall // 86400. Instants outside the years 1900 to
9899 never fire.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from datetime import time as wall_time
from functools import lru_cache
from importlib import metadata
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from cronledger.rules import cron_fields, zones
from cronledger.rules.calendar_days import (
    DaySet,
    IncludedDays,
    KnownDays,
    MovedDays,
    OnExcluded,
    UnknownDays,
    first_unknown,
)
from cronledger.rules.calendars import Calendar, ExcludedDate
from cronledger.rules.cron_fields import EVERY_DAY, TEN_YEARS, CronError

__all__ = ["FINGERPRINT", "ClockChange", "Cron", "CronError", "Effect", "Firing", "parse"]

FINGERPRINT: dict[str, str] = {
    "croniter": metadata.version("croniter"),
    "tzdata": zones.VERSION,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_ONE_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_FIRST = (datetime(1900, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND
_LAST = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND - 1
_DAY = 86_400
_HOUR = 3_600
_LONG_GAP = 3 * _HOUR


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing: `plan_time` in UTC, `local` the same instant in the schedule's zone.

    `shifted`: its wall time lies in a gap, so it fires right after the gap. `folded`: its wall time
    occurs twice, and `local.fold` is the number of this occurrence. `excluded`: a calendar excludes
    its date, so the job does not run. `moved_from`: the excluded dates from which it was moved;
    none if the schedule itself names its date. `skipped`: the reason of the planned skip that
    contains it.
    """

    plan_time: datetime
    local: datetime
    shifted: bool
    folded: bool
    excluded: ExcludedDate | None = None
    moved_from: tuple[ExcludedDate, ...] = ()
    skipped: str | None = None


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

    def day(self, instant: int) -> int:
        return instant // _DAY

    def shortest(self) -> int:
        return self.period

    def clock_changes(self, low: int, high: int) -> Iterator[tuple[int, int, int, Effect]]:
        return iter(())


@dataclass(frozen=True, slots=True)
class _EveryOnDays(_Every):
    """`@every` under a calendar: only the instants that have one of `days` in the zone."""

    zone: ZoneInfo
    days: DaySet

    def instants(self, low: int, high: int) -> Iterator[int]:
        for start, end in self._parts(low, high):
            yield from _Every.instants(self, start, end)

    def count(self, low: int, high: int) -> int:
        return sum(_Every.count(self, start, end) for start, end in self._parts(low, high))

    def day(self, instant: int) -> int:
        return (instant + zones.offset_at(self.zone, instant)) // _DAY

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [low, high) that have one of the days, in order."""
        for start, end, offset, _ in zones.pieces(self.zone, low, high):
            day = (start + offset) // _DAY
            while (found := self.days.on_or_after(day)) is not None:
                midnight = found * _DAY - offset
                if midnight >= end:
                    break
                yield max(start, midnight), min(end, midnight + _DAY)
                day = found + 1


@dataclass(frozen=True, slots=True)
class _Boots(_Every):
    """`@reboot`: the boots of one host that are known, ascending."""

    period: int = TEN_YEARS // _SECOND
    known: tuple[int, ...] = ()

    def instants(self, low: int, high: int) -> Iterator[int]:
        return (instant for instant in self.known if low <= instant < high)

    def count(self, low: int, high: int) -> int:
        return sum(1 for _ in self.instants(low, high))


@dataclass(frozen=True, slots=True)
class _WallTimes:
    """Five or six fields in a zone. `shift` and `both` apply only to fixed times."""

    zone: ZoneInfo
    days: DaySet
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

    def day(self, instant: int) -> int:
        """Return the day of the wall time that fires at `instant`, also if a gap has shifted it."""
        wall = instant + zones.offset_at(self.zone, instant)
        if not self.names(wall):
            wall = next(self.walls(instant + zones.offset_at(self.zone, instant - 1), wall))
        return wall // _DAY

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


@dataclass(frozen=True, slots=True)
class _Calendar:
    """What else `Cron` knows under a calendar. `included` None: every firing is included."""

    calendar: Calendar
    included: "Cron | None"
    unknown: "Cron"


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

    Under a calendar, it fires up to the last date that the calendar knows. Firings are moved if
    `parse` was told so; otherwise those on excluded dates are firings, and only `included` is
    without them.
    """

    text: str
    timezone: str
    warnings: tuple[str, ...]
    elapsed: bool
    is_every: bool
    _zone: ZoneInfo = field(repr=False)
    _rule: _Every | _WallTimes = field(repr=False)
    _calendar: "_Calendar | None" = field(repr=False, default=None)
    _memo: _Memo = field(repr=False, default_factory=_Memo)

    @property
    def is_reboot(self) -> bool:
        """Whether the firings are boots of a host, of which no future one is known."""
        return isinstance(self._rule, _Boots)

    def at_boots(self, plan_times: Iterable[datetime]) -> "Cron":
        """Return the schedule `@reboot` with these firings, ascending."""
        known = tuple((plan_time - _EPOCH) // _SECOND for plan_time in plan_times)
        return replace(self, _rule=_Boots(known=known), _memo=_Memo())

    @property
    def shortest_period(self) -> timedelta:
        """The shortest distance between two firings on the local clock.

        Exact for `@every`. Otherwise it follows from the fields, and from the closest named days of
        28 years if it is longer than a day. A clock change may bring two firings closer together.
        """
        return timedelta(seconds=self._rule.shortest())

    @property
    def included(self) -> "Cron":
        """The same schedule without the firings on excluded dates."""
        return self if self._calendar is None else self._calendar.included or self

    @property
    def unknown(self) -> "Cron | None":
        """The firings that the schedule names after those that the calendar knows.

        None without a calendar.
        """
        return None if self._calendar is None else self._calendar.unknown

    def with_excluded(
        self, after: datetime, through: datetime
    ) -> Iterator[tuple[datetime, str | None]]:
        """Yield each of `plan_times` with the name of its day, if that is excluded, or None.

        If a clock change shifts the times of several dates to one instant, the plan_time is
        excluded if all of them are. Its name is that of the date to which it is shifted if the
        schedule names this time too, and otherwise that of the first one.
        """
        if self._calendar is None or self._calendar.included is None:
            yield from ((plan_time, None) for plan_time in self.plan_times(after, through))
            return
        included = self.included.plan_times(after, through)
        following = next(included, None)
        for plan_time in self.plan_times(after, through):
            if plan_time == following:
                following = next(included, None)
                yield plan_time, None
            else:
                yield plan_time, self._excluded((plan_time - _EPOCH) // _SECOND).name

    def excluded_days(self, after: datetime, through: datetime) -> Iterator[Firing]:
        """Yield the first firing of each local date in (after, through] whose firings are excluded.

        There are none without a calendar, or if it moves them. No firing of the interval may be
        included.
        """
        if self._calendar is None or self._calendar.included is None:
            return
        while (firing := next(self.firings(after, through), None)) is not None:
            found = self._excluded((firing.plan_time - _EPOCH) // _SECOND)
            yield replace(firing, excluded=found)
            midnight = datetime.combine(firing.local.date() + _ONE_DAY, wall_time(), self._zone)
            after = max(firing.plan_time, midnight.astimezone(UTC) - _TICK)

    def _excluded(self, instant: int) -> ExcludedDate:
        assert self._calendar is not None
        return self._calendar.calendar.excluded_date(self._rule.day(instant))

    def _moved_from(self, instant: int) -> tuple[ExcludedDate, ...]:
        days = self._rule.days if isinstance(self._rule, _WallTimes) else None
        if not isinstance(days, MovedDays):
            return ()
        return tuple(map(days.calendar.excluded_date, days.origins(self._rule.day(instant))))

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
                moved_from=self._moved_from(instant),
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


def has_hash(text: str) -> bool:
    """Return whether a schedule may contain H. It does not tell H from a name such as THU."""
    return "h" in text.lower() and not text.lstrip().startswith("@")


def parse(
    text: str,
    *,
    timezone: str = "UTC",
    day_or: bool = True,
    dst_gap: Literal["shift", "skip"] = "shift",
    dst_fold: Literal["first", "both"] = "first",
    job: str = "",
    scope: str = "",
    calendar: Calendar | None = None,
    on_excluded: OnExcluded = "skip",
) -> Cron:
    """Return the schedule that `text` names; equal arguments share one object.

    `text` has five fields or six (seconds first), is an alias such as `@daily`, is `@every` with a
    duration of whole seconds, or `@reboot`, which has no firings before `at_boots`. `H` is a hash
    of (job, scope) and never changes. `on_excluded`: what happens to firings on dates that the
    calendar excludes. Raises CronError.
    """
    if not has_hash(text):
        job = scope = ""  # Without H, all scopes share one object: there may be a million.
    return _parse(
        text,
        timezone=timezone,
        day_or=day_or,
        dst_gap=dst_gap,
        dst_fold=dst_fold,
        job=job,
        scope=scope,
        under=None if calendar is None else (calendar, on_excluded),
    )


_Under = tuple[Calendar, OnExcluded]


@lru_cache(maxsize=8192)
def _parse(
    text: str, *, timezone: str, day_or: bool, dst_gap: str, dst_fold: str, job: str, scope: str,
    under: _Under | None,
) -> Cron:  # fmt: skip
    zone = zones.named(timezone)
    if dst_gap not in ("shift", "skip"):
        raise CronError("dst_gap", dst_gap, "unknown policy", "write 'shift' or 'skip'")
    if dst_fold not in ("first", "both"):
        raise CronError("dst_fold", dst_fold, "unknown policy", "write 'first' or 'both'")
    if cron_fields.is_reboot(text):
        if under is not None:
            problem = "it cannot be combined with @reboot, which has no dates to exclude"
            raise CronError("calendar", under[0].name, problem, "remove it")
        return Cron(text, timezone, (), True, False, zone, _Boots())
    meant = cron_fields.read(text, day_or=day_or, hash_id=f"{job}\0{scope}".encode())
    if isinstance(meant, int):
        if under is not None and under[1] != "skip":
            problem = "it cannot be combined with @every, which names no time of day"
            raise CronError("on_excluded", under[1], problem, "write 'skip'")
        warned = _every_warnings(meant, timezone if under is None else "UTC")
        cron = Cron(text, timezone, warned, True, True, zone, _Every(meant))
    else:
        rule = _WallTimes(
            zone=zone,
            days=meant.days,
            hours=meant.hours,
            minutes=meant.minutes,
            seconds=meant.seconds,
            elapsed=meant.elapsed,
            shift=dst_gap == "shift",
            both=dst_fold == "both",
        )
        cron = Cron(text, timezone, meant.warnings, meant.elapsed, False, zone, rule)
    return cron if under is None else _under_calendar(cron, *under)


def _under_calendar(cron: Cron, calendar: Calendar, on_excluded: OnExcluded) -> Cron:
    rule, zone = cron._rule, cron._zone
    named: DaySet = EVERY_DAY if isinstance(rule, _Every) else rule.days

    def on(days: DaySet, known: _Calendar | None = None) -> Cron:
        if isinstance(rule, _Every):
            restricted: _Every | _WallTimes = _EveryOnDays(rule.period, zone, days)
        else:
            restricted = replace(rule, days=days)
        return replace(cron, _rule=restricted, _calendar=known, _memo=_Memo())

    unknown = on(UnknownDays(named, first_unknown(calendar, on_excluded)))
    if on_excluded != "skip":
        moved = MovedDays(named, calendar, on_excluded)
        return on(moved, _Calendar(calendar, None, unknown))
    included = on(IncludedDays(named, calendar))
    return on(KnownDays(named, calendar), _Calendar(calendar, included, unknown))


def _every_warnings(period: int, timezone: str) -> tuple[str, ...]:
    warned = []
    if period % (7 * _DAY) == 0:
        warned.append(
            "@every counts from 1970-01-01, so whole weeks fire on Thursdays at 00:00 UTC"
        )
    if timezone not in ("UTC", "Etc/UTC"):
        warned.append(f"@every counts in UTC, so timezone {timezone!r} has no effect on it")
    return tuple(warned)
