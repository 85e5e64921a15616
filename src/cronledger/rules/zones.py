"""Time zones, and their periods of constant UTC offset.

Zone data comes only from the tzdata package, so that replicas with the same version agree. No other
module imports it. An instant is an int, seconds since 1970 UTC. An offset is in seconds east of
UTC.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import tzdata

from cronledger.rules.cron_fields import CronError

VERSION: str = tzdata.IANA_VERSION

_SECOND = timedelta(seconds=1)
_DAY = 86_400
_BLOCK = 2**25  # seconds, about 388 days: the part of a zone that one search for changes covers


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


@lru_cache(maxsize=1024)
def named(name: str) -> ZoneInfo:
    """Return the zone: the same object for equal names. Raises CronError if it is unknown."""
    if name not in _zone_names():
        close = get_close_matches(name, _zone_names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "use a name such as 'Europe/Berlin'"
        problem = f"unknown time zone (tzdata {VERSION})"
        raise CronError("timezone", name, problem, hint)
    with resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def offset_at(zone: ZoneInfo, instant: int) -> int:
    """Return the UTC offset that holds at `instant`."""
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return offset // _SECOND


@lru_cache(maxsize=16_384)
def _changes(zone: ZoneInfo, block: int) -> tuple[tuple[int, int], ...]:
    """Return (instant, new offset) of every change of offset in [block, block + 1) * _BLOCK.

    Compares the offsets of neighbouring days, then bisects. This finds every change, because no
    zone since 1900 changes twice within six days.
    """
    found = []
    before = block * _BLOCK - 1
    offset = offset_at(zone, before)
    last = before + _BLOCK
    while before < last:
        after = min(before + _DAY, last)
        new = offset_at(zone, after)
        if new != offset:
            low, high = before, after
            while high - low > 1:
                middle = (low + high) // 2
                if offset_at(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            found.append((high, new))
        before, offset = after, new
    return tuple(found)


def pieces(zone: ZoneInfo, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield [low, high) as pieces (start, end, offset, jump) of constant offset, lazily.

    `jump` is the change of the local clock at `start` in seconds: > 0 for a gap, < 0 for a fold.
    """
    start, offset, jump = low, offset_at(zone, low), 0
    for block in range(low // _BLOCK, (high - 1) // _BLOCK + 1):
        for change, new in _changes(zone, block):
            if low < change < high:
                yield start, change, offset, jump
                start, offset, jump = change, new, new - offset
        end = min((block + 1) * _BLOCK, high)
        yield start, end, offset, jump
        start, jump = end, 0
