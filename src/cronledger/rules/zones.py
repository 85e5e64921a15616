"""Zones: their data, and the stretches of constant UTC offset that a walk goes along.

Zone data comes from the tzdata package alone, so that replicas with one wheel agree; nothing else
imports it. An instant is an int, seconds since 1970 UTC; an offset is in seconds east of UTC.
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
_BLOCK = 2**25  # seconds, about 388 days: how much of a zone is searched for changes at a time


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


@lru_cache(maxsize=1024)
def named(name: str) -> ZoneInfo:
    """Return the zone, equal names the same object. Raises CronError when tzdata has none."""
    if name not in _zone_names():
        close = get_close_matches(name, _zone_names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "write a name such as 'Europe/Berlin'"
        known = f"no zone of that name in tzdata {VERSION}"
        raise CronError("timezone", name, known, hint)
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

    Looks once a day, then bisects: no zone since 1900 changes twice within six days.
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
    """Cut [low, high) into (start, end, offset, jump), lazily; no change lies inside a piece.

    `jump` is by how many seconds the local clock leaps at `start`: > 0 a gap, < 0 a fold.
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
