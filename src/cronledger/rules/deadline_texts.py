"""The texts of deadlines: a wall time (`06:00`, `06:00:30`) or a duration (`15m`).

`rules.deadlines` computes the instants that they mean.
"""

import re
from datetime import time, timedelta

from cronledger.rules import durations

REMEDY = "use a wall time such as '06:00', or a duration such as '15m'"
WALL_TIME = r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
PATTERN = rf"^\s*{WALL_TIME}\s*$|{durations.PATTERN}"
"""The texts that `parse` accepts, as a regular expression of JSON Schema."""

_WALL = re.compile(WALL_TIME)


def parse(text: str) -> time | timedelta:
    """Return the wall time or the duration that `text` means. Raises durations.DurationError."""
    plain = text.strip()
    if _WALL.fullmatch(plain):
        hour, minute, second = (int(part) for part in f"{plain}:0".split(":")[:3])
        return time(hour, minute, second)
    try:
        return durations.parse(text)
    except durations.DurationError as error:
        raise durations.DurationError(error.value, error.problem, REMEDY) from None


def normal(text: str) -> str:
    """Return the canonical text of a wall time or a duration. Raises durations.DurationError."""
    found = parse(text)
    return durations.format(found) if isinstance(found, timedelta) else _written(found)


def _written(wall: time) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
