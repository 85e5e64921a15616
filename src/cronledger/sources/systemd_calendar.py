"""Calendar events and time spans of systemd, as schedules and durations of a job."""

import re
from dataclasses import dataclass

from cronledger.sources.crontab_words import range_text
from cronledger.sources.imported import NotImportedError

_SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    **dict.fromkeys(
        ("semiannually", "semi-annually", "biannually", "bi-annually"), "*-01,07-01 00:00:00"
    ),
}
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_BOUNDS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12)}
_COMPONENT = re.compile(r"(\d{1,4})(?:\.0+)?(?:\.\.(\d{1,4})(?:\.0+)?)?(?:/(\d{1,4})(?:\.0+)?)?")
_DATE = re.compile(r"(?:([^-~]+)-)?([^-~]+)([-~])([^-~]+)")
_LAST_WEEK = ("07/1", "7/1", "01..07", "1..7")
_UNITS = {
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3,
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("M", "month", "months"), 2_629_800.0),
    **dict.fromkeys(("y", "year", "years"), 31_557_600.0),
}  # fmt: skip
_SPAN = re.compile(r"\s*(\d{1,9}(?:\.\d{0,9})?)\s*([A-Za-zµ]*)")


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """A schedule, and the zone that the event names, if any.

    `both`: day of month and day of week must both match.
    """

    schedule: str
    zone: str | None
    both: bool


def read_calendar(text: str, *, changes: bool) -> CalendarEvent:
    """Return the schedule of one `OnCalendar=`. Raises NotImportedError.

    `changes`: the clock of its zone may change. Systemd fires once in an hour that a clock change
    repeats, so no field of the time begins with `*`, which would fire twice.
    """
    words = text.split()
    zone = words.pop() if len(words) > 1 and _is_zone(words[-1]) else None
    changes = changes if zone is None else zone not in ("UTC", "Etc/UTC")
    if len(words) == 1 and words[0].lower() in _SHORTHANDS:
        words = _SHORTHANDS[words[0].lower()].split()
    weekdays = _weekdays(words.pop(0)) if words and words[0][0].isalpha() else None
    time = words.pop() if words and ":" in words[-1] else "00:00:00"
    date = words.pop() if words else "*-*-*"
    if words or not text.strip():
        raise NotImportedError(f"calendar event {text!r} is not valid; see systemd.time(7)")
    month, day, dow = _date(date, weekdays)
    schedule = f"{_time(time, changes)} {day} {month} {dow}"
    return CalendarEvent(schedule.removeprefix("0 "), zone, day != "*" and dow != "*")


def read_span(text: str) -> float:
    """Return the seconds of a time span such as `1h 30min`. Raises NotImportedError."""
    total, at = 0.0, 0
    while found := _SPAN.match(text, at):
        if found[2] not in _UNITS:
            break
        total, at = total + float(found[1]) * _UNITS[found[2]], found.end()
    if not text.strip() or text[at:].strip():
        raise NotImportedError(f"{text!r} is not a time span; use one such as 1h 30min")
    return total


def _is_zone(word: str) -> bool:
    return word == "UTC" or ("/" in word and word[0].isalpha())


def _weekdays(text: str) -> list[int]:
    days: set[int] = set()
    for item in text.split(","):
        first, separator, last = item.partition(".." if ".." in item else "-")
        begin, end = _weekday(first), _weekday(last if separator else first)
        if (end or 7) < (begin or 7):
            raise NotImportedError(f"weekdays {item!r} are descending; write two ranges")
        days.update(day % 7 for day in range(begin or 7, (end or 7) + 1))
    return sorted(days)


def _weekday(word: str) -> int:
    for number, name in enumerate(_WEEKDAYS):
        if word.lower() in (name, name[:3]):
            return number
    raise NotImportedError(f"{word!r} is not a weekday; use a name such as Mon")


def _date(text: str, weekdays: list[int] | None) -> tuple[str, str, str]:
    """Return the fields month, day of month and day of week."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise NotImportedError(f"date {text!r} is not valid; write it like *-*-01")
    if found[1] not in (None, "*"):
        raise NotImportedError(
            f"date {text!r} names years, which a schedule does not have; leave them out, and set "
            "starts_at and ends_at"
        )
    month, day = _field("month", found[2]), found[4]
    dow = "*" if weekdays is None or len(weekdays) == 7 else ",".join(map(str, weekdays))
    if found[3] == "-":
        return month, _field("day", day), dow
    if day.lstrip("0") == "1":
        return month, "L", dow
    if weekdays and day in _LAST_WEEK:
        return month, "*", ",".join(f"L{number}" for number in weekdays)
    raise NotImportedError(
        f"date {text!r} counts days from the end of a month; only ~01, and the last weekday as in "
        "Mon *-*~07/1, have an equivalent"
    )


def _time(text: str, changes: bool) -> str:
    """Return the fields second, minute and hour."""
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise NotImportedError(f"time {text!r} is not valid; write it like 04:30:00")
    hour, minute, second = (*parts, "0")[:3]
    fields = [_field("second", second), _field("minute", minute), _field("hour", hour)]
    if changes:
        fields[1:] = [
            field if field != "*" else "{}-{}".format(*_BOUNDS[what])
            for what, field in zip(("minute", "hour"), fields[1:], strict=True)
        ]
    return " ".join(fields)


def _field(what: str, text: str) -> str:
    return "*" if text == "*" else ",".join(_item(what, item) for item in text.split(","))


def _item(what: str, item: str) -> str:
    low, high = _BOUNDS[what]
    found = _COMPONENT.fullmatch(item)
    if found is None:
        hint = "; a schedule has whole seconds" if what == "second" and "." in item else ""
        raise NotImportedError(f"{what} {item!r} has no equivalent{hint}; see systemd.time(7)")
    begin = int(found[1])
    end = int(found[2]) if found[2] else high if found[3] else begin
    step = int(found[3] or 1)
    # Systemd refuses a step that leaves the field, unless a range ends before.
    leaves = found[3] is not None and found[2] is None and step > high - begin
    if begin < low or end > high or begin > end or step == 0 or leaves:
        raise NotImportedError(f"{what} {item!r} is not in {low}-{high}; correct it")
    return range_text(begin, end, step)
