"""Which plan_times of a job have deadlines, and when: what a step of the sweeper adds.

Plan_times that are paused or retired when they are due have no deadlines. All scopes of a job have
one cursor, so a plan_time is handled once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice, takewhile
from typing import NamedTuple

from cronledger.rules import deadlines
from cronledger.rules.cron_fields import CronError
from cronledger.rules.deadline_texts import Quantile
from cronledger.rules.deadlines import Kind
from cronledger.rules.durations import DurationError
from cronledger.rules.model import GLOBAL, Job, JobState, Parked, Revision, ScopeKey
from cronledger.rules.plan_times import TICK, SpecError, back, longest_lag
from cronledger.rules.plans import Retirement, ScheduleRow
from cronledger.rules.timeline import Planned, Timeline, timeline

LATER = timedelta(hours=1)
"""A job whose schedule is invalid is looked at again after this, unless it is edited before."""


class NewDeadline(NamedTuple):
    """One deadline to add. One of `instant`, `length` and `fraction` is set.

    `fraction`, `factor`: a multiple of a quantile of the durations before the plan_time.
    """

    scope: ScopeKey
    plan_time: datetime
    kind: Kind
    revision: int
    instant: datetime | None
    length: timedelta | None
    month: date
    fraction: float | None = None
    factor: float | None = None


class Scope(NamedTuple):
    """One schedule of a job: since when it exists, and when it was retired, in order."""

    key: ScopeKey
    created_at: datetime
    retirements: Sequence[Retirement]


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """What a step adds for one job.

    `through`: the new cursor. `next_at`: when to plan again; None: after the next edit. `ended`:
    the job has no deadlines any more. `upto`, `after` and `following`: the pass that is under way,
    its last scope, and the `next_at` of its scopes so far.
    """

    added: Sequence[NewDeadline]
    through: datetime
    next_at: datetime | None
    ended: bool
    upto: datetime | None = None
    after: ScopeKey | None = None
    following: datetime | None = None


def declares(job: Job) -> bool:
    """Return whether the job has a deadline."""
    return any(x is not None for x in (job.start_by, job.finish_by, job.expect_duration))


def reach(
    revisions: Sequence[Revision], key: ScopeKey, cursor: datetime, now: datetime, most: int
) -> datetime:
    """Return the cursor after a pass over the scopes of a job. `key`: one of them.

    Every plan_time up to it is due, whatever its jitter is, and each scope has about `most`.
    """
    every = Scope(key, cursor, ())
    line, found = _readable(every, revisions, cursor, now, now, most + 1)
    upto = min(line.through, back(now, _lag(revisions), cursor))
    return upto if len(found) <= most else min(upto, found[most].plan_time - TICK)


class Planning:
    """Computes the deadlines of one job that are due after its cursor, some scopes at a time.

    All scopes have one cursor. Without `upto`, `add` gets all of them, and `plan` finds how far the
    plan_times of all are due. With `upto`, which `reach` returned, they are those of one
    transaction of a pass.

    `revisions`: those that own plan_times after the cursor, ascending. `most`: the plan_times of a
    scope that are added. `following`: that of the scopes before.
    """

    def __init__(
        self, revisions: Sequence[Revision], cursor: datetime, now: datetime, most: int, *,
        upto: datetime | None = None, following: datetime | None = None,
    ) -> None:  # fmt: skip
        self._revisions = revisions
        self._cursor = cursor
        self._now = now
        self._most = most
        self._upto = upto
        self._ended = not any(declares(revision.job) for revision in revisions)
        self._lag = timedelta(0) if upto is None or self._ended else _lag(revisions)
        self._added: list[NewDeadline] = []
        self._nexts = [] if following is None else [following]
        # A scope whose plan_times are not all due: how far they are, and when to plan again.
        self._blocked: tuple[datetime, datetime] | None = None

    def add(self, scopes: Sequence[Scope]) -> None:
        """Compute the deadlines of these scopes."""
        if self._ended:
            return
        for scope in scopes:
            self._added += [
                new
                for one in self._due(scope)
                if one.reason is None
                for new in of_anchor(scope.key, one.plan_time, one.plan_time, one.revision)
            ]
            if self._blocked is None:
                after = self._upto or self._now
                following = _next(scope, self._revisions, after, self._now, self._lag)
                self._nexts += [] if following is None else [following]

    def part(self, after: ScopeKey) -> DeadlinePlan:
        """Return the plan if the pass continues with the scopes that follow this one."""
        following = min(self._nexts, default=None)
        return DeadlinePlan(
            self._added, self._cursor, self._now, self._ended, self._upto, after, following
        )

    def plan(self) -> DeadlinePlan:
        """Return the plan after the last scope."""
        if self._ended:
            return DeadlinePlan((), max(self._cursor, self._now), None, ended=True)
        through, wakes = self._upto or self._now, self._nexts
        if self._blocked is not None:
            through, wakes = self._blocked[0], [self._blocked[1]]
        settled = self._settled()
        if settled < through:
            through = settled
            if any(new.plan_time > settled for new in self._added):
                wakes = [*wakes, self._now + _lag(self._revisions)]
        added = [new for new in self._added if new.plan_time <= through]
        newest = self._revisions[-1]
        if newest.effective_from <= through:
            if not declares(newest.job):
                return DeadlinePlan(added, through, None, ended=True)
            if not _fires(newest):
                return DeadlinePlan(added, through, None, ended=False)
        # A scope that appears without an edit is found after LATER.
        return DeadlinePlan(added, through, min([*wakes, self._now + LATER]), ended=False)

    def _due(self, scope: Scope) -> list[Planned]:
        """Return the plan_times of a scope that are due."""
        start = max(self._cursor, scope.created_at)
        if start >= (self._upto or self._now):
            return []
        if self._upto is not None:
            return _readable(scope, self._revisions, start, self._now, self._upto, None)[1]
        line, found = _readable(scope, self._revisions, start, self._now, self._now, self._most + 1)
        undue = next((one for one in found if one.due_at > self._now), None)
        if undue is not None:
            self._block(undue.plan_time - TICK, undue.due_at)
            return [one for one in found if one.plan_time < undue.plan_time]
        if len(found) > self._most:
            self._block(found[self._most].plan_time - TICK, self._now)
            return found[:-1]
        if line.through < self._now:  # an invalid schedule
            self._block(line.through, self._now + LATER)
        return found

    def _settled(self) -> datetime:
        """Return how far every scope is settled, also one that is retired now.

        A scope that returns fires the plan_times that are due afterwards, although they may be
        earlier than its return.
        """
        if self._upto is not None or all(x.job.scope_kind == GLOBAL for x in self._revisions):
            return self._upto or self._now
        return back(self._now, _lag(self._revisions), self._cursor)

    def _block(self, through: datetime, until: datetime) -> None:
        if self._blocked is None or through < self._blocked[0]:
            self._blocked = through, until
        elif through == self._blocked[0]:
            self._blocked = max(self._blocked, (through, until))


def of_anchor(
    key: ScopeKey, plan_time: datetime, anchor: datetime, revision: Revision
) -> Iterator[NewDeadline]:
    """Yield the deadlines of one plan_time. `anchor`: from when they count."""
    job = revision.job
    if not declares(job):
        return
    try:
        found = deadlines.of(
            anchor, job.timezone, start_by=job.start_by, finish_by=job.finish_by,
            expect_duration=job.expect_duration,
        )  # fmt: skip
    except (CronError, DurationError):
        return  # the zone of a revision that fires nothing
    for kind, instant, length in (
        (Kind.START_BY, found.start_by, None),
        (Kind.FINISH_BY, found.finish_by, None),
        (Kind.EXPECT_DURATION, None, found.expected),
    ):
        number = revision.revision
        if isinstance(length, Quantile):
            yield NewDeadline(key, plan_time, kind, number, None, None, found.month, *length)
        elif instant is not None or length is not None:
            yield NewDeadline(key, plan_time, kind, number, instant, length, found.month)


def _readable(  # noqa: PLR0917
    scope: Scope, revisions: Sequence[Revision], start: datetime, now: datetime, through: datetime,
    most: int | None,
) -> tuple[Timeline, list[Planned]]:  # fmt: skip
    """Return the timeline without invalid schedules, and its first plan_times up to `through`."""
    unreadable: dict[int, str] = {}
    while True:
        line = timeline(_row(scope, start), revisions, now, unreadable)
        try:
            walk = takewhile(lambda one: one.plan_time <= through, line.forward())
            return line, list(islice(walk, most))
        except SpecError as error:
            unreadable[error.revision] = error.text


def _fires(revision: Revision) -> bool:
    """Return whether the revision has plan_times that are not paused or retired without end."""
    paused = revision.state is JobState.PAUSED and revision.paused_until is None
    held = paused or revision.state is JobState.RETIRED
    return not held and revision.job.schedule is not None


def _next(
    scope: Scope, revisions: Sequence[Revision], after: datetime, now: datetime, lag: timedelta
) -> datetime | None:
    """Return the first deadline of the next plan_time after an instant, or None if there is none.

    Not before the plan_time is due, and not before `lag` has passed since.
    """
    line = timeline(_row(scope, max(after, scope.created_at)), revisions, now, {})
    try:
        following = next(line.forward(), None) or line.upcoming()
    except SpecError:
        following = None
    if following is None or line.hold is Parked.RETIRED:
        return line.change
    at = following.plan_time
    firsts = [
        new.instant if new.instant is not None else at + (new.length or timedelta(0))
        for new in of_anchor(scope.key, at, at, following.revision)
    ]
    return max(following.due_at, at + lag, min(firsts, default=following.due_at))


def _lag(revisions: Sequence[Revision]) -> timedelta:
    return max(map(longest_lag, revisions))


def _row(scope: Scope, cursor: datetime) -> ScheduleRow:
    return ScheduleRow(scope.key, "", cursor, 0, retirements=scope.retirements)
