"""Durations in text: `90s`, `1h30m`, `2d`, or ISO 8601 (`PT1H30M`).

A duration is a length of elapsed time and never negative. A day is 24 hours, and a week is 7 days.
Years and months are refused, because their length varies.
"""

import re
from datetime import timedelta

REMEDY = "use for example '90s', '5m', '1h30m', '2d', '1w', '500ms' or 'PT1H30M'"

PATTERN = (
    r"^\s*(0|(?=[0-9])([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?([0-9]+us)?"
    r"|P(?=[0-9T])([0-9]+W)?([0-9]+D)?"
    r"(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.,][0-9]{1,6})?S)?)?)\s*$"
)
"""The texts that `parse` accepts, as a regular expression of JSON Schema."""

_MICROSECONDS = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_COMPACT = re.compile("".join(rf"(?:([0-9]+){unit})?" for unit in _MICROSECONDS))
_ISO = re.compile(
    r"P(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]{1,6}))?S)?)?"
)


class DurationError(ValueError):
    """A duration is invalid. `str()` is one sentence with the value, the problem and the remedy."""

    def __init__(self, value: str, problem: str, remedy: str = REMEDY) -> None:
        super().__init__(value, problem, remedy)
        self.value = value
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 60 else self.value[:57] + "..."
        return f"duration {shown!r} {self.problem}; {self.remedy}"


def parse(text: str) -> timedelta:
    """Return the duration that `text` names, exact to the microsecond.

    Units are ordered from large to small, each at most once: `w d h m s ms us`. Only `0` needs no
    unit. Raises DurationError for any other text, also if timedelta cannot hold the duration.
    """
    plain = text.strip()
    if plain == "0":
        return timedelta(0)
    microseconds = _iso(text, plain) if plain.startswith("P") else _compact(text, plain)
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise DurationError(text, "is too long", "use at most '999999999d'") from None


def format(duration: timedelta) -> str:
    """Return the canonical text of `duration`: `1m30s`, `2w`, `10d`, `0s`.

    `parse(format(d)) == d`. Weeks are used only for whole weeks. Raises DurationError if `duration`
    is negative.
    """
    rest = duration // timedelta(microseconds=1)
    if rest < 0:
        raise DurationError(str(duration), "is negative", "use a duration of zero or more")
    if rest == 0:
        return "0s"
    whole_weeks = rest % _MICROSECONDS["w"] == 0
    parts = []
    for unit, size in _MICROSECONDS.items():
        if unit == "w" and not whole_weeks:
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _compact(text: str, plain: str) -> int:
    found = _COMPACT.fullmatch(plain)
    if not plain or found is None:
        problem = "has no unit" if plain.isascii() and plain.isdigit() else "is invalid"
        raise DurationError(text, problem)
    return sum(
        _number(text, digits) * size
        for digits, size in zip(found.groups(), _MICROSECONDS.values(), strict=True)
        if digits
    )


def _iso(text: str, plain: str) -> int:
    found = _ISO.fullmatch(plain)
    if found is None or not any(found.groups()):
        raise DurationError(text, "is not an ISO 8601 duration")
    years, months, *counts, fraction = found.groups()
    if years or months:
        raise DurationError(text, "contains years or months, whose length varies", "use days")
    whole = sum(
        _number(text, digits) * _MICROSECONDS[unit]
        for digits, unit in zip(counts, "wdhms", strict=True)
        if digits
    )
    return whole + int((fraction or "").ljust(6, "0"))


def _number(text: str, digits: str) -> int:
    if len(digits) > 20:
        raise DurationError(text, "is too long", "use at most '999999999d'")
    return int(digits)
