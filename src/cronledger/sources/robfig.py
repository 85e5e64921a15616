"""Schedules of robfig/cron, which Kubernetes uses, as schedules of a job.

Its five fields differ from those of Debian's cron: `?` is `*`, `5/15` has an end, `7` is not a
weekday, and only `*` itself makes day of month and day of week match both. So `*/2` does not.
"""

import re
from dataclasses import dataclass

from cronledger.sources.crontab_words import range_text
from cronledger.sources.imported import NotImportedError

_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 0, 6),
)
_DAYS = ("day of month", "day of week")
_NAMES = {
    "month": "jan feb mar apr may jun jul aug sep oct nov dec".split(),  # noqa: SIM905
    "day of week": "sun mon tue wed thu fri sat".split(),  # noqa: SIM905
}
_VALUE = r"[0-9]{1,4}|[A-Za-z]{3}"
_ITEM = re.compile(rf"(?:([*?])|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]{{1,4}}))?")
_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S*)\s+(.*)", re.DOTALL)
_DESCRIPTORS = {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(h|ms|us|µs|ns|m|s)"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`zone`: that of a prefix `TZ=`. `every`: it counts from its start, not on the clock."""

    text: str
    zone: str | None = None
    every: bool = False


def read_schedule(text: str) -> Schedule:
    """Return the schedule for a text of robfig/cron. Raises NotImportedError."""
    if found := _PREFIX.fullmatch(text):
        inner = read_schedule(found[2].strip())
        return Schedule(inner.text, found[1], inner.every)
    if text.startswith("@every "):
        return Schedule(f"@every {_seconds(text.removeprefix('@every '))}s", every=True)
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            known = ", ".join(sorted(_DESCRIPTORS))
            raise NotImportedError(f"{text!r} is not a descriptor; use one of {known}, @every 1h")
        return Schedule(text)
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise NotImportedError(f"schedule {text!r} has {len(fields)} fields; use five")
    return Schedule(
        " ".join(_field(*one, field) for one, field in zip(_FIELDS, fields, strict=True))
    )


def _field(what: str, low: int, high: int, field: str) -> str:
    items = [_item(what, low, high, item) for item in field.split(",") if item]
    if not items:
        raise NotImportedError(f"{what} {field!r} is empty; use a value or *")
    return "*" if "*" in items else ",".join(items)


def _item(what: str, low: int, high: int, item: str) -> str:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise NotImportedError(
            f"{what} {item!r} is not valid in Kubernetes; use numbers, names, ranges, lists, steps"
        )
    star, first, last, step = found[1], found[2], found[3], int(found[4] or 1)
    begin = low if star else _number(what, first)
    end = high if star or (last is None and found[4]) else _number(what, last or first)
    if begin < low or end > high or begin > end or step == 0:
        raise NotImportedError(f"{what} {item!r} is not a range in {low}-{high}; correct it")
    if star and step == 1:
        return "*"
    if star and what not in _DAYS and begin + step <= end:
        return f"*/{step}"
    return range_text(begin, end, step)


def _number(what: str, word: str) -> int:
    if word.isdecimal():
        return int(word)
    names = _NAMES.get(what, [])
    if word.lower() not in names:
        raise NotImportedError(f"{what} {word!r} is not a name in this field; use a number")
    return names.index(word.lower()) + (1 if what == "month" else 0)


def _seconds(duration: str) -> int:
    """Return the whole seconds of a duration of Go, at least one."""
    if not re.fullmatch(rf"\+?(?:{_PART})+", duration):
        raise NotImportedError(
            f"'@every {duration}' has an invalid duration; use one such as 1h30m"
        )
    parts = re.findall(_PART, duration)
    return max(1, int(sum(float(number) * _UNITS[unit] for number, unit in parts) + 1e-9))
