"""The plan_times of a schedule, computed independently of the planner.

This module shares no code with the planner, and uses a different algorithm. The planner processes
periods of constant UTC offset. This module takes each date that `fields` names and each of its wall
times, and finds the instants at which the zone shows that wall time, with zoneinfo and both folds.
If no clock change is near a date, one offset applies to all of its times. On other dates, one
offset applies to each hour in which the clocks do not change.

- A wall time that occurs twice fires at both instants if the schedule keeps elapsed time (its
  minute or hour field begins with `*`) or with dst_fold=both; otherwise at the first.
- Under a calendar, no date after its last one fires. With on_excluded next or previous, a date
  fires if it is not excluded, and the schedule names it or one of the excluded dates beside it.
- A wall time that never occurs lies in a gap. It fires at the instant of the clock change, unless
  the schedule keeps elapsed time, dst_gap is skip, or the gap is three hours or longer. Several
  wall times that fall on one instant fire once.

Zone data comes from the tzdata package, never from the system. Instants before 1900 and after 9899
never fire.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from cronledger.audit import fields
from cronledger.audit.dates import Calendars, Dates
from cronledger.audit.fields import Grid, WallTimes
from cronledger.audit.runs import Parts, Run, parts_of_grid, parts_of_hour, run_of, within
from cronledger.rules.model import GLOBAL, ScopeKey

TEN_YEARS = timedelta(days=3653)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(1900, 1, 1, tzinfo=UTC)
_LAST = datetime(9899, 12, 31, 23, 59, 59, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_LONG_GAP = 3 * _HOUR


class ClockChange(NamedTuple):
    """A clock change at `instant` (UTC): its offset is `before` until then, then `after`."""

    instant: datetime
    before: timedelta
    after: timedelta


# --- definitions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Definition:
    """The part of a revision that decides plan_time and due_at.

    `boots`: the plan_times of the schedule `@reboot` in one scope, ascending.
    """

    schedule: str | None
    timezone: str = "UTC"
    day_or: bool = True
    dst_gap: str = "shift"
    dst_fold: str = "first"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    schedule_delay: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    on_excluded: str = "skip"
    dates: Dates | None = None
    boots: Sequence[datetime] = ()
    after: Sequence[Mapping[str, Any]] | None = None

    @property
    def at_boots(self) -> bool:
        """Whether the plan_times are the boots of a host."""
        return self.schedule is not None and self.schedule.strip().lower() == "@reboot"

    def hashed_as(self, key: ScopeKey) -> ScopeKey:
        """Return the key that decides `H`: that of the job at the beginning of a chain of after."""
        for upstream in self.after or ():
            root = upstream.get("root", upstream)
            scope = key[1:] if root["scope"] == "same" else (GLOBAL, GLOBAL)
            return ScopeKey(root["job"], *scope)
        return key

    @classmethod
    def from_row(cls, row: Mapping[str, Any], calendars: Calendars) -> Self:
        """Read a row of jobs or of their history. Raises ValueError for an unknown calendar."""
        names = {field.name for field in fields_of(cls)} - {"dates", "boots"}
        given = {name: row[name] for name in names}
        return cls(**given, dates=_dates_in(row, calendars))

    @classmethod
    def from_revision(cls, definition: Mapping[str, Any], calendars: Calendars) -> Self:
        """Read `job_revisions.definition`. Raises ValueError with field and value."""

        def read(name: str, kind: type, nullable: bool = False) -> Any:
            value = definition.get(name)
            if not (isinstance(value, kind) or (nullable and value is None)):
                raise ValueError(f"definition: {name} = {value!r} is not a {kind.__name__}")
            return value

        return cls(
            schedule=read("schedule", str, nullable=True),
            timezone=read("timezone", str),
            day_or=read("day_or", bool),
            dst_gap=read("dst_gap", str),
            dst_fold=read("dst_fold", str),
            starts_at=_timestamp("starts_at", read("starts_at", str, nullable=True)),
            ends_at=_timestamp("ends_at", read("ends_at", str, nullable=True)),
            schedule_delay=_interval("schedule_delay", read("schedule_delay", str)),
            jitter=_interval("jitter", read("jitter", str)),
            on_excluded=read("on_excluded", str, nullable=True) or "skip",
            dates=_dates_in(definition, calendars),
            after=read("after", list, nullable=True),
        )


def _dates_in(definition: Mapping[str, Any], calendars: Calendars) -> Dates | None:
    name, number = definition.get("calendar"), definition.get("calendar_revision")
    if name is None:
        return None
    dates = calendars.get((name, number)) if number is not None else None
    if dates is None:
        raise ValueError(f"calendar {name!r}: calendar_revisions has no revision {number} of it")
    return dates


def _timestamp(name: str, written: str | None) -> datetime | None:
    if written is None:
        return None
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        raise ValueError(f"definition: {name} = {written!r} is not a timestamp") from None
    if instant.tzinfo is None:
        raise ValueError(f"definition: {name} = {written!r} has no UTC offset")
    return instant.astimezone(UTC)


_INTERVAL = re.compile(
    r"(?:([+-]?[0-9]+) years? ?)?(?:([+-]?[0-9]+) mons? ?)?(?:([+-]?[0-9]+) days? ?)?"
    r"(?:([+-]?)([0-9]+):([0-9]{2}):([0-9]{2}(?:\.[0-9]{1,6})?))?"
)
_DAYS_OF_YEAR, _DAYS_OF_MONTH = 365, 30


def _interval(name: str, written: str) -> timedelta:
    """Read an interval in the IntervalStyle `postgres`, which `job_definition` in SQL sets."""
    found = _INTERVAL.fullmatch(written)
    if found is None or not any(found.groups()):
        raise ValueError(f"definition: {name} = {written!r} is not an interval")
    years, months, days, sign, hours, minutes, seconds = (part or "0" for part in found.groups())
    clock = Decimal(hours) * 3_600 + Decimal(minutes) * 60 + Decimal(seconds)
    whole = int(years) * _DAYS_OF_YEAR + int(months) * _DAYS_OF_MONTH + int(days)
    length = whole * 86_400 + (-clock if sign == "-" else clock)
    if length < 0:
        raise ValueError(f"definition: {name} = {written!r} is negative")
    return timedelta(microseconds=int(length * 1_000_000))


# --- the walk ----------------------------------------------------------------------------------


def walk(
    definition: Definition, key: ScopeKey, after: datetime, through: datetime
) -> Iterator[datetime]:
    """Return every plan_time in (after, through], lazily and ascending, in UTC.

    Both instants are aware. Without a schedule there are none. Raises ValueError immediately if
    the schedule, the zone or a policy is invalid.
    """
    found = runs(definition, key, after, through)
    return (run.base + length for run in found for length in run.parts.lengths)


def runs(
    definition: Definition, key: ScopeKey, after: datetime, through: datetime
) -> Iterator[Run]:
    """Return the plan_times of `walk` as runs, at most an hour long unless the clocks change."""
    if definition.schedule is None:
        return iter(())
    meant = _meant(definition, key)
    zone = _zone(definition.timezone)
    for name, value, known in (
        ("dst_gap", definition.dst_gap, ("shift", "skip")),
        ("dst_fold", definition.dst_fold, ("first", "both")),
    ):
        if value not in known:
            raise ValueError(f"{name} {value!r}: unknown policy; use {known[0]} or {known[1]}")
    after = max(after.astimezone(UTC), _FIRST - _SECOND)
    through = min(through.astimezone(UTC), _LAST)
    if definition.starts_at is not None:
        after = max(after, definition.starts_at.astimezone(UTC) - _MICROSECOND)
    if definition.ends_at is not None:
        through = min(through, definition.ends_at.astimezone(UTC))
    if after >= through:
        return iter(())
    if meant is None:
        return within(run_of(definition.boots), after, through)
    if isinstance(meant, Grid):
        if definition.dates is not None and definition.on_excluded != "skip":
            raise ValueError("on_excluded: the firings of @every cannot be moved")
        found = _multiples(meant.period, after, through)
        return found if definition.dates is None else _known(found, zone, definition.dates)
    wall_clock = _WallClock(
        zone=zone,
        shift=definition.dst_gap == "shift" and not meant.elapsed,
        both=definition.dst_fold == "both" or meant.elapsed,
    )
    return _dates(meant, _date_names(definition, meant), wall_clock, after, through)


def _meant(definition: Definition, key: ScopeKey) -> Grid | WallTimes | None:
    """Return the times that the schedule names; None: the boots of a host."""
    assert definition.schedule is not None
    if not definition.at_boots:
        key = definition.hashed_as(key)
        return fields.read(definition.schedule, key, day_or=definition.day_or)
    if definition.dates is not None:
        raise ValueError("calendar: a boot cannot be excluded")
    return None


def _date_names(definition: Definition, meant: WallTimes) -> Callable[[date], bool]:
    """Return the function that decides whether a date has firings."""
    dates = definition.dates
    if dates is None:
        return meant.names
    return lambda day: dates.fires_on(day, meant.names, definition.on_excluded)


class _WallClock(NamedTuple):
    """A zone, and how wall times fire that do not occur (`shift`), or occur twice (`both`)."""

    zone: ZoneInfo
    shift: bool
    both: bool


def _multiples(period: timedelta, after: datetime, through: datetime) -> Iterator[Run]:
    base = _EPOCH + ((after - _EPOCH) // period + 1) * period
    parts = parts_of_grid(period)
    while base <= through:
        yield from within([Run(base, parts)], after, through)
        base += len(parts.lengths) * period


def _known(found: Iterator[Run], zone: ZoneInfo, dates: Dates) -> Iterator[Run]:
    """Yield the runs up to the last local date of the calendar."""
    for base, parts in found:
        if base.date() > dates.through + 2 * _DAY:
            return
        local = [(part, (base + part).astimezone(zone).date()) for part in parts.lengths]
        if kept := [part for part, day in local if day <= dates.through]:
            yield Run(base, parts if len(kept) == len(local) else Parts(kept))


def _dates(
    meant: WallTimes, names: Callable[[date], bool], clock: _WallClock, after: datetime,
    through: datetime,
) -> Iterator[Run]:  # fmt: skip
    # Around a clock change, instants of one date may lie between those of the next date.
    unsettled: set[datetime] = set()
    parts = parts_of_hour(meant.minutes, meant.seconds)
    for number in range(after.toordinal() - 1, through.toordinal() + 2):
        day = date.fromordinal(number)
        if not names(day):
            continue
        offsets = _offsets(clock.zone, day)
        midnight = datetime.combine(day, time())
        if len(offsets) > 1:
            for hour in meant.hours:
                base = midnight.replace(tzinfo=UTC) + hour * _HOUR
                if base + _HOUR - min(offsets) <= after or base - max(offsets) > through:
                    continue
                unsettled.update(_of_hour(midnight + hour * _HOUR, parts, clock))
            continue
        yield from within(run_of(unsettled), after, through)
        unsettled.clear()
        start = midnight.replace(tzinfo=UTC) - offsets.pop()
        for hour in meant.hours:
            base = start + hour * _HOUR
            if base + _HOUR <= after:
                continue
            if base > through:
                return
            yield from within([Run(base, parts)], after, through)
    yield from within(run_of(unsettled), after, through)


def _of_hour(wall: datetime, parts: Parts, clock: _WallClock) -> Iterator[datetime]:
    """Yield the instants at which the parts of the hour from the naive `wall` on fire."""
    ends = (wall, wall + _HOUR - _SECOND)
    offsets = {at.replace(tzinfo=clock.zone, fold=f).utcoffset() for at in ends for f in (0, 1)}
    offset = offsets.pop()
    if not offsets and offset is not None:  # the clocks do not change in this hour
        base = wall.replace(tzinfo=UTC) - offset
        yield from (base + part for part in parts.lengths)
    else:
        for part in parts.lengths:
            yield from _instants(wall + part, clock)


def _instants(wall: datetime, clock: _WallClock) -> list[datetime]:
    """Return the instants, at most two, at which the naive `wall` fires."""
    zone = clock.zone
    passes = [wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
    early, late = sorted(local.astimezone(UTC) for local in passes)
    shown = [
        moment
        for moment in ((early,) if early == late else (early, late))
        if moment.astimezone(zone).replace(tzinfo=None) == wall
    ]
    if shown:
        return shown if clock.both else shown[:1]
    # In a gap: with the offset of either side, `wall` lies on the other side of the change.
    return [_change(zone, early, late)] if clock.shift and late - early < _LONG_GAP else []


# --- excluded dates ------------------------------------------------------------------------------


def excluded_day(definition: Definition, key: ScopeKey, plan_time: datetime) -> str | None:
    """Return the name of the day if a plan_time of `walk` is on an excluded date, or None.

    It is, if all wall times that fire at it are on excluded dates. The name is that of the wall
    time that the zone shows, or of the first one that a gap has shifted to it.
    """
    dates = definition.dates
    if dates is None or definition.on_excluded != "skip" or definition.schedule is None:
        return None
    zone = _zone(definition.timezone)
    local = plan_time.astimezone(zone).replace(tzinfo=None)
    before = _offset(zone, plan_time - _SECOND)
    jump = _offset(zone, plan_time) - before
    meant = fields.read(definition.schedule, definition.hashed_as(key), day_or=definition.day_or)
    if jump <= timedelta(0) or isinstance(meant, Grid) or meant.elapsed:
        return dates.excluded.get(local.date())
    shown = [local] if _names(meant, local) else []
    swallowed = []
    if definition.dst_gap == "shift" and jump < _LONG_GAP:
        seconds = range(jump // _SECOND)
        swallowed = [wall for n in seconds if _names(meant, wall := local - jump + n * _SECOND)]
    names = [dates.excluded.get(wall.date()) for wall in (*shown, *swallowed)]
    return None if None in names or not names else names[0]


def _names(meant: WallTimes, wall: datetime) -> bool:
    return (
        wall.second in meant.seconds and wall.minute in meant.minutes
        and wall.hour in meant.hours and meant.names(wall.date())
    )  # fmt: skip


# --- zones -------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    """Return the zone of the tzdata package, never of the system."""
    package = files("tzdata")
    if name not in package.joinpath("zones").read_text("ascii").splitlines():
        raise ValueError(f"timezone {name!r}: unknown in the tzdata package")
    with package.joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, name)


def is_zone(name: str) -> bool:
    """Return whether the tzdata package has a zone of this name."""
    try:
        _zone(name)
    except ValueError:
        return False
    return True


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _offsets(zone: ZoneInfo, day: date) -> set[timedelta]:
    """Return the offsets during and around a local date: one, unless the clocks change.

    A local date lies within -14 h and +36 h of its midnight in UTC, and every offset lasts for
    days.
    """
    midnight = datetime.combine(day, time(), UTC)
    return {_offset(zone, midnight + hours * _HOUR) for hours in range(-18, 43, 4)}


def _change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first second with the offset of `high`, which differs from that of `low`."""
    before = _offset(zone, low)
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def shown_next(wall: time, timezone: str, instant: datetime) -> datetime:
    """Return the first instant from `instant` on at which the zone shows `wall`.

    In a gap: the instant of the clock change. Raises ValueError for an unknown zone.
    """
    zone = _zone(timezone)
    first = instant.astimezone(UTC).astimezone(zone).date() - _DAY
    for number in range(6):
        local = datetime.combine(first + number * _DAY, wall)
        early, late = sorted(
            local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)
        )
        shown = [x for x in (early, late) if x.astimezone(zone).replace(tzinfo=None) == local]
        following = [x for x in shown or [_change(zone, early, late)] if x >= instant]
        if following:
            return following[0]
    raise AssertionError(f"{timezone} does not show {wall} after {instant}")


def clock_change(timezone: str, instant: datetime) -> ClockChange | None:
    """Return the clock change of the zone that is nearest to `instant`, within a day of it.

    Raises ValueError for an unknown zone.
    """
    zone = _zone(timezone)
    start = instant.astimezone(UTC).replace(microsecond=0) - _DAY - _SECOND
    found = []
    for hour in range(49):
        low = start + hour * _HOUR
        before, after = _offset(zone, low), _offset(zone, low + _HOUR)
        if before != after:
            found.append(ClockChange(_change(zone, low, low + _HOUR), before, after))
    near = [change for change in found if abs(change.instant - instant) <= _DAY]
    return min(near, key=lambda change: abs(change.instant - instant), default=None)


# --- around an instant -------------------------------------------------------------------------


def due_at(definition: Definition, key: ScopeKey, plan_time: datetime) -> datetime:
    """Return the earliest start: plan_time + schedule_delay + its part of the jitter.

    The part is jitter * hash / 2**64, rounded down to microseconds. The hash is BLAKE2b (digest
    size 8, big-endian) of the UTF-8 text `job NUL scope_kind NUL scope_id NUL plan_time in
    microseconds since 1970`.
    """
    microseconds = (plan_time - _EPOCH) // _MICROSECOND
    identity = "\0".join((*key, str(microseconds)))
    drawn = int(blake2b(identity.encode(), digest_size=8).hexdigest(), 16)
    share = (definition.jitter // _MICROSECOND) * drawn // 2**64
    return plan_time + definition.schedule_delay + timedelta(microseconds=share)


def neighbours(
    definition: Definition, key: ScopeKey, instant: datetime, bound: timedelta = TEN_YEARS
) -> tuple[datetime | None, datetime | None]:
    """Return the last plan_time at or before `instant` and the first one after it.

    Either is None if it is further away than `bound`. Raises ValueError as `walk` does.
    """
    instant = min(max(instant.astimezone(UTC), _FIRST), _LAST)
    farthest = instant + bound if _LAST - instant > bound else _LAST
    following = next(walk(definition, key, instant, farthest), None)
    earliest = instant - bound if instant - _FIRST > bound else _FIRST
    through = instant if definition.ends_at is None else min(instant, definition.ends_at)
    while through > earliest:
        after = through - _DAY if through - earliest > _DAY else earliest
        previous = max(walk(definition, key, after - _MICROSECOND, through), default=None)
        if previous is not None:
            return previous, following
        through = after
    return None, following
