"""An independent parser of schedules, whose fields become plain sets of numbers.

The planner reads a schedule with a library. The audit compares its result with that of this parser,
and the two share no code. The meaning of a schedule:

- Five fields (minute, hour, day of month, month, day of week) or six with seconds first; or an
  alias; or `@every` and a duration of whole seconds: its multiples since 1970 in UTC.
- A field is a list of items, and names the values of all of them. Items: `*`, a value, a name of a
  month or weekday, `low-high`, each with `/step`; `value/step` extends to the end of the field.
  `7` is Sunday. `low-low` is the whole field. A range with low > high continues past the end of the
  field, with its step (`22-5/5` of hours: 22 and 3).
- Day of month: `L` is the last day; `15W` the working day nearest to the 15th in its month (of a
  shorter month: to its last day). `?` is another `*`, in both day fields.
- Day of week: `mon#2` is the second Monday, `L5` the last Friday. If such items occur, only they
  count. Other plain weekdays are then refused, unless they are all seven.
- `H` fills its field alone: `H`, `H(low-high)`, `H/step`, `H(low-high)/step`. The hash is CRC-32 of
  the UTF-8 text `job NUL scope_kind/scope_id`, shifted right by 0 for the minute, 1 hour, 2 day of
  month, 3 month, 4 day of week, 5 second. `H` is low + hash mod (high - low + 1). With a step, the
  first value is chosen in this way from [low, low + step - 1], cut at high. The field is then
  `first-high/step`, or only the first value if it is `high`.
"""

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from zlib import crc32

from cronledger.rules import durations
from cronledger.rules.model import ScopeKey

_LONGEST_TEXT = 256
_LONGEST_PERIOD = timedelta(days=3653)
_LENGTHS = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_MONTHS = {
    **{"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6},
    **{"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12},
}
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_HASHED = re.compile(r"h(?:\(([0-9]+)-([0-9]+)\))?(?:/([0-9]+))?")
_NTH = re.compile(r"([0-9]+|[a-z]{3}|[a-z]{3}-[a-z]{3})#0*([1-5])|l([0-9]+)")


@dataclass(frozen=True, slots=True)
class Grid:
    """`@every`: the multiples of `period` since 1970-01-01T00:00Z."""

    period: timedelta


@dataclass(frozen=True, slots=True)
class WallTimes:
    """The named days (`names`), and their times. Hours, minutes and seconds ascend.

    `elapsed`: the minute or hour field begins with `*`. `both`: a day must match both day fields.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    elapsed: bool
    both: bool
    _day: "_Named"
    _month: "_Named"
    _weekday: "_Named"

    def names(self, day: date) -> bool:
        """Return whether the date fires at all."""
        if day.month not in self._month.values:
            return False
        if self.both:
            return self._by_weekday(day) and self._by_month_day(day)
        return self._by_weekday(day) or self._by_month_day(day)

    def _by_month_day(self, day: date) -> bool:
        named = self._day
        if day.day in named.values:
            return True
        if named.near:
            return _nearest_working_day(day.year, day.month, named.near) == day.day
        return named.last and day.day == monthrange(day.year, day.month)[1]

    def _by_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if not self._weekday.nths:
            return weekday in self._weekday.values
        if (weekday, (day.day + 6) // 7) in self._weekday.nths:
            return True
        final = day.day + 7 > monthrange(day.year, day.month)[1]
        return final and (weekday, 0) in self._weekday.nths


@lru_cache(maxsize=1024)
def read(text: str, key: ScopeKey, *, day_or: bool) -> Grid | WallTimes:
    """Return the meaning of `text` for one (job, scope). Raises ValueError with field and value."""
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"schedule: {len(text)} characters, more than {_LONGEST_TEXT}")
    lowered = text.strip().lower()
    words = text.split(maxsplit=1)
    if words and words[0].lower() == "@every":
        return Grid(_period(text, words[1].rstrip() if len(words) > 1 else ""))
    fields = re.split(r"[ \t\n\r\f\v]+", _ALIASES.get(lowered, lowered))
    if len(fields) == 5:
        fields.insert(0, "0")
    if len(fields) != 6:
        raise ValueError(f"schedule {text!r}: {len(fields)} fields instead of 5 or 6")
    drawn = crc32(f"{key.job_name}\0{key.scope_kind}/{key.scope_id}".encode())
    try:
        second, minute, hour, day, month, weekday = (
            _read_field(written, unit, drawn) for written, unit in zip(fields, _UNITS, strict=True)
        )
        _refuse_impossible(day, month)
        _refuse_mixed(weekday)
    except ValueError as error:
        raise ValueError(f"schedule {text!r}: {error}") from None
    wall_times = WallTimes(
        seconds=tuple(sorted(second.values)),
        minutes=tuple(sorted(minute.values)),
        hours=tuple(sorted(hour.values)),
        elapsed=fields[1][0] == "*" or fields[2][0] == "*",
        both=not day_or or fields[3][0] in "*?" or fields[5][0] in "*?",
        _day=day,
        _month=month,
        _weekday=weekday,
    )
    _refuse_empty(text, wall_times)
    return wall_times


def _period(text: str, written: str) -> timedelta:
    period = durations.parse(written)
    if not timedelta(seconds=1) <= period <= _LONGEST_PERIOD or period.microseconds:
        raise ValueError(f"schedule {text!r}: a period is whole seconds, up to ten years")
    return period


# --- one field ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A field: its bounds, its names, and the shift of the hash for `H`."""

    name: str
    low: int
    high: int
    shift: int
    names: Mapping[str, int] = field(default_factory=dict)


_DAY = _Unit("day of month", 1, 31, 2)
_WEEKDAY = _Unit("day of week", 0, 6, 4, _WEEKDAYS)
_UNITS = (
    _Unit("second", 0, 59, 5),
    _Unit("minute", 0, 59, 0),
    _Unit("hour", 0, 23, 1),
    _DAY,
    _Unit("month", 1, 12, 3, _MONTHS),
    _WEEKDAY,
)


@dataclass(slots=True)
class _Named:
    """The values of one field. With `star`, `values` has all values, and `written` the named ones.

    `last`: the last day of the month. `near`: the day of `15W`, or 0. `nths`: (weekday, its number
    in the month), or 0 for the last one.
    """

    values: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    star: bool = False
    last: bool = False
    near: int = 0
    nths: set[tuple[int, int]] = field(default_factory=set)


def _read_field(written: str, unit: _Unit, drawn: int) -> _Named:
    named = _Named()
    hashed = _HASHED.fullmatch(written)
    near = re.fullmatch(r"([0-9]+)w|w([0-9]+)", written)
    try:
        if hashed is not None:
            named.written = _draw(unit, drawn >> unit.shift, *hashed.groups())
        elif near is not None and unit is _DAY:
            named.near = int(near[1] or near[2])
            if not 1 <= named.near <= 31:
                raise ValueError("no such day")
        elif written == "?" and unit in (_DAY, _WEEKDAY):
            named.star = True
        else:
            for item in written.split(","):
                _read_item(item, unit, named)
    except ValueError as error:
        raise ValueError(f"invalid {unit.name} field {written!r}: {error}") from None
    named.values = set(range(unit.low, unit.high + 1)) if named.star else named.written
    return named


def _read_item(item: str, unit: _Unit, named: _Named) -> None:
    if item == "*":
        named.star = True
    elif item == "l" and unit is _DAY:
        named.last = True
    elif unit is _WEEKDAY and (nth := _NTH.fullmatch(item)) is not None:
        head, which = (nth[1], int(nth[2])) if nth[1] else (nth[3], 0)
        named.nths |= {(weekday, which) for weekday in _span(head, unit)}
    else:
        named.written |= _span(item, unit)


def _span(item: str, unit: _Unit) -> set[int]:
    """Return the values of `value`, `low-high`, `value/step`, `low-high/step` or `*/step`."""
    body, slash, written_step = item.partition("/")
    step = _digits(written_step) if slash else 1
    if step == 0:
        raise ValueError("a step of 0")
    first, dash, end = body.partition("-")
    size = unit.high - unit.low + 1
    if body == "*":
        low, high = unit.low, unit.high
    elif dash:
        low = _value(first, unit)
        high = 31 if unit is _DAY and end == "l" else _value(end, unit)
        if low == high:
            low, high = unit.low, unit.high
        elif low > high:
            high += size
    else:
        low = _value(first, unit)
        high = unit.high if slash else low
    if low < unit.low:
        raise ValueError(f"{low} is below {unit.low}")
    return {(value - unit.low) % size + unit.low for value in range(low, high + 1, step)}


def _value(written: str, unit: _Unit) -> int:
    value = unit.names[written] if written in unit.names else _digits(written)
    if unit is _WEEKDAY and value == 7:
        return 0
    if value > unit.high:
        raise ValueError(f"{value} is above {unit.high}")
    return value


def _digits(written: str) -> int:
    if re.fullmatch("[0-9]+", written) is None:
        raise ValueError(f"{written!r} is not a value")
    return int(written)


def _draw(
    unit: _Unit, hashed: int, begin: str | None, end: str | None, written_step: str | None
) -> set[int]:
    low, high = unit.low, unit.high
    if begin is not None and end is not None:
        low, high = int(begin), int(end)
        if low >= high:
            raise ValueError(f"{high} is not above {low}")
        if low < unit.low or _value(begin, unit) < unit.low or _value(end, unit) < unit.low:
            raise ValueError(f"{low} is below {unit.low}")
    if written_step is None:
        return _span(str(low + hashed % (high - low + 1)), unit)
    step = int(written_step)
    if step == 0:
        raise ValueError("a step of 0")
    drawn = low + hashed % (min(step, high - low + 1))
    return _span(str(drawn) if drawn == high else f"{drawn}-{high}/{step}", unit)


# --- impossible schedules -----------------------------------------------------------------------


def _refuse_impossible(day: _Named, month: _Named) -> None:
    days = day.written | ({day.near} if day.near else set())
    if days and month.written and min(days) > max(_LENGTHS[number] for number in month.written):
        raise ValueError(f"no named month has a day {min(days)}")


def _refuse_mixed(weekday: _Named) -> None:
    counted = {number for number, _ in weekday.nths}
    everything = len(counted | weekday.written) + weekday.star == 7
    if counted and weekday.written - counted and not everything:
        raise ValueError("plain weekdays with '#' or 'L' in the day of week field")


def _refuse_empty(text: str, wall_times: WallTimes) -> None:
    # Within 28 years, every date falls on every weekday, also 29 February.
    first = date(2000, 1, 1)
    if not any(wall_times.names(first + timedelta(days=n)) for n in range(28 * 365 + 7)):
        raise ValueError(f"schedule {text!r}: its day of month and day of week never coincide")


def _nearest_working_day(year: int, month: int, wanted: int) -> int:
    length = monthrange(year, month)[1]
    target = min(wanted, length)
    working = (n for n in range(1, length + 1) if date(year, month, n).isoweekday() < 6)
    return min(working, key=lambda n: abs(n - target))
