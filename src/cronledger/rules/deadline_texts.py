"""The texts of deadlines: a wall time (`06:00`, `06:00:30`), a duration (`15m`) or, of an attempt,
a multiple of a quantile of earlier durations (`2*p95`).

`rules.deadlines` computes the instants that they mean.
"""

import re
from datetime import time, timedelta
from typing import NamedTuple

from cronledger.rules import durations
from cronledger.rules.limits import LONGEST

REMEDY = "use a wall time such as '06:00', or a duration such as '15m'"
WALL_TIME = r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
PATTERN = rf"^\s*{WALL_TIME}\s*$|{durations.PATTERN}"
"""The form of the texts that `parse` accepts, as a regular expression of JSON Schema."""

QUANTILE = r"([1-9][0-9]?(\.[0-9]{1,3})?\s*\*\s*)?p[1-9][0-9]"
EXPECTED_PATTERN = rf"^\s*{QUANTILE}\s*$|{durations.PATTERN}"
"""The form of the texts that `parse_expected` accepts, as a regular expression of JSON Schema."""
EXPECTED_REMEDY = "use a duration such as '90s', or a multiple of a quantile such as '2*p95'"

_WALL = re.compile(WALL_TIME)
_QUANTILE = re.compile(QUANTILE)


class Quantile(NamedTuple):
    """`factor` times the quantile `fraction` (0 to 1) of earlier durations."""

    fraction: float
    factor: float


def parse(text: str) -> time | timedelta:
    """Return the wall time or the duration that `text` means. Raises durations.DurationError."""
    plain = text.strip()
    if _WALL.fullmatch(plain):
        hour, minute, second = (int(part) for part in f"{plain}:0".split(":")[:3])
        return time(hour, minute, second)
    return _length(text, REMEDY)


def parse_expected(text: str) -> timedelta | Quantile:
    """Return what `text` means as `expect_duration`. Raises durations.DurationError."""
    plain = text.strip()
    if _QUANTILE.fullmatch(plain):
        factor, _, quantile = plain.rpartition("*")
        return Quantile(int(quantile.strip()[1:]) / 100, float(factor or 1))
    return _length(text, EXPECTED_REMEDY)


def _length(text: str, remedy: str) -> timedelta:
    try:
        length = durations.parse(text)
    except durations.DurationError as error:
        raise durations.DurationError(error.value, error.problem, remedy) from None
    if not length:
        problem = "is zero, so that every plan_time would miss it"
        raise durations.DurationError(text, problem, "use at least '1s'")
    if length > LONGEST:
        problem = "is longer than 100 years"
        raise durations.DurationError(text, problem, "use a shorter duration")
    return length


def normal_expected(text: str) -> str:
    """Return the canonical text of an `expect_duration`. Raises durations.DurationError."""
    found = parse_expected(text)
    if isinstance(found, timedelta):
        return durations.format(found)
    quantile = f"p{round(found.fraction * 100)}"
    return quantile if found.factor == 1 else f"{found.factor:g}*{quantile}"


def normal(text: str) -> str:
    """Return the canonical text of a wall time or a duration. Raises durations.DurationError."""
    found = parse(text)
    return durations.format(found) if isinstance(found, timedelta) else _written(found)


def _written(wall: time) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
