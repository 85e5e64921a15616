"""The parts of a crontab line: time fields, `%`, and a name for the job."""

import re
from collections.abc import Container
from pathlib import PurePath

from cronledger.sources.imported import NotImportedError, slug_of, unique

_RANGES = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day of month": (1, 31),
    "month": (1, 12),
    "day of week": (0, 6),  # 7 is Sunday again
}
_NAMES = {
    "month": "janfebmaraprmayjunjulaugsepoctnovdec",
    "day of week": "sunmontuewedthufrisat",
}
_VALUE = r"[0-9]{1,4}|[A-Za-z]{3}"
_ITEM = re.compile(rf"(?:\*|({_VALUE})(?:-({_VALUE}))?)(/[0-9]{{1,4}})?")
_RANDOM = re.compile(r"([0-9]{0,4})~([0-9]{0,4})(/[0-9]{1,4})?")


class NotCronError(NotImportedError):
    """A line is invalid in cron, or has no equivalent. `str()` names the value and the remedy."""


def time_fields(text: str) -> str:
    """Return the schedule for five fields of cron: `a~b` becomes `H(a-b)`, `a-a` becomes `a`.

    Raises NotCronError for items that cron refuses, or that a schedule would read differently:
    steps without a range, descending ranges, and the letters of other schedulers (`L`, `W`, `#`,
    `?`).
    """
    fields = re.split(r"[ \t]+", text)
    return " ".join(_field(what, field) for what, field in zip(_RANGES, fields, strict=True))


def _field(what: str, field: str) -> str:
    if "~" in field and "," in field:
        raise NotCronError(f"{what} {field!r}: ~ in a list has no equivalent; split the entry")
    return ",".join(_item(what, item) for item in field.split(","))


def _item(what: str, item: str) -> str:
    low, high = _RANGES[what]
    step: str | None
    if random := _RANDOM.fullmatch(item):
        begin, end, step = random[1] or str(low), random[2] or str(high), random[3]
        same, written = int(begin) == int(end), f"H({begin}-{end}){step or ''}"
    elif found := _ITEM.fullmatch(item):
        begin, end, step = found[1], found[2], found[3]
        if begin is None or end is step is None:
            return item
        if end is None:
            raise NotCronError(
                f"{what} {item!r} is a step without a range, which crons read differently; "
                f"write {begin}-{high}{step}, or only {begin}"
            )
        same, written = _value(what, begin) == _value(what, end), item
    else:
        raise NotCronError(
            f"{what} {item!r} is not valid in cron; use numbers, names, ranges, lists and steps"
        )
    if _value(what, begin) > _value(what, end):
        raise NotCronError(
            f"{what} {item!r} is descending, which cron refuses; write {begin}-{high},{low}-{end}"
        )
    return begin if same else written


def _value(what: str, word: str) -> int:
    """Return the number of a value. Names count from the low end of their field."""
    if word.isdigit():
        return int(word)
    at, odd = divmod(_NAMES.get(what, "").find(word.lower()), 3)
    if at < 0 or odd:
        raise NotCronError(f"{what} {word!r} is not a name in this field; use a number")
    return at + _RANGES[what][0]


def range_text(begin: int, end: int, step: int = 1) -> str:
    """Return an item for the values from `begin` to at most `end`; a single value is no range."""
    if begin + step > end:
        return str(begin)
    return f"{begin}-{end}" + (f"/{step}" if step > 1 else "")


def split_percent(text: str) -> tuple[str, list[str]]:
    r"""Return the command and the lines of its standard input: `%` ends a line, `\%` is a `%`."""
    command, *lines = (part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text))
    if lines and not lines[-1]:
        lines.pop()
    return command, lines


def job_name(file: str, command: str, taken: Container[str] = ()) -> str:
    """Return a name made of file and command, without directories, that is not in `taken`.

    It depends on nothing else, so that a repeated import of a crontab gives the same names.
    """
    stem = "" if file == "-" else slug_of(PurePath(file).stem)
    slug = slug_of(re.sub(r"\S*/", "", command)) or "job"
    if stem not in ("", "crontab") and not f"{slug}-".startswith(f"{stem}-"):
        slug = f"{stem}-{slug}"
    return unique(slug, taken)
