"""Which plan_time the reported runs of an observed job belong to.

A run may start from TOLERANCE before its plan_time to `grace` after it; before it only if no
earlier plan_time is as near. In the order of their starts, each report takes the nearest plan_time
that is free. Also free are plan_times that were skipped as `not_reported`, because a report may be
delivered late. A report that finds none is an execution beside the schedule. A report that the next
plan_time may be nearest to waits for it.

So the result does not depend on the instant of the claim: a plan_time that becomes known later
never was nearer to a report that has been decided.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from cronledger.rules.model import Revision, Trigger
from cronledger.rules.plan_times import TICK, cron_of
from cronledger.rules.plans import Report, Reported, ScheduleRow, Unreported
from cronledger.rules.timeline import Planned

TOLERANCE = timedelta(seconds=5)
"""How much earlier than its plan_time a run may start, because clocks differ. Also in the SQL
function unmatched_reports."""
MOST = 500
"""The reports of a schedule that a claim reads at most."""
_MOST_LATE = 10_000


class _Free(NamedTuple):
    """A plan_time without a report. `late`: it is skipped already."""

    plan_time: datetime
    revision: Revision
    late: bool


@dataclass(slots=True)
class Matching:
    """The reports of one schedule row, matched with its plan_times.

    `of`: the report of each plan_time after the cursor. `beside`: the executions of the other
    reports that are decided. `waits_for`: the plan_time that others wait for. `has_more`: there
    may be later reports, which were not read.
    """

    of: dict[datetime, Report] = field(default_factory=dict)
    beside: list[Reported] = field(default_factory=list)
    waits_for: datetime | None = None
    has_more: bool = False


def settled_at(planned: Planned) -> datetime:
    """Return when a plan_time without a report is skipped: right after its grace."""
    return planned.plan_time + planned.revision.job.grace + TICK


def match(
    row: ScheduleRow,
    ahead: Sequence[Planned],
    coming: datetime | None,
    revisions: Mapping[int, Revision],
    current: Revision,
) -> Matching:
    """Match the reports of `row`.

    `ahead`: the plan_times after the cursor, up to now, in order. `coming`: the one that follows
    them; None: there is none, or it is not observed. `revisions`: those of the job, by number.
    """
    found = Matching(has_more=len(row.reports) >= MOST)
    free = [one for one in ahead if one.reason is None and one.observed]
    times = [one.plan_time for one in free]
    longest = max((one.revision.job.grace for one in free), default=timedelta(0))
    taken: set[datetime] = set()
    for report in row.reports:
        start = report.started_at
        low = bisect_left(times, start - longest)
        near = [
            _Free(one.plan_time, one.revision, False)
            for one in free[low : bisect_right(times, start + TOLERANCE)]
            if start < settled_at(one) and _may_precede(row, one.revision, start, one.plan_time)
        ]
        near += _late(row, report.unreported, revisions)
        choice = min(
            (one for one in near if one.plan_time not in taken),
            key=lambda one: (abs(one.plan_time - start), one.plan_time),
            default=None,
        )
        if (
            coming is not None
            and start + TOLERANCE >= coming
            and _may_precede(row, current, start, coming)
            and (choice is None or coming - start < abs(choice.plan_time - start))
        ):
            found.waits_for = coming
            continue
        if choice is None:
            found.beside.append(Reported(report.id, start, current, Trigger.OBSERVED, exact=False))
            continue
        taken.add(choice.plan_time)
        if choice.late:
            late = Reported(report.id, choice.plan_time, choice.revision, Trigger.OBSERVED)
            found.beside.append(late)
        else:
            found.of[choice.plan_time] = report
    return found


def _may_precede(
    row: ScheduleRow, revision: Revision, start: datetime, plan_time: datetime
) -> bool:
    """Return whether a run that started before this plan_time may belong to it.

    True if it started later.
    """
    early = plan_time - start
    if early <= timedelta(0):
        return True
    cron = cron_of(revision.job, row.key, revision.calendar)
    return cron is None or next(cron.plan_times(start - early - TICK, start), None) is None


def _late(
    row: ScheduleRow, parts: Sequence[Unreported], revisions: Mapping[int, Revision]
) -> Iterator[_Free]:
    """Yield the skipped plan_times that have no execution."""
    for part in parts:
        revision = revisions.get(part.revision)
        cron = None if revision is None else cron_of(revision.job, row.key, revision.calendar)
        if revision is None or cron is None:
            continue
        times = cron.included.plan_times(part.first - TICK, part.last)
        for plan_time in islice(times, _MOST_LATE):
            if plan_time not in part.taken:
                yield _Free(plan_time, revision, True)
