"""The past of a (job, scope) as segments: which plan_times exist, when each is due, in which state.

All intervals are half-open. A revision owns the plan_times in (its effective_from, that of the next
one], and its state applies to each due_at in the same interval. A pause with `paused_until` ends
there by itself. A scope is retired in (retired_at, returned_at] of each of its retirements.

A plan_time belongs to the revision that owns it, but the state at its due_at decides whether it is
paused or retired. If the clock of the database went back between two edits, the later edit applies
from its own effective_from on. A revision with a future effective_from is not in force yet;
`Timeline.change` is the instant at which it comes into force.

An invalid schedule has no plan_times. While its revision is in force, that is an error
(`Timeline.spec_error`), and nothing is settled beyond its effective_from. After a later revision
its segment is empty, because otherwise the correction could never be planned.

If another value of a revision is invalid, its plan_times exist, and are missed: a correction never
fires the past.

A scope that is a host is absent at a due_at if no replica of the host checked in from then until
the end of the grace of the revision in force at that time. `ScheduleRow.absences` has the times
without a check-in that were long enough to count. An absence begins after the instant of a
check-in, and ends before that of the next.

The plan_times of `@reboot` are the boots of the host. One after which no replica checked in within
the grace of its revision is a skip `host_absent`, too.

A plan_time whose date the calendar of its revision excludes, or that a planned skip contains, is
never active, however long ago it is due. After the last date that the calendar knows, the revision
has no plan_times.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from typing import NamedTuple

from cronledger.rules.calendar_days import first_unknown
from cronledger.rules.calendars import date_of
from cronledger.rules.cron import Cron
from cronledger.rules.model import JobState, Parked, Revision, SkipReason
from cronledger.rules.plan_times import (
    NEVER,
    TICK,
    as_spec_error,
    back,
    cron_of,
    due_at,
    lifetime,
    longest_lag,
    noticed_late,
    split_by_skips,
    unskipped,
)
from cronledger.rules.plans import ScheduleRow
from cronledger.rules.states import MergedRetirements, spans_of

WINDOW = 16  # plan_times that the search for the newest one reads at once


class Planned(NamedTuple):
    """One plan_time, the revision that owns it, and the reason for a skip (None: active).

    `reason` is only set if the plan_time is due. `excluded`: the name of its day if the calendar
    excludes the date, and `skipped`: the reason of the planned skip that contains it, due or not.
    """

    plan_time: datetime
    due_at: datetime
    revision: Revision
    reason: SkipReason | None
    excluded: str | None = None
    skipped: str | None = None

    @property
    def observed(self) -> bool:
        """Whether another scheduler runs it."""
        return self.revision.job.is_observed(self.plan_time)


class Segment(NamedTuple):
    """`revision` owns the plan_times in (after, through], and one side fires all of them."""

    revision: Revision
    after: datetime
    through: datetime

    @property
    def observed(self) -> bool:
        """Whether another scheduler runs them."""
        return self.revision.job.is_observed(self.through)

    def sides(self) -> Iterator["Segment"]:
        """Divide it where the plan_times move from one scheduler to another."""
        job, after = self.revision.job, self.after
        for first in (job.adopted_at, job.returned_at) if job.observed else ():
            if first is not None and after < first - TICK < self.through:
                yield self._replace(after=after, through=first - TICK)
                after = first - TICK
        yield self._replace(after=after)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The plan_times of one schedule row in (cursor, now]. `now` is never before the cursor.

    `segments`: in order and without gaps, except for invalid schedules. `current`: the revision in
    force at `now`. `hold`: PAUSED or RETIRED if that is the state at `now`. `change`: the next
    instant at which another revision or state comes into force by itself. `through`: the end of the
    known plan_times: `now`, or the start of a segment with `spec_error`. `retired_through`: what
    was due until then and has not started is `missed`: the job was retired, or the scope is.
    """

    row: ScheduleRow
    now: datetime
    through: datetime
    segments: Sequence[Segment]
    current: Revision
    hold: Parked | None
    change: datetime | None
    edit: datetime | None
    spec_error: str | None
    retired_through: datetime
    span_ends: Sequence[datetime]
    span_reasons: Sequence[SkipReason | None]
    revisions: Sequence[Revision]
    froms: Sequence[datetime]

    def revision_at(self, instant: datetime) -> int:
        """Return the revision in force at `instant`, which is not after `now`."""
        return self.revisions[max(0, bisect_right(self.froms, instant) - 1)].revision

    def forward(self) -> Iterator[Planned]:
        """Yield every plan_time in (cursor, through], ascending, due or not.

        Raises SpecError, as do the other walks.
        """
        for segment in self.segments:
            yield from self._walk_all(segment, segment.after, segment.through)

    def first_undue(self) -> datetime | None:
        """Return the first plan_time up to `through` that is not due yet."""
        for segment in self.segments:
            after = back(self.now, longest_lag(segment.revision), segment.after)
            for planned in self._walk_all(segment, after, segment.through):
                if planned.due_at > self.now:
                    return planned.plan_time
        return None

    def newest(self, due_after: datetime) -> Planned | None:
        """Return the newest plan_time of replicas that was due in active state after `due_after`.

        Plan_times after the first undue one do not count. The search goes back from `now`, so its
        cost does not depend on the age of the cursor.
        """
        undue = self.first_undue()
        for segment in reversed(self.segments):
            if segment.observed or segment.revision.broken:
                continue
            if undue is not None and undue <= segment.after:
                continue
            through = segment.through if undue is None else min(segment.through, undue - TICK)
            for part in self._active_parts(segment, due_after, through):
                newest = self._newest(segment, due_after, *part)
                if newest is not None:
                    return newest
        return None

    def count_active(self, due_after: datetime, through: datetime) -> int:
        """Return how many plan_times of replicas up to `through` are due after `due_after`, active.

        It enumerates only those that are due near a change of state or near `due_after`, because
        jitter decides on which side they are due.
        """
        return sum(
            self._count_due(segment, start, end, min(segment.through, through))
            for segment in self.segments
            for start, end in self._active_spans(due_after)
            if end > segment.after and not (segment.observed or segment.revision.broken)
        )

    def upcoming(self) -> Planned | None:
        """Return the first plan_time after `now` by the revision in force, or None."""
        try:
            cron = self._cron(self.current)
            if cron is None:
                return None
            plan_time = self._first(cron, self.now)
            if plan_time is None:
                return None
            before, excluded, skipped = plan_time - TICK, None, None
            if self.current.calendar is not None:
                ((_, excluded),) = cron.with_excluded(before, plan_time)
            if self.row.planned_skips:
                ((*_, skipped),) = split_by_skips(self.row.planned_skips, before, plan_time)
            due = due_at(self.current.job, self.row.key, plan_time)
            return Planned(plan_time, due, self.current, None, excluded, skipped)
        except (ValueError, OverflowError) as error:
            raise as_spec_error(self.current, error) from error

    def included_from(self, planned: Planned) -> datetime | None:
        """Return the first plan_time from `planned` on that is not to be skipped, or None."""
        if planned.excluded is None and planned.skipped is None:
            return planned.plan_time
        after = planned.plan_time - TICK
        for segment in self.segments:
            if segment.through > after:  # not due yet, maybe of an earlier revision
                start = max(segment.after, after)
                known = next(self._walk(segment, start, segment.through), None)
                if known is not None:
                    return known.plan_time
        try:
            cron = None if self.spec_error is not None else self._cron(self.current)
            if cron is None:
                return None
            found = self._first(cron.included, max(after, self.through))
            for skip in self.row.planned_skips:
                if found is not None and skip.first <= found <= skip.last:
                    found = self._first(cron.included, skip.last)
            return found
        except (ValueError, OverflowError) as error:
            raise as_spec_error(self.current, error) from error

    @property
    def waits_for_boot(self) -> bool:
        """Whether the next boot of the host is the next plan_time by the revision in force."""
        job, cron = self.current.job, self._cron(self.current)
        ended = job.ends_at is not None and self.now >= job.ends_at
        return cron is not None and cron.is_reboot and not ended

    def end_of_calendar(self) -> tuple[datetime, str] | None:
        """Return the first firing that the calendar in force does not know, and an error about it.

        None: the job has no calendar, or never fires after the end of its calendar.
        """
        calendar, cron = self.current.calendar, self._cron(self.current)
        if calendar is None or cron is None or cron.unknown is None:
            return None
        day = date_of(first_unknown(calendar, self.current.job.on_excluded))
        firing = self._first(cron.unknown, datetime.combine(day, time(), UTC) - timedelta(days=2))
        if firing is None:
            return None
        text = (
            f"calendar {calendar.name!r} ends on {calendar.through}; apply its file or App again, "
            "or call set_calendar() with a later date"
        )
        return firing, text

    def _first(self, cron: Cron, after: datetime) -> datetime | None:
        """Return the first firing after an instant by the revision in force, or None."""
        job = self.current.job
        if job.starts_at is not None and job.starts_at > after:
            after = job.starts_at - TICK
        firing = cron.next_after(after)
        if firing is None or (job.ends_at is not None and firing.plan_time > job.ends_at):
            return None
        if self.edit is not None and firing.plan_time > self.edit:
            return None
        return firing.plan_time

    def _cron(self, revision: Revision) -> Cron | None:
        return cron_of(revision.job, self.row.key, revision.calendar, self.row.boots)

    def _reason(self, due: datetime) -> SkipReason | None:
        return self.span_reasons[bisect_left(self.span_ends, due)]

    def _walk(self, segment: Segment, after: datetime, through: datetime) -> Iterator[Planned]:
        """Yield the plan_times of the segment in (after, through] that are not to be skipped."""
        revision = segment.revision
        job, key, now = revision.job, self.row.key, self.now
        lost = SkipReason.MISSED if revision.broken else None
        try:
            cron = self._cron(revision)
            after, through = lifetime(job, after, through)
            if cron is None or after >= through:
                return
            late = noticed_late(cron, job, self.row.boots)
            free = unskipped(self.row.planned_skips, after, through)
            included = (cron.included.plan_times(*part) for part in free)
            for plan_time in chain.from_iterable(included):
                due = due_at(job, key, plan_time)
                absent = SkipReason.HOST_ABSENT if plan_time in late else None
                reason = (self._reason(due) or absent if due <= now else None) or lost
                # What can never start is settled now, however long its delay is.
                yield Planned(plan_time, due if lost is None else min(due, now), revision, reason)
        except (ValueError, OverflowError) as error:
            raise as_spec_error(revision, error) from error

    def _walk_all(self, segment: Segment, after: datetime, through: datetime) -> Iterator[Planned]:
        """Yield the plan_times of the segment in (after, through], also those to be skipped."""
        revision, included = segment.revision, self._walk(segment, after, through)
        if revision.calendar is None and not self.row.planned_skips:
            yield from included
            return
        job, key, now = revision.job, self.row.key, self.now
        lost = SkipReason.MISSED if revision.broken else None
        try:
            cron = self._cron(revision)
            after, through = lifetime(job, after, through)
            if cron is None or after >= through:
                return
            for start, end, skipped in split_by_skips(self.row.planned_skips, after, through):
                for plan_time, excluded in cron.with_excluded(start, end):
                    if excluded is None and skipped is None:
                        yield next(included)
                        continue
                    due = due_at(job, key, plan_time)
                    why = SkipReason.OPERATOR if excluded is None else SkipReason.CALENDAR
                    reason = self._reason(due) if due <= now else None
                    if reason in {None, SkipReason.HOST_ABSENT}:
                        reason = lost or (why if due <= now else None)
                    due = due if lost is None else min(due, now)
                    yield Planned(plan_time, due, revision, reason, excluded, skipped)
        except (ValueError, OverflowError) as error:
            raise as_spec_error(revision, error) from error

    def _count(self, segment: Segment, after: datetime, through: datetime) -> int:
        """Return the number of plan_times of `_walk`, without enumerating them."""
        job = segment.revision.job
        try:
            cron = self._cron(segment.revision)
            if cron is None:
                return 0
            free = unskipped(self.row.planned_skips, *lifetime(job, after, through))
            return sum(cron.included.count(*part) for part in free)
        except (ValueError, OverflowError) as error:
            raise as_spec_error(segment.revision, error) from error

    def _count_due(
        self, segment: Segment, start: datetime, end: datetime, through: datetime
    ) -> int:
        """Return the number of plan_times of the segment, up to `through`, due in (start, end]."""
        delay, lag = segment.revision.job.schedule_delay, longest_lag(segment.revision)
        low = back(start, lag, segment.after)
        if low >= through:
            return 0
        high = min(back(end, delay, segment.after), through)
        if self.row.boots:  # few, and those that were noticed late are not active
            walk = self._walk(segment, low, through)
            return sum(x.reason is None and start < x.due_at <= end for x in walk)
        # Those between the next two are due in the interval whatever their jitter is.
        sure_after = min(back(start, delay, segment.after), high)
        sure_through = max(min(back(end, lag, segment.after), high), sure_after)
        jittered = chain(
            self._walk(segment, low, sure_after), self._walk(segment, sure_through, high)
        )
        certain = self._count(segment, sure_after, sure_through)
        return certain + sum(start < planned.due_at <= end for planned in jittered)

    def _active_spans(self, due_after: datetime) -> list[tuple[datetime, datetime]]:
        """Return the times of active state after `due_after`."""
        starts = (self.row.planned_through, *self.span_ends[:-1])
        spans = zip(starts, self.span_ends, self.span_reasons, strict=True)
        return [
            (max(start, due_after), end)
            for start, end, reason in spans
            if reason is None and end > due_after
        ]

    def _active_parts(
        self, segment: Segment, due_after: datetime, through: datetime
    ) -> Iterator[tuple[datetime, datetime]]:
        """Yield disjoint intervals, newest first. No plan_time outside is due in active state."""
        delay, lag = segment.revision.job.schedule_delay, longest_lag(segment.revision)
        floor = through
        for start, end in reversed(self._active_spans(due_after)):
            part_through = min(floor, back(end, delay, segment.after))
            part_after = back(start, lag, segment.after)
            if part_after < part_through:
                yield part_after, part_through
                floor = part_after

    def _newest(
        self, segment: Segment, due_after: datetime, after: datetime, through: datetime
    ) -> Planned | None:
        """Return the newest one in (after, through] that is due after `due_after`, while active."""
        after, through = lifetime(segment.revision.job, after, through)
        length = timedelta(minutes=1)
        while after < through:
            start = back(through, length, after)
            count = self._count(segment, start, through)
            if count > WINDOW:
                length = (through - start) * WINDOW // (2 * count)  # for half of a window
                continue
            found = list(self._walk(segment, start, through)) if count else []
            for planned in reversed(found):
                if planned.reason is None and planned.due_at > due_after:
                    return planned
            through = start
            if 2 * count <= WINDOW:
                length *= 2
        return None


def timeline(
    row: ScheduleRow,
    revisions: Sequence[Revision],
    now: datetime,
    unreadable: Mapping[int, str],
) -> Timeline:
    """Return the timeline of `row` at max(now, cursor).

    `revisions`: ascending, beginning with the one in effect at the cursor. `unreadable`: the errors
    of revisions whose schedule is known to be invalid.
    """
    cursor = row.planned_through
    now = max(now, cursor)
    froms = _effective(revisions)
    count = max(1, bisect_right(froms, now))
    revisions, coming, froms = revisions[:count], froms[count:], froms[:count]
    current = revisions[-1]
    starts = [cursor, *(max(cursor, start) for start in froms[1:])]
    segments = [
        side
        for revision, start, end in zip(revisions, starts, [*froms[1:], now], strict=True)
        if start < end and revision.revision not in unreadable
        for side in Segment(revision, start, end).sides()
    ]
    spec_error = unreadable.get(current.revision)
    gone = MergedRetirements(row.retirements)
    retired_until = gone.end_after(now)
    hold = Parked.RETIRED if retired_until is not None else _hold(current, now)
    spans = spans_of(row, gone, revisions, froms, now)
    changes = coming[:1]
    if retired_until not in (None, NEVER) and current.state is not JobState.RETIRED:
        changes.append(retired_until)
    return Timeline(
        row=row,
        now=now,
        through=now if spec_error is None else starts[-1],
        segments=segments,
        current=current,
        hold=hold,
        change=min(changes, default=None),
        edit=coming[0] if coming else None,
        spec_error=spec_error,
        retired_through=max(
            (
                span.end
                for span in spans
                if span.job_retired or (span.reason is SkipReason.RETIRED and span.end == now)
            ),
            default=cursor,
        ),
        span_ends=[span.end for span in spans],
        span_reasons=[span.reason for span in spans],
        revisions=revisions,
        froms=froms,
    )


def _effective(revisions: Sequence[Revision]) -> list[datetime]:
    froms = [revision.effective_from for revision in revisions]
    for index in range(len(froms) - 1, 0, -1):
        # The clock went back between two edits: the later one applies from its own start.
        froms[index - 1] = min(froms[index - 1], froms[index])
    return froms


def _hold(current: Revision, now: datetime) -> Parked | None:
    if current.state is JobState.RETIRED:
        return Parked.RETIRED
    paused = current.state is JobState.PAUSED
    if paused and (current.paused_until is None or now < current.paused_until):
        return Parked.PAUSED
    return None
