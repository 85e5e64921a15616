"""What becomes of one schedule row in one step: which plan_times run, which are skips, what next.

The plan_times after the cursor are settled in their order. One that is due in a pause or a
retirement is a skip with that reason; of those due in active state the policies choose which run
(`_choose`), the others are skips. The first one that is not due yet ends the walk, as does one that
is chosen and cannot start now, or the bound on a step.

Where a job was edited, a plan_time runs under the definition that owns it (rules/timeline.py), but
the policies that choose (grace, catch_up and its window and limit, overlap) are those of the
revision in force now, for all of them: who changes catch_up during an outage decides what
becomes of that outage.

- A pause: nothing starts while it lasts. What was chosen before the pause began keeps its place in
  front of the cursor; after the resume it is judged anew, by how late it is then. What is due in
  the pause never runs. `paused_until` needs no other statement: from then on the job is active
  under the same definition, whenever the resume is written. (A resume dated `paused_until` or
  later therefore changes nothing that was settled.) Only the row's parking waits for it.
- A retirement ends what came before: what was due and had not started is `missed`.
- Limits and slots are asked for only when a plan_time could start otherwise.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice, takewhile
from typing import NamedTuple

from cronledger.rules.model import (
    CatchUp,
    Job,
    Overlap,
    Parked,
    Plan,
    Revision,
    Run,
    ScheduleRow,
    Skip,
    SkipReason,
)
from cronledger.rules.timeline import (
    TICK,
    Planned,
    SpecError,
    Timeline,
    due_at,
    timeline,
)

__all__ = ["STEP", "Room", "due_at", "plan"]

STEP = 10_000  # plan_times settled in one step at most


@dataclass(frozen=True, slots=True)
class Room:
    """How many more may start: in this runner, of this job, of this queue. None: unlimited."""

    slots: int
    job: int | None
    queue: int | None


class _Start(NamedTuple):
    """What a plan_time may start beside, and how many may be settled."""

    blocker: int | None
    room: Room
    step: int


class _Choice(NamedTuple):
    """`runs`: plan_times to start, or to record as `overlap`. The others due while active: `rest`.

    `overlaps`: the execution that makes them skips.
    """

    runs: frozenset[datetime]
    rest: SkipReason
    overlaps: int | None = None


class _Halt(NamedTuple):
    """Why a chosen plan_time does not start now; `parked` None: it stays due."""

    parked: Parked | None
    replaces: bool = False


@dataclass(slots=True)
class _Settled:
    """What a step has settled so far, in order."""

    runs: list[Run] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    count: int = 0
    last: datetime | None = None
    _open: bool = False  # the last skip may be extended

    def run(self, planned: Planned) -> None:
        self.runs.append(Run(planned.plan_time, planned.due_at, planned.revision))
        self._open = False
        self._advance(planned.plan_time)

    def skip(self, planned: Planned, reason: SkipReason, blocked_by: int | None) -> None:
        at, revision = planned.plan_time, planned.revision.revision
        same = False
        if self._open:
            last = self.skips[-1]
            same = (last.reason, last.revision, last.blocked_by) == (reason, revision, blocked_by)
        if same:
            self.skips[-1] = replace(last, through_plan_time=at, count=last.count + 1)
        else:
            self.skips.append(Skip(at, at, 1, reason, revision, blocked_by))
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
) -> Plan:
    """Settle up to `step` plan_times of `row` and say when to come again, or why it is parked.

    `revisions`: ascending; the first is the one in effect at the cursor, then each later one.
    `blocker`: the execution of this (job, scope) that is RUNNING. The caller takes `len(runs)` off
    the room it hands to the next row. At least `step` of 1; raises ValueError without revisions.

    Afterwards: with overlap other than `allow` at most one run. When the bound ended the step, or
    slots did, `next_due_at` is past: the row is due again at once. A `now` before the cursor counts
    as the cursor. A schedule that cannot be read is never raised but answered as `spec_error`.
    """
    if not revisions:
        raise ValueError(f"no revision of {row.key}: hand over the one in effect at the cursor")
    unreadable: dict[int, str] = {}
    while True:
        try:
            line = timeline(row, revisions, now, unreadable)
            return _plan(line, _Start(blocker, room, step))
        except SpecError as error:
            unreadable[error.revision] = error.text


def _plan(line: Timeline, start: _Start) -> Plan:
    ahead = list(islice(line.forward(), start.step + 1))
    settled = _Settled()
    stop, halt = _settle(line, ahead, settled, start)
    upcoming, parked = stop, None
    if halt is not None:
        parked = halt.parked
    elif stop is None or stop.due_at > line.now:
        upcoming, parked = _ahead(line, stop)
    through = _through(line, settled, stop, halt)
    next_due_at = upcoming.due_at if upcoming is not None and parked is None else None
    if line.change is not None and parked not in (Parked.WAITING, Parked.LIMIT):
        # Nothing re-arms the row at an instant the clock has yet to reach again.
        parked = None
        next_due_at = min(line.change, next_due_at or line.change)
    return Plan(
        planned_through=through,
        planned_revision=max(line.revision_at(through), line.row.planned_revision),
        next_plan_time=upcoming.plan_time if upcoming is not None else None,
        next_due_at=next_due_at,
        parked=parked,
        runs=tuple(settled.runs),
        skips=tuple(settled.skips),
        replaces=halt is not None and halt.replaces,
        spec_error=line.spec_error,
        settled=settled.count,
    )


def _settle(
    line: Timeline, ahead: Sequence[Planned], settled: _Settled, start: _Start
) -> tuple[Planned | None, _Halt | None]:
    """Settle `ahead` in order; return the plan_time that ended it, and what kept it from starting.

    `ahead`: the next plan_times up to now, one more than may be settled.
    """
    policy = line.current.job
    choice: _Choice | None = None
    for planned in ahead:
        if planned.due_at > line.now or settled.count == start.step:
            return planned, None
        if planned.reason is not None:
            settled.skip(planned, planned.reason, None)
            continue
        if choice is None:  # the search costs most: not for a step that lies all in a pause
            newest_first = _due_newest_first(line, ahead, start.step)
            choice = _choose(line, policy, newest_first, start.blocker)
        if planned.plan_time not in choice.runs:
            before = planned.due_at <= line.retired_through
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


def _due_newest_first(line: Timeline, ahead: Sequence[Planned], step: int) -> Iterator[Planned]:
    """Yield what is due in active state before the first undue one, newest first.

    From `ahead` where that holds all of it, else by a search back from now.
    """
    due = list(takewhile(lambda planned: planned.due_at <= line.now, ahead))
    if len(due) > step:
        return line.newest()
    return (planned for planned in reversed(due) if planned.reason is None)


def _choose(
    line: Timeline, policy: Job, newest_first: Iterator[Planned], blocker: int | None
) -> _Choice:
    """Apply grace, catch_up and overlap=skip to what is due in active state."""
    now = line.now
    newest = next(newest_first, None)
    if newest is None or newest.due_at <= line.retired_through:
        return _Choice(frozenset(), SkipReason.MISSED)
    on_time = now - newest.due_at <= policy.grace
    rest = SkipReason.MISSED
    chosen: Iterable[Planned] = (newest,) if on_time else ()
    match policy.catch_up:
        case CatchUp.SKIP:
            pass
        case CatchUp.LATEST:
            if on_time or now - newest.due_at <= policy.catch_up_window:
                chosen, rest = (newest,), SkipReason.SUPERSEDED
        case CatchUp.ALL:
            missed = newest_first if on_time else chain((newest,), newest_first)
            chosen = chain(chosen, islice(_caught_up(line, policy, missed), policy.catch_up_limit))
    runs = frozenset(planned.plan_time for planned in chosen)
    if runs and blocker is not None and policy.overlap is Overlap.SKIP:
        rest = SkipReason.OVERLAP if rest is SkipReason.SUPERSEDED else rest
        return _Choice(runs, rest, blocker)
    return _Choice(runs, rest)


def _caught_up(line: Timeline, policy: Job, missed: Iterator[Planned]) -> Iterator[Planned]:
    """Yield of `missed`, newest first, what catch_up=all still runs by its window."""
    lag = line.lag()
    for planned in missed:
        if line.now - planned.plan_time - lag > policy.catch_up_window:
            return  # nothing older can be within the window
        late = line.now - planned.due_at
        if late <= policy.catch_up_window and planned.due_at > line.retired_through:
            yield planned


def _halt(line: Timeline, policy: Job, started: int, start: _Start) -> _Halt | None:
    """Return what keeps a chosen plan_time from starting beside `started` runs of this step."""
    if line.hold is not None:
        return _Halt(line.hold)
    if policy.overlap is not Overlap.ALLOW:
        if start.blocker is not None:
            return _Halt(Parked.WAITING, replaces=policy.overlap is Overlap.REPLACE)
        if started:
            # Under wait it queues behind the run of this step. Under skip and replace that run's
            # execution has to exist before it can be named or cancelled: the next step does.
            return _Halt(Parked.WAITING if policy.overlap is Overlap.WAIT else None)
    for limit in (start.room.job, start.room.queue):
        if limit is not None and limit <= started:
            return _Halt(Parked.LIMIT)
    return _Halt(None) if start.room.slots <= started else None


def _through(
    line: Timeline, settled: _Settled, stop: Planned | None, halt: _Halt | None
) -> datetime:
    """Return the new cursor: as far as everything is settled, and no less than the old one."""
    through = line.through
    if stop is not None:
        through = min(through, stop.plan_time - TICK)
        if halt is None and stop.due_at <= line.now and settled.last is not None:
            through = settled.last  # the bound on a step
    return max(line.row.planned_through, through)


def _ahead(line: Timeline, undue: Planned | None) -> tuple[Planned | None, Parked | None]:
    """Return the next plan_time, or why there is none to wait for, when all that is due is settled.

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
    upcoming = line.upcoming()
    return upcoming, None if upcoming is not None else Parked.ENDED
