"""When a schedule fires: cron text and a zone in, UTC instants out.

croniter reads the text and walks naive local days; nothing else imports it. The days it names are
crossed with the hours, minutes and seconds it expanded, and wall time becomes UTC here, one piece
of constant UTC offset at a time: croniter's own zone arithmetic errs around clock changes.

Internally an instant is an int, seconds since 1970 UTC. A *wall* is the same count on the local
clock (wall = instant + offset), a *day* is wall // 86400. Instants outside 1900..9899 are never
walked. Zone data comes from the tzdata package alone, so that replicas with one wheel agree.
"""

import copy
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib import metadata, resources
from itertools import pairwise
from typing import Any, Literal
from zoneinfo import ZoneInfo

import tzdata
from croniter import CroniterBadDateError, CroniterError, croniter

from cronledger.rules import durations

FINGERPRINT: dict[str, str] = {
    "croniter": metadata.version("croniter"),
    "tzdata": tzdata.IANA_VERSION,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIRST = (datetime(1900, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND
_LAST = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND - 1
_TEN_YEARS = timedelta(days=3653)
_DAY = 86_400
_YEAR_2000 = 10_957  # days
_HOUR = 3_600
_LONG_GAP = 3 * _HOUR
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
_NUMBERS = {
    **{"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6},
    **{"jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12},
    **{"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6},
    "l": 31,
}
# Fields as users write them: seconds first. (name, values, size, what the field starts anew with)
_FIELDS = (
    ("second", "0-59", 60, "minute"),
    ("minute", "0-59", 60, "hour"),
    ("hour", "0-23", 24, "day"),
    ("day of month", "1-31, L, 15W", 31, "month"),
    ("month", "1-12, jan-dec", 12, "year"),
    ("day of week", "0-7, sun-sat, mon#1, L5", 7, "week"),
)


class CronError(ValueError):
    """A schedule that cannot be honoured; `str()` is one sentence: field, value, problem, remedy.

    `field` is the parameter of `parse` at fault (`schedule`, `timezone`, `dst_gap`, `dst_fold`).
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


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing: `plan_time` in UTC, `local` the same instant in the schedule's zone.

    `shifted`: its wall time was swallowed by a gap and it fires right after. `folded`: its wall
    time occurs twice; `local.fold` tells which pass this is.
    """

    plan_time: datetime
    local: datetime
    shifted: bool
    folded: bool


# --- zones -------------------------------------------------------------------------------------

_BLOCK = 2**25  # seconds, about 388 days: how much of a zone is searched for changes at a time


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    if name not in _zone_names():
        close = get_close_matches(name, _zone_names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "write a name such as 'Europe/Berlin'"
        known = f"no zone of that name in tzdata {FINGERPRINT['tzdata']}"
        raise CronError("timezone", name, known, hint)
    with resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _offset(zone: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return offset // _SECOND


@lru_cache(maxsize=16_384)
def _changes(zone: ZoneInfo, block: int) -> tuple[tuple[int, int], ...]:
    """Return (instant, new offset) of every change of offset in [block, block + 1) * _BLOCK.

    Looks once a day, then bisects: no zone since 1900 changes twice within six days.
    """
    found = []
    before = block * _BLOCK - 1
    offset = _offset(zone, before)
    last = before + _BLOCK
    while before < last:
        after = min(before + _DAY, last)
        new = _offset(zone, after)
        if new != offset:
            low, high = before, after
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            found.append((high, new))
        before, offset = after, new
    return tuple(found)


def _pieces(zone: ZoneInfo, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut [low, high) into (start, end, offset, jump), lazily; no change lies inside a piece.

    `jump` is by how many seconds the local clock leaps at `start`: > 0 a gap, < 0 a fold.
    """
    start, offset, jump = low, _offset(zone, low), 0
    for block in range(low // _BLOCK, (high - 1) // _BLOCK + 1):
        for change, new in _changes(zone, block):
            if low < change < high:
                yield start, change, offset, jump
                start, offset, jump = change, new, new - offset
        end = min((block + 1) * _BLOCK, high)
        yield start, end, offset, jump
        start, jump = end, 0


# --- days --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Days:
    """The days a schedule names: the union of what the walkers name, every day if there is none."""

    walkers: tuple[Any, ...]
    repeats_weekly: bool

    def on_or_after(self, day: int) -> int | None:
        """Return the first named day >= `day`; None when there is none for 50 years."""
        if not self.walkers:
            return day
        if not self.repeats_weekly:
            return _search(self, day)
        same = _YEAR_2000 + (day - _YEAR_2000) % 7  # a day of one week stands for all the others
        found = _search(self, same)
        return None if found is None else found + day - same


@lru_cache(maxsize=4096)
def _days(day_of_month: str, month: str, day_of_week: str, both: bool) -> _Days:
    """Build the days where `both` day fields match, or (not `both`) either does."""
    if day_of_month == month == day_of_week == "*":
        return _Days((), True)
    pairs = [(day_of_month, day_of_week)]
    if not both:
        pairs = [(day_of_month, "*"), ("*", day_of_week)]
    walkers = tuple(croniter(f"0 0 {d} {month} {w}", 0.0, day_or=False) for d, w in pairs)
    weekly = re.fullmatch(r"[0-7a-km-z,*/-]+", day_of_week) is not None  # neither '#' nor 'l'
    return _Days(walkers, weekly and day_of_month == month == "*")


@lru_cache(maxsize=65_536)
def _search(days: _Days, day: int) -> int | None:
    found = []
    for template in days.walkers:
        walker = copy.copy(template)  # its cursor is ours alone: other threads copy their own
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
def _shortest_days(days: _Days) -> int:
    """Return the least distance of two named days, in days.

    A calendar of 28 years holds every kind of year beside every other, one of weeks repeats.
    """
    shortest, before = 28 * 365, days.on_or_after(_YEAR_2000)
    last = _YEAR_2000 + (28 if days.repeats_weekly else 30 * 366)
    while before is not None and shortest > 1:
        day = days.on_or_after(before + 1)
        if day is None or day > last:
            break
        shortest, before = min(shortest, day - before), day
    return shortest


# --- rules -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Every:
    """`@every`: multiples of `period` seconds since the epoch, whatever the zone."""

    period: int

    def instants(self, low: int, high: int) -> Iterator[int]:
        return iter(range(low + -low % self.period, high, self.period))

    def names(self, wall: int) -> bool:
        return True

    def shortest(self) -> int:
        return self.period


@dataclass(frozen=True, slots=True)
class _Calendar:
    """Five or six fields in a zone; `shift` and `both` matter only to fixed times."""

    zone: ZoneInfo
    days: _Days
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    elapsed: bool
    shift: bool
    both: bool

    def instants(self, low: int, high: int) -> Iterator[int]:
        """Walk the firings in [low, high), ascending."""
        repeated_until = low - 3 * _DAY  # below every wall of this walk
        # Two days back: a fold just before `low` still decides what is a second pass.
        for start, end, offset, jump in _pieces(self.zone, low - 2 * _DAY, high):
            if jump < 0 and not self.elapsed and not self.both:
                repeated_until = start + offset - jump
            if end <= low:
                continue
            begin = start + offset
            if start >= low and self._fires_after_gap(begin, jump):
                yield start
            for wall in self.walls(max(low + offset, begin, repeated_until), end + offset):
                yield wall - offset

    def _fires_after_gap(self, begin: int, jump: int) -> bool:
        if not self.shift or self.elapsed or not 0 < jump < _LONG_GAP:
            return False
        swallowed = next(self.walls(begin - jump, begin), None)
        return swallowed is not None and not self.names(begin)

    def names(self, wall: int) -> bool:
        return next(self.walls(wall, wall + 1), None) is not None

    def walls(self, low: int, high: int) -> Iterator[int]:
        """Walk the named walls in [low, high), whether or not they exist in the zone."""
        day, second = divmod(low, _DAY)
        while (named := self.days.on_or_after(day)) is not None and named * _DAY < high:
            midnight = named * _DAY
            for time in self._times(second if named == day else 0):
                if midnight + time >= high:
                    return
                yield midnight + time
            day, second = named + 1, 0

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
        """Return the least distance of two named walls, from the fields, in seconds."""
        closest, first, last = 2**62, 0, 0
        for values, unit in ((self.seconds, 1), (self.minutes, 60), (self.hours, _HOUR)):
            for a, b in pairwise(values):
                closest = min(closest, (b - a) * unit + first - last)
            first, last = first + values[0] * unit, last + values[-1] * unit
        if closest <= _DAY + first - last:
            return closest
        return min(closest, _shortest_days(self.days) * _DAY + first - last)


@dataclass(slots=True)
class _Memo:
    """The last answer of next_after: (asked, firing), one reference, replaced whole."""

    answer: tuple[datetime, Firing] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Cron:
    """A schedule in its zone, as `parse` builds it; shared and safe between threads.

    `elapsed`: the minute or hour field begins with `*` (or it is `@every`), so that both passes of
    a fold fire and nothing inside a gap does. `warnings`: sentences about what surprises people.
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
        """The least distance of two neighbours on the local clock: no two are named closer.

        Exact for `@every`; otherwise from the expanded fields and, when it takes more than a day,
        the closest named days of 28 years. A clock change can bring neighbours closer than this.
        """
        return timedelta(seconds=self._rule.shortest())

    def firings(self, after: datetime, through: datetime) -> Iterator[Firing]:
        """Walk the firings with plan_time in (after, through], lazily and strictly ascending.

        Both are aware. Raises CronError when croniter fails or goes backwards.
        """
        for instant in self._instants(after, through):
            local = datetime.fromtimestamp(instant, self._zone)
            twin = local.replace(fold=1 - local.fold)
            yield Firing(
                plan_time=datetime.fromtimestamp(instant, UTC),
                local=local,
                shifted=not self._rule.names(instant + _offset(self._zone, instant)),
                folded=local.utcoffset() != twin.utcoffset(),
            )

    def plan_times(self, after: datetime, through: datetime) -> Iterator[datetime]:
        """Walk the same plan_times as `firings`, faster: aware UTC datetimes only."""
        for instant in self._instants(after, through):
            yield datetime.fromtimestamp(instant, UTC)

    def next_after(self, after: datetime, horizon: datetime | None = None) -> Firing | None:
        """Return the first firing strictly after `after`, up to and including `horizon`.

        None when there is none; without `horizon`, none within ten years.
        """
        through = after + _TEN_YEARS if horizon is None else horizon
        memo = self._memo.answer
        if memo is not None and memo[0] <= after < memo[1].plan_time:
            return memo[1] if memo[1].plan_time <= through else None
        firing = next(self.firings(after, through), None)
        if firing is not None:
            # A race between threads loses an answer, never mixes two.
            self._memo.answer = (after, firing)
        return firing

    def _instants(self, after: datetime, through: datetime) -> Iterator[int]:
        low = max((after - _EPOCH) // _SECOND + 1, _FIRST)
        high = min((through - _EPOCH) // _SECOND, _LAST) + 1
        if low >= high:
            return
        last = low - 1
        for instant in self._rule.instants(low, high):
            if instant <= last:
                problem = f"the firing at {instant} s does not come after the one at {last} s"
                raise CronError("schedule", self.text, problem, "report this as a defect")
            last = instant
            yield instant


# --- reading -----------------------------------------------------------------------------------


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

    Five fields, six (seconds first), an alias such as `@daily`, or `@every` with a duration of
    whole seconds. `H` is drawn from (job, scope) and never changes. Raises CronError.
    """
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
    zone = _zone(timezone)
    if dst_gap not in ("shift", "skip"):
        raise CronError("dst_gap", dst_gap, "unknown policy", "write 'shift' or 'skip'")
    if dst_fold not in ("first", "both"):
        raise CronError("dst_fold", dst_fold, "unknown policy", "write 'first' or 'both'")
    if len(text) > _MAX_TEXT:
        problem = f"{len(text)} characters long"
        raise CronError("schedule", text, problem, f"write at most {_MAX_TEXT} characters")
    every = re.fullmatch(r"\s*@every(?:\s+(.*?))?\s*", text, re.IGNORECASE | re.DOTALL)
    if every is not None:
        period = _every(text, every[1] or "")
        warned = _every_warnings(period, timezone)
        return Cron(text, timezone, warned, True, True, zone, _Every(period))
    fields = _fields(text)
    values = _expand(text, fields, f"{job}\0{scope}".encode())
    calendar = _Calendar(
        zone=zone,
        days=_read_days(text, fields, values, day_or),
        hours=_values(values[2], 24),
        minutes=_values(values[1], 60),
        seconds=_values(values[0], 60),
        elapsed=fields[1].startswith("*") or fields[2].startswith("*"),
        shift=dst_gap == "shift",
        both=dst_fold == "both",
    )
    return Cron(text, timezone, _warnings(fields, values), calendar.elapsed, False, zone, calendar)


def _every(text: str, written: str) -> int:
    """Return the period of `@every` in seconds."""
    remedy = "write whole seconds up to ten years, for example '@every 90s'"
    try:
        period = durations.parse(written)
    except durations.DurationError as error:
        raise CronError("schedule", text, f"the period {error.problem}", remedy) from error
    if period < _SECOND:
        raise CronError("schedule", text, "the period is shorter than a second", remedy)
    if period % _SECOND:
        raise CronError("schedule", text, "the period has a fraction of a second", remedy)
    if period > _TEN_YEARS:
        raise CronError("schedule", text, "the period is longer than ten years", remedy)
    return period // _SECOND


def _fields(text: str) -> tuple[str, ...]:
    """Return the six fields, lower case, seconds first."""
    lowered = text.strip().lower()
    if lowered.startswith("@") and lowered not in _ALIASES:
        problem, remedy = "unknown alias", f"write one of {', '.join(_ALIASES)}, @every 90s"
        if lowered == "@reboot":
            problem = "replicas come and go, so there is no reboot to wait for"
            remedy = "trigger the job when you deploy, or give it a time"
        raise CronError("schedule", text, problem, remedy)
    fields = re.findall(r"\S+", _ALIASES.get(lowered, lowered), re.ASCII)
    if fields and "=" in fields[0]:
        remedy = "give the zone as the job's timezone"
        raise CronError("schedule", text, "variables do not belong in a schedule", remedy)
    if len(fields) == 7:
        remedy = "leave the year out and end the job with ends_at"
        raise CronError("schedule", text, "seven fields: years are not supported", remedy)
    if len(fields) not in (5, 6):
        remedy = "write minute hour day-of-month month day-of-week, seconds before them if needed"
        raise CronError("schedule", text, f"{len(fields)} fields instead of 5 or 6", remedy)
    six = tuple(fields) if len(fields) == 6 else ("0", *fields)
    for value, (name, *_) in zip(six, _FIELDS, strict=True):
        if re.search(r"(?:^|,)r(?:[(/,]|$)", value):
            problem = f"R in the {name} field would draw another time on each replica"
            raise CronError("schedule", text, problem, "write H, which is drawn once per job")
    return six


def _expand(text: str, fields: tuple[str, ...], hash_id: bytes) -> list[list[int | str]]:
    """Return croniter's values per field, seconds first; refuse what can never occur."""

    def expand(trial: list[str], strict: bool) -> list[list[int | str]]:
        joined = " ".join(trial)
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
            problem = f"the {name} field {fields[i]!r} cannot be read"
            remedy = f"write values out of {allowed}, lists, ranges, steps (*/5) or H"
            raise CronError("schedule", text, problem, remedy) from None
    problem = f"day of month {fields[3]!r} never occurs in month {fields[4]!r}"
    raise CronError("schedule", text, problem, "choose a day that month has, or L for its last")


def _read_days(
    text: str, fields: tuple[str, ...], values: list[list[int | str]], day_or: bool
) -> _Days:
    # Debian's rule: either day field is enough, unless one begins with '*' ('?' is another '*').
    both = not day_or or any(fields[i].startswith(("*", "?")) for i in (3, 5))
    written = [
        ",".join(map(str, values[i])) if fields[i].startswith("h") else fields[i].replace("?", "*")
        for i in (3, 4, 5)
    ]
    days = _days(*written, both)
    if days.on_or_after(_YEAR_2000) is None:
        problem = f"day of month {fields[3]!r} and day of week {fields[5]!r} never meet"
        raise CronError("schedule", text, problem, "drop one of the two, or let day_or be true")
    return days


def _values(values: list[int | str], size: int) -> tuple[int, ...]:
    if "*" in values:
        return tuple(range(size))
    return tuple(int(value) for value in values)


def _every_warnings(period: int, timezone: str) -> tuple[str, ...]:
    warned = []
    if period % (7 * _DAY) == 0:
        warned.append("@every counts from 1970-01-01: whole weeks fire on Thursdays at 00:00 UTC")
    if timezone not in ("UTC", "Etc/UTC"):
        warned.append(f"@every is a grid in UTC: timezone {timezone!r} does not move it")
    return tuple(warned)


def _warnings(fields: tuple[str, ...], values: list[list[int | str]]) -> tuple[str, ...]:
    warned = []
    for text, (name, _, size, cycle) in zip(fields, _FIELDS, strict=True):
        step = re.fullmatch(r"(?:\*|h)/(\d+)", text)
        # No */n of days of a month divides it: months differ.
        if step and int(step[1]) > 1 and (size == 31 or size % int(step[1])):
            warned.append(
                f"{text} in the {name} field starts anew with each {cycle}: "
                f"{step[1]} does not divide it, so one step is shorter"
            )
        for low, high in re.findall(r"(?:^|,)(\w+)-(\w+)", text):
            a, b = (_NUMBERS.get(end, int(end) if end.isdecimal() else 0) for end in (low, high))
            if a == b:
                warned.append(
                    f"{low}-{high} in the {name} field means the whole field: "
                    f"write {low} for that value alone"
                )
            elif a > b:
                warned.append(f"{low}-{high} in the {name} field wraps around the end of the field")
    if fields[3] == "h" and values[3][0] in (29, 30, 31):
        warned.append(f"H drew day {values[3][0]}, which not every month has: write H(1-28)")
    return tuple(warned)
