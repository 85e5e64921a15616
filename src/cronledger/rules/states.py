"""The times of one state of a scope: active, paused, retired, or its host absent."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from cronledger.rules.model import JobState, Revision, SkipReason
from cronledger.rules.plan_times import NEVER, TICK, back
from cronledger.rules.plans import Absence, Retirement, ScheduleRow


class MergedRetirements:
    """The retirements of a scope. Those that overlap or touch count as one."""

    def __init__(self, retirements: Sequence[Retirement]) -> None:
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []
        for start, returned in retirements:
            end = NEVER if returned is None else returned
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)

    def contain(self, due: datetime) -> bool:
        """Return whether what is due then is retired."""
        before = bisect_left(self._starts, due)
        return before > 0 and due <= self._ends[before - 1]

    def end_after(self, now: datetime) -> datetime | None:
        """Return when the retirement ends that holds the scope after `now`; None: none does."""
        before = bisect_right(self._starts, now)
        return self._ends[before - 1] if before > 0 and now < self._ends[before - 1] else None


class Span(NamedTuple):
    """A time of one state, up to and including `end`. `job_retired`: the job itself is retired."""

    end: datetime
    reason: SkipReason | None
    job_retired: bool


def spans_of(
    row: ScheduleRow,
    gone: MergedRetirements,
    revisions: Sequence[Revision],
    froms: Sequence[datetime],
    now: datetime,
) -> list[Span]:
    """Return the times of one state that cover (cursor, now]."""
    untils = (revision.paused_until for revision in revisions)
    graces = {revision.job.grace for revision in revisions}
    absent = (mark for gap in row.absences for mark in (gap.from_at, *_last_dues(gap, graces)))
    marks = (*froms[1:], *untils, *chain.from_iterable(row.retirements), *absent, now)
    ends = sorted({mark for mark in marks if mark and row.planned_through < mark <= now})
    # A state applies up to and including the instant of the next edit, hence bisect_left.
    states = [revisions[bisect_left(froms, end, lo=1) - 1] for end in ends]
    return [
        Span(end, _reason(gone, state, end, row.absences), state.state is JobState.RETIRED)
        for state, end in zip(states, ends, strict=True)
    ]


def _last_dues(absence: Absence, graces: Iterable[timedelta]) -> Iterator[datetime]:
    """Yield the last instant at which something is due whose grace ends in the absence."""
    return (back(absence.until_at, grace + TICK, absence.from_at) for grace in graces)


def _reason(
    gone: MergedRetirements, revision: Revision, due: datetime, absences: Sequence[Absence]
) -> SkipReason | None:
    if gone.contain(due) or revision.state is JobState.RETIRED:
        return SkipReason.RETIRED
    paused = revision.state is JobState.PAUSED
    if paused and (revision.paused_until is None or due <= revision.paused_until):
        return SkipReason.PAUSED
    grace = revision.job.grace
    if any(gap.from_at < due and gap.until_at - due > grace for gap in absences):
        return SkipReason.HOST_ABSENT
    return None
