"""Runs of plan_times: what fires often is described by few of them, and not instant by instant."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import NamedTuple

_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)


class Parts:
    """Lengths of time after the base of a run, at least one, ascending, in whole seconds."""

    def __init__(self, lengths: Collection[timedelta]) -> None:
        self.lengths = tuple(lengths)

    @cached_property
    def seconds(self) -> tuple[int, ...]:
        """The lengths in seconds."""
        return tuple(length // _SECOND for length in self.lengths)


class Run(NamedTuple):
    """The plan_times `base + length` for each length of `parts`.

    The runs of equal hours share their parts, so that a schedule that fires every second has few.
    """

    base: datetime
    parts: Parts


@lru_cache(maxsize=64)
def parts_of_grid(period: timedelta) -> Parts:
    """Return the multiples of a period within an hour, at least the first one."""
    return Parts([n * period for n in range(max(1, _HOUR // period))])


@lru_cache(maxsize=64)
def parts_of_hour(minutes: tuple[int, ...], seconds: tuple[int, ...]) -> Parts:
    """Return these seconds of these minutes."""
    return Parts([timedelta(minutes=m, seconds=s) for m in minutes for s in seconds])


def run_of(instants: Collection[datetime]) -> Iterator[Run]:
    """Yield the run of these instants, if there are any."""
    if instants:
        base = min(instants)
        yield Run(base, Parts([instant - base for instant in sorted(instants)]))


def within(found: Iterable[Run], after: datetime, through: datetime) -> Iterator[Run]:
    """Yield the parts of runs that lie in (after, through]."""
    for base, parts in found:
        if after < base + parts.lengths[0] and base + parts.lengths[-1] <= through:
            yield Run(base, parts)
        elif some := [length for length in parts.lengths if after < base + length <= through]:
            yield Run(base, Parts(some))
