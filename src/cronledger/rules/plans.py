"""What the planner reads and decides: schedule rows with what belongs to them, and plans."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from cronledger.rules.model import Parked, Revision, ScopeKey, SkipReason, Trigger


class Retirement(NamedTuple):
    """A scope was retired in (retired_at, returned_at]. None: it still is."""

    retired_at: datetime
    returned_at: datetime | None


class PlannedSkip(NamedTuple):
    """An operator decided that the plan_times from `first` to `last` do not run."""

    first: datetime
    last: datetime
    reason: str


class Absence(NamedTuple):
    """No replica of a host checked in between two instants."""

    from_at: datetime
    until_at: datetime


class Unreported(NamedTuple):
    """Skipped plan_times from `first` to `last` of a revision, to which a late report may belong.

    `taken`: those that have an execution.
    """

    first: datetime
    last: datetime
    revision: int
    taken: frozenset[datetime]


class Boot(NamedTuple):
    """A boot of a host: its plan_time, and how long after the boot a replica checked in."""

    plan_time: datetime
    noticed_after: timedelta


class Report(NamedTuple):
    """A run that another scheduler started, and that has no execution yet."""

    id: int
    started_at: datetime
    unreported: Sequence[Unreported] = ()


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """The columns of one locked `schedules` row that a claim reads.

    `retirements`: those of the scope that end after the cursor, in order. `planned_skips`: those
    of the scope that reach beyond the cursor, by `first`. `absences`: those of the host of the
    scope that end after the cursor; one that has not ended does so now. `woken`: the row is new or
    was edited, so it has to be planned even if nothing is due. `ahead_of`: when it is due, if it
    was locked ahead of that instant. `address`: the place of the locked row in its table.
    `window_start`: where the next window of the scope begins; None: its job has no windows.
    `reports`: those of the scope that have no execution, by `started_at` and id; the oldest, if
    there are many. `boots`: those of the host of the scope after the cursor that fire its job.
    """

    key: ScopeKey
    queue: str
    planned_through: datetime
    planned_revision: int
    next_plan_time: datetime | None = None
    retirements: Sequence[Retirement] = ()
    planned_skips: Sequence[PlannedSkip] = ()
    woken: bool = False
    ahead_of: datetime | None = None
    address: str | None = field(default=None, repr=False)  # traces of one seed are equal
    input_watermark: int | None = None
    window_start: datetime | None = None
    absences: Sequence[Absence] = ()
    reports: Sequence[Report] = ()
    boots: Sequence[Boot] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """A plan_time to run now, by the definition of its revision."""

    plan_time: datetime
    due_at: datetime
    revision: Revision


@dataclass(frozen=True, slots=True)
class Skip:
    """A range of `count` consecutive plan_times that did not run, for one reason.

    `detail`: with the reason `calendar`, the name of the day; with `operator`, the reason given;
    with `upstream`, what was missing.
    """

    from_plan_time: datetime
    through_plan_time: datetime
    count: int
    reason: SkipReason
    revision: int
    blocked_by: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """An execution to make of a report.

    `trigger`: SCHEDULE if the run belongs to `plan_time`. OBSERVED if it belongs to none, and then
    `plan_time` is its start, or if `plan_time` was skipped before the report came.
    """

    report: int
    plan_time: datetime
    revision: Revision
    trigger: Trigger
    exact: bool = True


DECIDED = (SkipReason.CALENDAR, SkipReason.OPERATOR, SkipReason.PAUSED, SkipReason.RETIRED)
"""The reasons of skips that somebody decided before the plan_times were due."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The planner's decision about one schedule row.

    `planned_through` >= the old cursor. Every plan_time in (old cursor, planned_through] is in
    `runs`, in `reported` or in `skips`. Exactly one of `next_due_at` and `parked` is set.
    `next_plan_time`: the next one that is not to be skipped; `next_due_at` may be that of an
    earlier one, which is.
    `replaces`: request cancellation of the RUNNING execution. `spec_error`: why the job
    cannot be planned.
    """

    planned_through: datetime
    planned_revision: int
    next_plan_time: datetime | None
    next_due_at: datetime | None
    parked: Parked | None
    runs: tuple[Run, ...] = ()
    skips: tuple[Skip, ...] = ()
    replaces: bool = False
    spec_error: str | None = None
    settled: int = 0
    reported: tuple[Reported, ...] = ()

    @property
    def first_settled(self) -> datetime | None:
        """The first plan_time in `runs`, `reported` or `skips` that nobody decided to skip.

        It is the next_plan_time of a schedule for which this plan is not carried out. Gates take
        what lies before it for settled. The schedule is overdue from then on, so the plan_times of
        a pause do not count (docs/reliability.md states what this means for gates).
        """
        skipped = (x.from_plan_time for x in self.skips if x.reason not in DECIDED)
        reported = (x.plan_time for x in self.reported if x.trigger is Trigger.SCHEDULE)
        return min((*(run.plan_time for run in self.runs), *skipped, *reported), default=None)
