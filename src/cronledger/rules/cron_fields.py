"""Cron text: the values of its fields, and its errors and warnings.

croniter expands the fields and finds the days on a naive local calendar. No other module imports
it. This module knows neither zones nor UTC: a *wall* is a count of seconds since 1970 on a local
clock, and a *day* is wall // 86400.
"""

import copy
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from croniter import CroniterBadDateError, CroniterError, croniter

from cronledger.rules import durations

TEN_YEARS = timedelta(days=3653)

_SECOND = timedelta(seconds=1)
_DAY = 86_400
_YEAR_2000 = 10_957  # days
_MAX_TEXT = 256

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
REBOOT = "@reboot"
_MONTHS = {
    **{"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6},
    **{"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12},
}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_NUMBERS = {**_MONTHS, **_WEEKDAYS, "l": 31}
# Fields with seconds first: (name, values, size, the cycle with which the field restarts)
_FIELDS = (
    ("second", "0-59", 60, "minute"),
    ("minute", "0-59", 60, "hour"),
    ("hour", "0-23", 24, "day"),
    ("day of month", "1-31, L, 15W", 31, "month"),
    ("month", "1-12, jan-dec", 12, "year"),
    ("day of week", "0-7, sun-sat, mon#1, L5", 7, "week"),
)


class CronError(ValueError):
    """A schedule is invalid. `str()` is one sentence: field, value, problem, remedy.

    `field` is the wrong parameter of `parse`: `schedule`, `timezone`, `dst_gap` or `dst_fold`.
    """

    def __init__(self, field: str, value: str, problem: str, remedy: str) -> None:
        super().__init__(field, value, problem, remedy)
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= _MAX_TEXT else self.value[:60] + "..."
        return f"{self.field} {shown!r}: {self.problem}; {self.remedy}"


# --- days --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Days:
    """The days that a schedule names: those that any walker names, or every day without walkers."""

    walkers: tuple[Any, ...]
    repeats_weekly: bool

    def on_or_after(self, day: int) -> int | None:
        """Return the first named day >= `day`, or None if there is none for 50 years."""
        if not self.walkers:
            return day
        if not self.repeats_weekly:
            return _search(self, day)
        same = _YEAR_2000 + (day - _YEAR_2000) % 7  # every week is like this one
        found = _search(self, same)
        return None if found is None else found + day - same

    def count(self, low: int, high: int) -> int:
        """Return the number of named days in [low, high)."""
        if not self.walkers:
            return max(0, high - low)
        if self.repeats_weekly and high - low > 7:
            weeks = (high - low) // 7
            return weeks * self.count(low, low + 7) + self.count(low + 7 * weeks, high)
        count = 0
        while (named := self.on_or_after(low)) is not None and named < high:
            count, low = count + 1, named + 1
        return count

    def shortest(self) -> int:
        """Return the shortest distance between two named days, in days."""
        return _shortest_days(self)


EVERY_DAY = Days((), True)


@lru_cache(maxsize=4096)
def _days(day_of_month: str, month: str, day_of_week: str, both: bool) -> Days:
    """Return the days on which both day fields match, or, if not `both`, either of them."""
    if day_of_month == month == day_of_week == "*":
        return EVERY_DAY
    # L needs a walker of its own: croniter would read L with 30 other values as all 31.
    others = ",".join(item for item in day_of_month.split(",") if item != "l")
    parts = [day_of_month]
    if others and others != day_of_month:
        parts = ["l", others]
    pairs = [(part, day_of_week if both else "*") for part in parts]
    if not both:
        pairs.append(("*", day_of_week))
    walkers = tuple(croniter(f"0 0 {d} {month} {w}", 0.0, day_or=False) for d, w in pairs)
    weekly = re.fullmatch(r"[0-7a-km-z,*/-]+", day_of_week) is not None  # neither '#' nor 'l'
    return Days(walkers, weekly and day_of_month == month == "*")


@lru_cache(maxsize=65_536)
def _search(days: Days, day: int) -> int | None:
    found = []
    for template in days.walkers:
        walker = copy.copy(template)  # a walker has a cursor, so each thread uses a copy
        try:
            found.append(int(walker.get_next(float, start_time=day * _DAY - 1.0)) // _DAY)
        except CroniterBadDateError:
            continue
        except (ValueError, LookupError, ArithmeticError) as error:
            text = " ".join(template.expressions)
            problem = f"croniter failed with {type(error).__name__}: {error}"
            raise CronError("schedule", text, problem, "write the days differently") from error
    return min(found, default=None)


@lru_cache(maxsize=4096)
def _shortest_days(days: Days) -> int:
    # The calendar repeats after 28 years, and after one week if the schedule names weekdays only.
    shortest, before = 28 * 365, days.on_or_after(_YEAR_2000)
    last = _YEAR_2000 + (28 if days.repeats_weekly else 30 * 366)
    while before is not None and shortest > 1:
        day = days.on_or_after(before + 1)
        if day is None or day > last:
            break
        shortest, before = min(shortest, day - before), day
    return shortest


# --- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of five or six fields, ascending: days, and the times of each day.

    `elapsed`: the minute or hour field begins with `*`. `warnings`: sentences for people.
    """

    days: Days
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    elapsed: bool
    warnings: tuple[str, ...]


def is_reboot(text: str) -> bool:
    """Return whether `text` is `@reboot`, whose firings are the boots of a host."""
    return text.strip().lower() == REBOOT


def read(text: str, *, day_or: bool, hash_id: bytes) -> Fields | int:
    """Return the values of the fields of `text`, or the period of `@every` in seconds.

    `H` is a hash of `hash_id`. Raises CronError.
    """
    if len(text) > _MAX_TEXT:
        problem = f"it has {len(text)} characters"
        raise CronError("schedule", text, problem, f"use at most {_MAX_TEXT}")
    every = re.fullmatch(r"\s*@every(?:\s+(.*?))?\s*", text, re.IGNORECASE | re.DOTALL)
    if every is not None:
        return _every(text, every[1] or "")
    fields = _fields(text)
    values = _expand(text, fields, hash_id)
    return Fields(
        days=_read_days(text, fields, values, day_or),
        hours=_values(values[2], 24),
        minutes=_values(values[1], 60),
        seconds=_values(values[0], 60),
        elapsed=fields[1].startswith("*") or fields[2].startswith("*"),
        warnings=_warnings(fields, values),
    )


def _every(text: str, written: str) -> int:
    """Return the period of `@every` in seconds."""
    remedy = "use whole seconds up to ten years, such as '@every 90s'"
    try:
        period = durations.parse(written)
    except durations.DurationError as error:
        raise CronError("schedule", text, f"the period {error.problem}", remedy) from error
    if period < _SECOND:
        raise CronError("schedule", text, "the period is shorter than a second", remedy)
    if period % _SECOND:
        raise CronError("schedule", text, "the period is not a whole number of seconds", remedy)
    if period > TEN_YEARS:
        raise CronError("schedule", text, "the period is longer than ten years", remedy)
    return period // _SECOND


def _fields(text: str) -> tuple[str, ...]:
    """Return the six fields, lower case, seconds first."""
    lowered = text.strip().lower()
    if lowered.startswith("@") and lowered not in _ALIASES:
        known = f"{', '.join(_ALIASES)}, {REBOOT}, @every 90s"
        raise CronError("schedule", text, "unknown alias", f"use one of {known}")
    fields = re.findall(r"\S+", _ALIASES.get(lowered, lowered), re.ASCII)
    if fields and "=" in fields[0]:
        remedy = "set the time zone with the job's timezone"
        raise CronError("schedule", text, "a schedule cannot contain variables", remedy)
    if len(fields) == 7:
        remedy = "omit the year, and end the job with ends_at"
        raise CronError("schedule", text, "it has 7 fields, and years are not supported", remedy)
    if len(fields) not in (5, 6):
        remedy = "use minute hour day-of-month month day-of-week, optionally with seconds first"
        raise CronError("schedule", text, f"it has {len(fields)} fields", remedy)
    six = tuple(fields) if len(fields) == 6 else ("0", *fields)
    for value, (name, *_) in zip(six, _FIELDS, strict=True):
        if re.search(r"(?:^|,)r(?:[(/,]|$)", value):
            problem = f"R in the {name} field would be a different time on each replica"
            raise CronError("schedule", text, problem, "use H, which is the same on all replicas")
    return six


def _expand(text: str, fields: tuple[str, ...], hash_id: bytes) -> list[list[int | str]]:
    """Return croniter's values of each field, seconds first. Raises CronError."""

    def expand(trial: list[str], strict: bool) -> list[list[int | str]]:
        joined = " ".join(_unwrapped(value, i) for i, value in enumerate(trial))
        values: list[list[int | str]]
        values, _ = croniter.expand(joined, hash_id, second_at_beginning=True, strict=strict)
        return [values[5], *values[:5]]

    try:
        return expand(list(fields), strict=True)
    except CroniterError:
        pass
    for i, (name, allowed, *_) in enumerate(_FIELDS):
        alone = ["*"] * 6
        alone[i] = fields[i]
        try:
            expand(alone, strict=False)
        except CroniterError:
            problem = f"invalid {name} field {fields[i]!r}"
            remedy = f"use {allowed}, a list, a range, a step (*/5) or H"
            raise CronError("schedule", text, problem, remedy) from None
    problem = f"day of month {fields[3]!r} never occurs in month {fields[4]!r}"
    raise CronError("schedule", text, problem, "use a day that the month has, or L for its last")


def _unwrapped(value: str, i: int) -> str:
    """Return the field with each wrapping range with a step replaced by its values.

    croniter is off by one after the end of the field: it would read `37-34/2` of minutes as even
    minutes after the hour, and `5-1/5` of hours without 01.
    """
    size, low_end = _FIELDS[i][2], 1 if i in (3, 4) else 0
    names = {4: _MONTHS, 5: {**_WEEKDAYS, "7": 0}}.get(i, {})

    def written_out(found: re.Match[str]) -> str:
        low, high = (
            names.get(end, int(end) if end.isdecimal() else -1) for end in found.groups()[:2]
        )
        step = int(found[3])
        if not high < low < low_end + size or high < 0 or step == 0:
            return found[0]
        walk = range(low, high + size + 1, step)
        return ",".join(str((number - low_end) % size + low_end) for number in walk)

    return re.sub(r"(?<![^,])(\w+)-(\w+)/(\d+)(?![^,])", written_out, value, flags=re.ASCII)


def _read_days(
    text: str, fields: tuple[str, ...], values: list[list[int | str]], day_or: bool
) -> Days:
    # Debian's rule: one matching day field is enough, unless one begins with '*' (or '?').
    both = not day_or or any(fields[i].startswith(("*", "?")) for i in (3, 5))
    written = [
        ",".join(map(str, values[i]))
        if fields[i].startswith("h")
        else _unwrapped(fields[i].replace("?", "*"), i)
        for i in (3, 4, 5)
    ]
    days = _days(*written, both)
    if days.on_or_after(_YEAR_2000) is None:
        problem = f"day of month {fields[3]!r} and day of week {fields[5]!r} never coincide"
        raise CronError("schedule", text, problem, "remove one of the two, or set day_or to true")
    return days


def _values(values: list[int | str], size: int) -> tuple[int, ...]:
    if "*" in values:
        return tuple(range(size))
    return tuple(int(value) for value in values)


def _warnings(fields: tuple[str, ...], values: list[list[int | str]]) -> tuple[str, ...]:
    warned = []
    for text, (name, _, size, cycle) in zip(fields, _FIELDS, strict=True):
        step = re.fullmatch(r"(?:\*|h)/(\d+)", text)
        # No */n of days divides a month, because months have different lengths.
        if step and int(step[1]) > 1 and (size == 31 or size % int(step[1])):
            warned.append(
                f"{text} in the {name} field restarts with each {cycle}, which {step[1]} does not "
                "divide, so the last step is shorter"
            )
        for low, high in re.findall(r"(?:^|,)(\w+)-(\w+)", text):
            a, b = (_NUMBERS.get(end, int(end) if end.isdecimal() else 0) for end in (low, high))
            if a == b:
                warned.append(
                    f"{low}-{high} in the {name} field means the whole field; "
                    f"write {low} for that single value"
                )
            elif a > b:
                warned.append(f"{low}-{high} in the {name} field wraps around the end of the field")
    if fields[3] == "h" and values[3][0] in (29, 30, 31):
        warned.append(f"H is day {values[3][0]}, which some months do not have; write H(1-28)")
    return tuple(warned)
