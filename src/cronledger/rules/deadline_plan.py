"""Which plan_times of a job have deadlines, and when: what a step of the sweeper adds.

Plan_times that are paused or retired when they are due have no deadlines. All scopes of a job have
one cursor, so a plan_time is handled once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from cronledger.rules import deadlines
from cronledger.rules.cron_fields import CronError
from cronledger.rules.deadline_texts import Quantile
from cronledger.rules.deadlines import Kind
from cronledger.rules.durations import DurationError
from cronledger.rules.model import Job, JobState, Parked, Revision, ScheduleRow, ScopeKey
from cronledger.rules.timeline import TICK, Planned, SpecError, Timeline, timeline

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
    """One schedule of a job: since when it exists, and when it was retired."""

    key: ScopeKey
    created_at: datetime
    retired_at: datetime | None
    returned_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """What a step adds for one job.

    `through`: the new cursor. `next_at`: when to plan again; None: after the next edit. `ended`:
    the job has no deadlines any more.
    """

    added: Sequence[NewDeadline]
    through: datetime
    next_at: datetime | None
    ended: bool


def declares(job: Job) -> bool:
    """Return whether the job has a deadline."""
    return any(x is not None for x in (job.start_by, job.finish_by, job.expect_duration))


def plan(
    revisions: Sequence[Revision],
    scopes: Sequence[Scope],
    cursor: datetime,
    now: datetime,
    most: int,
) -> DeadlinePlan:
    """Return the deadlines of the plan_times in (cursor, now] that are due.

    At most about `most`: then `next_at` is `now`. `revisions`: those that own plan_times after the
    cursor, ascending.
    """
    if not any(declares(revision.job) for revision in revisions):
        return DeadlinePlan((), max(cursor, now), None, ended=True)
    of_each = max(1, most // max(1, len(scopes)))
    planned = [(scope, *_due(scope, revisions, cursor, now, of_each)) for scope in scopes]
    through = min((upto for _, _, upto, _ in planned), default=now)
    added = [
        new
        for scope, found, _, _ in planned
        for one in found
        if one.plan_time <= through
        for new in of_anchor(scope.key, one.plan_time, one.plan_time, one.revision)
    ]
    if through < now:
        unfinished = any(truncated for *_, truncated in planned)
        return DeadlinePlan(added, through, now if unfinished else now + LATER, ended=False)
    newest = revisions[-1]
    if not declares(newest.job) and newest.effective_from <= now:
        return DeadlinePlan(added, through, None, ended=True)
    return DeadlinePlan(added, through, _next_of_all(revisions, scopes, now), ended=False)


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


def _due(
    scope: Scope, revisions: Sequence[Revision], cursor: datetime, now: datetime, most: int
) -> tuple[list[Planned], datetime, bool]:
    """Return due plan_times, how far that is, and whether `most` was reached."""
    start = max(cursor, scope.created_at)
    if start >= now:
        return [], now, False
    line, found = _readable(scope, revisions, start, now, most)
    if len(found) > most:
        return found[:most], found[most].plan_time - TICK, True
    undue = next((one.plan_time for one in found if one.due_at > now), None)
    if undue is not None:
        found = [one for one in found if one.plan_time < undue]
    upto = line.through if undue is None else undue - TICK
    return [one for one in found if one.reason is None], upto, False


def _readable(
    scope: Scope, revisions: Sequence[Revision], start: datetime, now: datetime, most: int
) -> tuple[Timeline, list[Planned]]:
    """Return the timeline without invalid schedules, and its first plan_times."""
    unreadable: dict[int, str] = {}
    while True:
        line = timeline(_row(scope, start), revisions, now, unreadable)
        try:
            return line, list(islice(line.forward(), most + 1))
        except SpecError as error:
            unreadable[error.revision] = error.text


def _next_of_all(
    revisions: Sequence[Revision], scopes: Sequence[Scope], now: datetime
) -> datetime | None:
    newest = revisions[-1]
    held = newest.state is JobState.RETIRED or (
        newest.state is JobState.PAUSED and newest.paused_until is None
    )
    if held or newest.job.schedule is None:
        return None
    found = [_next(scope, revisions, now) for scope in scopes]
    # A scope that appears without an edit is found after an hour at the latest.
    return min([*(at for at in found if at is not None), now + LATER])


def _next(scope: Scope, revisions: Sequence[Revision], now: datetime) -> datetime | None:
    """Return the first deadline of the next plan_time, or None if there is none."""
    line = timeline(_row(scope, max(now, scope.created_at)), revisions, now, {})
    try:
        following = line.upcoming()
    except SpecError:
        following = None
    if following is None or line.hold is Parked.RETIRED:
        return line.change
    at = following.plan_time
    firsts = [
        new.instant if new.instant is not None else at + (new.length or timedelta(0))
        for new in of_anchor(scope.key, at, at, following.revision)
    ]
    return max(following.due_at, min(firsts, default=following.due_at))


def _row(scope: Scope, cursor: datetime) -> ScheduleRow:
    return ScheduleRow(
        scope.key, "", cursor, 0, retired_at=scope.retired_at, returned_at=scope.returned_at
    )
