"""One planning step of one schedule row: which plan_times run, which are skipped, and what is next.

The step settles the plan_times after the cursor in their order. A plan_time that is due in a pause
or a retirement is a skip with that reason. Of those that are due while the job is active, the
policies choose which run (`_choose`); the others are skips. The step ends at the first plan_time
that is not due yet, at a chosen one that cannot start now, or at its limit of plan_times.

If a job was edited, a plan_time runs by the definition that owns it (rules/timeline.py). But the
policies that choose (grace, catch_up with its window and limit, overlap) are always those of the
revision in force now. So an edit of catch_up during an outage decides how that outage is caught up.

- Pause: nothing starts during a pause. A plan_time that was chosen before the pause stays after the
  cursor; after the resume the policies judge it again, by its lateness at that time. Plan_times
  that are due in the pause never run. At `paused_until` the job becomes active by the same
  definition, even if the resume is written later. Only the parking of the row waits for the resume.
- Retirement: a plan_time that was due before it and has not started is `missed`. If a scope has
  returned since, the policies judge what was due before its retirement, as after an outage.
- Broken definition: after a correction, the plan_times that an invalid revision owns are `missed`.
- Calendar: a plan_time on an excluded date becomes a skip `calendar` with the name of the day once
  it is due. The policies never see it. At the first firing after the end of the calendar, the row
  is parked like one whose schedule is invalid.
- Absence: a plan_time of a host that had no replica until the end of grace is `host_absent`. The
  policies never see it: it is not caught up. What a pause, a retirement or a calendar skips anyway
  keeps that reason. While the host is `away`, nothing can start: what was due before its last
  check-in and has not started is `missed`.
- Boot: the plan_times of `@reboot` are boots of the host. The row waits for the next one.
- Windows: a plan_time that the window of a success contains, because it waited while a later
  execution ran, is `superseded`.
- Planned skip: a plan_time that an operator decided to skip becomes a skip `operator` with the
  reason given once it is due, unless it is a skip of a pause, a retirement or a calendar anyway.
  The policies never see it either.
- Observed: another scheduler runs the plan_time. A report makes it an execution; without one, it is
  a skip `not_reported` after its grace, or once the job is not observed any more. The policies
  never see it: what replicas run before it is judged as if it did not exist. Plan_times are settled
  in their order, so a report waits for those before its own. What another definition owns and has
  not started when the handler of the job becomes `observed` is `missed`.
- Limits and slots count only if a plan_time could start otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice, takewhile
from typing import NamedTuple

from cronledger.rules.model import (
    CatchUp,
    Handler,
    Job,
    Overlap,
    Parked,
    Revision,
    SkipReason,
    Trigger,
)
from cronledger.rules.plan_times import TICK, SpecError, due_at
from cronledger.rules.plans import Plan, Reported, Run, ScheduleRow, Skip
from cronledger.rules.reports import TOLERANCE, Matching, match, settled_at
from cronledger.rules.timeline import Planned, Timeline, timeline

__all__ = ["STEP", "Room", "due_at", "plan"]

STEP = 10_000  # plan_times settled in one step at most
READ_AHEAD = 32
"""The number of plan_times that a step reads before it settles the first one.

If more are due, the step searches back from now for the newest one, and counts the others without
enumerating them. So the cost of a step depends on what it settles and not on what it leaves.
"""


@dataclass(frozen=True, slots=True)
class Room:
    """How many more executions may start in this runner, of this job, and of this queue.

    None: unlimited.
    """

    slots: int
    job: int | None
    queue: int | None


class _Start(NamedTuple):
    """The running execution, the room for more, and the number of plan_times to settle.

    `earlier`: by number, the revisions that reports may belong to. `away`: nothing starts.
    """

    blocker: int | None
    room: Room
    step: int
    earlier: Mapping[int, Revision]
    away: bool


class _Due:
    """The plan_times of replicas that are due in active state, before the first undue one.

    They are `ahead` if it contains all of them. Otherwise the timeline finds and counts them.
    """

    def __init__(self, line: Timeline, ahead: Sequence[Planned]) -> None:
        self._line = line
        due = list(takewhile(lambda planned: planned.due_at <= line.now, ahead))
        self._all: list[Planned] | None = None
        if len(due) <= READ_AHEAD:
            self._all = [one for one in due if one.reason is None and not one.observed]

    def newest(self, due_after: datetime) -> Planned | None:
        """Return the newest plan_time of those that are due after `due_after`."""
        if self._all is None:
            return self._line.newest(due_after)
        return next((x for x in reversed(self._all) if x.due_at > due_after), None)

    def count(self, due_after: datetime, through: datetime) -> int:
        """Return how many plan_times up to `through` are due after `due_after`."""
        if self._all is None:
            return self._line.count_active(due_after, through)
        return sum(x.due_at > due_after and x.plan_time <= through for x in self._all)


@dataclass(slots=True)
class _Choice:
    """Which of the plan_times that are due in active state run; `rest`: why the others are skipped.

    `newest`: the plan_time of the newest one, if it runs in any case. `due_after`: of the others,
    those that are due later run, except the oldest `surplus` of them; None: none of them runs.
    `overlaps`: the execution because of which the chosen ones are skipped, too.
    """

    rest: SkipReason
    newest: datetime | None = None
    due_after: datetime | None = None
    surplus: int = 0
    overlaps: int | None = None

    def includes(self, planned: Planned) -> bool:
        """Return whether it runs. Called once for each plan_time of active state, oldest first."""
        if planned.plan_time == self.newest:
            return True
        if self.due_after is None or planned.due_at <= self.due_after:
            return False
        self.surplus -= 1
        return self.surplus < 0


class _Halt(NamedTuple):
    """Why a chosen plan_time does not start now; `parked` None: it stays due."""

    parked: Parked | None
    replaces: bool = False


@dataclass(slots=True)
class _Settled:
    """The runs and skips that a step has settled so far, in order."""

    runs: list[Run] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    reported: list[Reported] = field(default_factory=list)
    matching: Matching | None = None
    count: int = 0
    last: datetime | None = None
    _open: bool = False  # the last skip may be extended

    @property
    def progressed(self) -> bool:
        """Return whether a plan_time or a report is settled."""
        return self.count > 0 or (self.matching is not None and bool(self.matching.beside))

    def run(self, planned: Planned) -> None:
        self.runs.append(Run(planned.plan_time, planned.due_at, planned.revision))
        self._open = False
        self._advance(planned.plan_time)

    def report(self, planned: Planned, report: int) -> None:
        at = planned.plan_time
        self.reported.append(Reported(report, at, planned.revision, Trigger.SCHEDULE))
        self._open = False
        self._advance(at)

    def skip(self, planned: Planned, reason: SkipReason, blocked_by: int | None) -> None:
        at = planned.plan_time
        details = {SkipReason.CALENDAR: planned.excluded, SkipReason.OPERATOR: planned.skipped}
        detail = details.get(reason)
        why = (reason, planned.revision.revision, blocked_by, detail)
        last = self.skips[-1] if self._open else None
        if last is not None and (last.reason, last.revision, last.blocked_by, last.detail) == why:
            self.skips[-1] = Skip(last.from_plan_time, at, last.count + 1, *why)
        else:
            self.skips.append(Skip(at, at, 1, *why))
        self._open = True
        self._advance(at)

    def _advance(self, plan_time: datetime) -> None:
        self.count += 1
        self.last = plan_time


def plan(
    row: ScheduleRow,
    revisions: Sequence[Revision],
    now: datetime,
    *,
    blocker: int | None,
    room: Room,
    step: int = STEP,
    earlier: Mapping[int, Revision] | None = None,
    away: bool = False,
) -> Plan:
    """Settle up to `step` (1 or more) plan_times of `row`. Return its next due time or parking.

    `revisions`: ascending, beginning with the one in effect at the cursor. `blocker`: the RUNNING
    execution of this (job, scope). The caller subtracts `len(runs)` from the room of the next row.
    `earlier`: by number, the revisions that late reports may belong to. `away`: the host of the
    scope is absent, and the grace of everything that is due at `now` has ended.

    Unless overlap is `allow`, there is at most one run. If the limit of the step or a lack of slots
    ended the step, `next_due_at` is past, so that the row is due again at once. A `now` before the
    cursor counts as the cursor. An invalid schedule is returned as `spec_error`. Raises ValueError
    without revisions.
    """
    if not revisions:
        raise ValueError(f"no revision of {row.key}: pass the one in effect at the cursor")
    unreadable: dict[int, str] = {}
    while True:
        try:
            line = timeline(row, revisions, now, unreadable)
            return _plan(line, _Start(blocker, room, step, earlier or {}, away))
        except SpecError as error:
            unreadable[error.revision] = error.text


def _plan(line: Timeline, start: _Start) -> Plan:
    settled = _Settled()
    stop, halt = _settle(line, settled, start)
    upcoming, parked = stop, None
    if halt is not None:
        parked = halt.parked
    elif stop is None or stop.due_at > line.now:
        upcoming, parked = _ahead(line, stop)
    through = _through(line, settled, stop, halt)
    next_due_at = None
    if upcoming is not None and parked is None:
        next_due_at = _due(line, settled, upcoming, full=settled.count == start.step)
    spec_error = line.spec_error
    if parked is Parked.ENDED and line.edit is None and (end := line.end_of_calendar()) is not None:
        firing, text = end
        if firing > line.now:
            parked, next_due_at = None, firing
        else:
            parked, spec_error = Parked.SPEC_ERROR, text
    if line.change is not None and parked not in (Parked.WAITING, Parked.LIMIT):
        # Nothing else makes the row due at an instant that the clock has to reach again.
        parked = None
        next_due_at = min(line.change, next_due_at or line.change)
    return Plan(
        planned_through=through,
        planned_revision=max(line.revision_at(through), line.row.planned_revision),
        next_plan_time=None if upcoming is None else line.included_from(upcoming),
        next_due_at=next_due_at,
        parked=parked,
        runs=tuple(settled.runs),
        skips=tuple(settled.skips),
        replaces=halt is not None and halt.replaces,
        spec_error=spec_error,
        settled=settled.count,
        reported=_reported(settled),
    )


def _due(line: Timeline, settled: _Settled, upcoming: Planned, *, full: bool) -> datetime:
    """Return when the next step has something to settle. `full`: its limit ended this one."""
    matching = settled.matching
    if matching is not None and matching.has_more and settled.progressed:
        return line.now
    if full or not upcoming.observed:
        return upcoming.due_at
    due = _settled_at(line, upcoming)
    waits_for = None if matching is None else matching.waits_for
    if waits_for is None or waits_for <= line.now:  # the limit of the step hid it
        return due
    return min(due, waits_for)


def _reported(settled: _Settled) -> tuple[Reported, ...]:
    beside = () if settled.matching is None else settled.matching.beside
    return (*settled.reported, *beside)


def _settle(
    line: Timeline, settled: _Settled, start: _Start
) -> tuple[Planned | None, _Halt | None]:
    """Settle plan_times in order. Return the one that ended it, and why it does not start."""
    policy = line.current.job
    choice: _Choice | None = None
    missed_through = _missed_through(line)
    forward = line.forward()
    ahead = list(islice(forward, READ_AHEAD + 1))
    if line.row.reports or any(segment.observed for segment in line.segments):
        settled.matching = _match(line, ahead, forward, start)
    for planned in chain(ahead, forward):
        if planned.due_at > line.now or settled.count == start.step:
            return planned, None
        if planned.reason is not None:
            settled.skip(planned, planned.reason, None)
            continue
        if planned.observed or line.current.job.handler is Handler.OBSERVED:
            if not _settle_observed(line, settled, planned):
                return planned, None
            continue
        if choice is None:  # not before it is needed, because the search costs most
            choice = _choose(line, policy, ahead, start, missed_through)
        included = choice.includes(planned)
        if line.row.window_start is not None and planned.plan_time <= line.row.window_start:
            settled.skip(planned, SkipReason.SUPERSEDED, None)
            continue
        if not included:
            before = planned.due_at <= missed_through
            rest = SkipReason.MISSED if before else choice.rest
            blocked_by = choice.overlaps if rest is SkipReason.OVERLAP else None
            settled.skip(planned, rest, blocked_by)
            continue
        if choice.overlaps is not None:
            settled.skip(planned, SkipReason.OVERLAP, choice.overlaps)
            continue
        halt = _halt(line, policy, len(settled.runs), start)
        if halt is not None:
            return planned, halt
        settled.run(planned)
    return None, None


def _match(
    line: Timeline, ahead: list[Planned], forward: Iterator[Planned], start: _Start
) -> Matching:
    """Match the reports with the plan_times that this step can settle, and add these to `ahead`.

    A report of one of them may be nearer to a later one. So more are read, up to those that no such
    report can belong to.
    """
    ahead.extend(islice(forward, max(0, start.step - len(ahead))))
    coming: datetime | None = None
    if len(ahead) >= start.step:
        longest = max(segment.revision.job.grace for segment in line.segments)
        limit = ahead[-1].plan_time + longest + TOLERANCE
        for planned in forward:
            ahead.append(planned)
            if planned.plan_time > limit:
                coming = planned.plan_time
                break
    if coming is None and line.current.job.may_be_observed and line.spec_error is None:
        upcoming = line.upcoming()
        coming = upcoming.plan_time if upcoming is not None and upcoming.observed else None
    known = [one for one in ahead if coming is None or one.plan_time < coming]
    return match(line.row, known, coming, start.earlier, line.current)


def _settle_observed(line: Timeline, settled: _Settled, planned: Planned) -> bool:
    """Settle a plan_time that another scheduler runs, or return False: it may still be reported."""
    matching = settled.matching
    if matching is None or not planned.observed:
        settled.skip(planned, SkipReason.MISSED, None)
        return True
    report = matching.of.get(planned.plan_time)
    if report is not None:
        settled.report(planned, report.id)
        return True
    if matching.has_more and settled.progressed:
        return False  # the next step reads more of them
    if line.current.job.may_be_observed and line.now < _settled_at(line, planned):
        return False
    settled.skip(planned, SkipReason.NOT_REPORTED, None)
    return True


def _settled_at(line: Timeline, planned: Planned) -> datetime:
    """Return when an observed plan_time without a report is skipped.

    That is not later than the adoption of the job, because the next plan_time must not wait for it.
    """
    job = line.current.job
    at = job.adopted_at
    if at is None or at <= planned.plan_time or job.is_observed(at):
        return settled_at(planned)
    return min(settled_at(planned), at)


def _missed_through(line: Timeline) -> datetime:
    """Return the end of the time in which the job was retired or had no handler, so that what was
    due then is missed.
    """
    observed = (part for part in line.segments if part.revision.job.handler is Handler.OBSERVED)
    return max([line.retired_through, *(part.through for part in observed)])


def _choose(
    line: Timeline, policy: Job, ahead: Sequence[Planned], start: _Start, missed_through: datetime
) -> _Choice:
    """Apply grace, catch_up and overlap=skip to the plan_times that are due in active state."""
    if start.away:
        return _Choice(SkipReason.MISSED)
    due = _Due(line, ahead)
    newest = due.newest(missed_through)
    if newest is None:
        return _Choice(SkipReason.MISSED)
    late = line.now - newest.due_at
    on_time = late <= policy.grace
    choice = _Choice(SkipReason.MISSED, newest.plan_time if on_time else None)
    if policy.catch_up is CatchUp.LATEST and (on_time or late <= policy.catch_up_window):
        choice = _Choice(SkipReason.SUPERSEDED, newest.plan_time)
    elif policy.catch_up is CatchUp.ALL:
        window = min(policy.catch_up_window, line.now - missed_through - TICK)
        choice.due_after = line.now - window - TICK
        through = newest.plan_time - TICK if on_time else newest.plan_time
        missed = due.count(choice.due_after, through)
        choice.surplus = max(0, missed - policy.catch_up_limit)
    if start.blocker is not None and policy.overlap is Overlap.SKIP:
        choice.overlaps = start.blocker
        if choice.rest is SkipReason.SUPERSEDED:
            choice.rest = SkipReason.OVERLAP
    return choice


def _halt(line: Timeline, policy: Job, started: int, start: _Start) -> _Halt | None:
    """Return why a chosen plan_time does not start after `started` runs of this step, or None."""
    if line.hold is not None:
        return _Halt(line.hold)
    if policy.overlap is not Overlap.ALLOW:
        if start.blocker is not None:
            return _Halt(Parked.WAITING, replaces=policy.overlap is Overlap.REPLACE)
        if started:
            # With wait, it waits for the run of this step. With skip and replace, the execution of
            # that run must exist before a skip can refer to it or a request can cancel it. So the
            # next step decides.
            return _Halt(Parked.WAITING if policy.overlap is Overlap.WAIT else None)
    for limit in (start.room.job, start.room.queue):
        if limit is not None and limit <= started:
            return _Halt(Parked.LIMIT)
    return _Halt(None) if start.room.slots <= started else None


def _through(
    line: Timeline, settled: _Settled, stop: Planned | None, halt: _Halt | None
) -> datetime:
    """Return the new cursor: everything up to it is settled. It never goes back."""
    through = line.through
    if stop is not None:
        through = min(through, stop.plan_time - TICK)
        if halt is None and stop.due_at <= line.now and settled.last is not None:
            through = settled.last  # the limit of the step
    return max(line.row.planned_through, through)


def _ahead(line: Timeline, undue: Planned | None) -> tuple[Planned | None, Parked | None]:
    """Return the next plan_time, or the reason for parking, when everything due is settled.

    `undue`: the first plan_time up to now that is not due yet.
    """
    if line.hold is not None:
        return undue, line.hold
    if undue is not None:
        return undue, None
    if line.spec_error is not None:
        return None, Parked.SPEC_ERROR
    if line.current.job.schedule is None:
        return None, Parked.UNSCHEDULED
    if (upcoming := line.upcoming()) is not None:
        return upcoming, None
    return None, Parked.BOOT if line.waits_for_boot else Parked.ENDED
