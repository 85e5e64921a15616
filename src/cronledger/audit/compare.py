"""Compare one (job, scope): the plan_times that should exist with its executions and skips.

All three are streams ordered by plan_time, which are merged in one pass. The memory is bounded by
the skips that contain one plan_time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from cronledger.audit.accepted import Acceptance, Acceptances
from cronledger.audit.history import Expected, History, Window, boots_of
from cronledger.audit.skip_reasons import FalseReason, OpenSkip, SkipReasons, why_never
from cronledger.audit.stream import Stream
from cronledger.audit.walk import walk
from cronledger.ledger.audits import Blocker, FiredExecution, ScheduleState, SkippedRange

_FAR = timedelta(days=2000)
_SLOW_COMMIT = timedelta(minutes=1)
"""How long after finished_at other transactions may still see RUNNING. A lock, a frozen server or a
lost standby may delay the COMMIT."""
_BEHIND = timedelta(minutes=1)
"""How long a plan_time may wait for its claim after its due_at, on a schedule that is on time."""
_NONE = timedelta(0)
_LOOK_AHEAD = 100
_NEVER_BEHIND = ("paused", "spec_error", "retired", "ended", "unscheduled", "boot")


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation. The key is empty if it concerns a queue or the whole ledger.

    `through`: the last plan_time of several. `count`: how many consecutive plan_times are missing.
    `accepted`: the acceptance of this violation.
    """

    kind: str
    job_name: str | None
    scope_kind: str | None
    scope_id: str | None
    plan_time: datetime | None
    execution_id: int | None
    detail: str
    through: datetime | None = None
    count: int = 1
    accepted: Acceptance | None = None


@dataclass(slots=True)
class Tally:
    """What the audit covered: the plan_times in (after, through]; both are None without a range.

    `behind`: schedules with plan_times in the requested range that are due and not planned yet.
    `observed`: the plan_times that another scheduler runs, whose proof rests on its reports.
    """

    schedules: int = 0
    plan_times: int = 0
    executions: int = 0
    skips: int = 0
    behind: int = 0
    observed: int = 0
    after: datetime | None = None
    through: datetime | None = None

    def cover(self, after: datetime, through: datetime) -> None:
        """Extend the range to plan_times in (after, through]."""
        if after < through:
            self.after = min(after, self.after or after)
            self.through = max(through, self.through or through)


@dataclass(slots=True)
class ScheduleComparison:
    """Merges the streams of one schedule. `blocked` collects overlap skips for a later check."""

    state: ScheduleState
    history: History
    window: Window
    tally: Tally
    acceptances: Acceptances
    blocked: list[SkippedRange] = field(default_factory=list)
    _missing: list[Expected] = field(default_factory=list)  # the first and the last in a row
    _missing_count: int = 0

    def violations(
        self, executions: Iterable[FiredExecution], skips: Iterable[SkippedRange]
    ) -> Iterator[Violation]:
        """Yield the violations, and read both streams to their ends."""
        after, through = self.window.after, self._through()
        self.tally.cover(after, through)
        self.tally.behind += self._is_behind()
        running = Stream(executions, attrgetter("plan_time"))
        skipping = Stream(skips, attrgetter("first"))
        reasons = SkipReasons(self.state, self.history, self.window)
        opened: list[OpenSkip] = []
        for expected in self.history.expected(self.state.key, after, through, self.state):
            at = expected.plan_time
            self.tally.plan_times += 1
            yield from self._unplanned(running.before(at))
            opened += self._open(skipping.through(at))
            if any(one.skip.last < at for one in opened):
                yield from self._check_closed(one for one in opened if one.skip.last < at)
                opened = [one for one in opened if one.skip.last >= at]
            here = list(running.through(at))
            yield from self._at(expected, here, opened, reasons)
        yield from self._report_missing()
        yield from self._check_closed(opened)
        yield from self._unplanned(running.rest())
        yield from self._check_closed(self._open(skipping.rest()))
        yield from self._reasons(reasons.finish(self.window.through >= self.state.planned_through))
        yield from self._check_ended()

    def _open(self, skips: Iterable[SkippedRange]) -> Iterator[OpenSkip]:
        for skip in skips:
            self.tally.skips += 1
            yield OpenSkip(skip)

    def _at(
        self,
        expected: Expected,
        executions: Sequence[FiredExecution],
        opened: Sequence[OpenSkip],
        reasons: SkipReasons,
    ) -> Iterator[Violation]:
        """Compare one plan_time with its execution and with the skips that contain it."""
        yield from self._reasons(reasons.reach(expected))
        for ran in executions:
            yield from self._compare(ran, expected)
            reasons.executed(expected, ran.revision)
        for one in opened:
            yield from self._reasons(reasons.skipped(one, expected))
        yield from self._account_for(expected, bool(executions or opened))

    def _through(self) -> datetime:
        return min(self.window.through, self.history.planned(self.state))

    def _is_behind(self) -> bool:
        """Return whether a plan_time of the range has been due for a while and is not planned."""
        if self.state.parked in _NEVER_BEHIND:
            return False
        after, end = max(self.window.after, self._through()), self.window.end
        late = self.window.now - _BEHIND
        due = self.history.expected(self.state.key, after, min(end, late), self.state)
        return any(
            one.due_at + (one.edit.grace or _NONE if one.is_observed else _NONE) <= late
            and not self.history.paused(one.due_at)
            and not self.history.retired(self.state, one.due_at)
            for one in islice(due, _LOOK_AHEAD)
        )

    def _violation(
        self,
        kind: str,
        at: datetime | None,
        detail: str,
        ident: int | None = None,
        through: datetime | None = None,
    ) -> Violation:
        last = through if through != at else None
        return Violation(kind, *self.state.key, at, ident, detail, last)

    def _reasons(self, reasons: Iterable[FalseReason]) -> Iterator[Violation]:
        for kind, at, detail, through in reasons:
            yield self._violation(kind, at, detail, through=through)

    def _unplanned(self, executions: Iterable[FiredExecution]) -> Iterator[Violation]:
        """Yield the violations of executions that are not at a plan_time."""
        for ran in executions:
            self.tally.executions += 1
            if ran.plan_time > self.state.planned_through:
                text = f"it lies after the cursor, which is at {self.state.planned_through}"
            elif ran.plan_time > self._through():
                continue  # it belongs to a revision that the cursor has not reached
            else:
                edit = self.history.at(ran.plan_time)
                schedule = edit.raw.get("schedule")
                text = f"{schedule!r} of revision {edit.number} has no such plan_time"
            yield self._violation("extra", ran.plan_time, text, ran.id)

    def _compare(self, ran: FiredExecution, expected: Expected) -> Iterator[Violation]:
        self.tally.executions += 1
        edit = expected.edit
        if ran.revision not in edit.revisions:
            text = (
                f"it ran with revision {ran.revision}, but its plan_time belongs to {edit.number}"
            )
            yield self._violation("wrong_revision", ran.plan_time, text, ran.id)
        elif ran.due_at != expected.due_at:
            text = f"its due_at is {ran.due_at}, but should be {expected.due_at}"
            yield self._violation("wrong_due_at", ran.plan_time, text, ran.id)
        if expected.never_runs:
            yield self._violation("extra", ran.plan_time, why_never(expected), ran.id)
        elif expected.noticed_late:
            text = f"its host first checked in {expected.noticed_after} after its boot"
            yield self._violation("extra", ran.plan_time, text, ran.id)

    def _account_for(self, expected: Expected, found: bool) -> Iterator[Violation]:
        if found:
            yield from self._report_missing()
            return
        if self._missing and not self._can_be_merged(self._missing[0], expected):
            yield from self._report_missing()
        self._missing = [*self._missing[:1], expected]
        self._missing_count += 1

    def _can_be_merged(self, one: Expected, other: Expected) -> bool:
        """Return whether one violation can report both as missing."""
        return one.edit is other.edit and self._accepted(one) is self._accepted(other)

    def _accepted(self, expected: Expected) -> Acceptance | None:
        return self.acceptances.find("missing", self.state.key, expected.plan_time, None)

    def _report_missing(self) -> Iterator[Violation]:
        if not self._missing:
            return
        first, last, count = self._missing[0], self._missing[-1], self._missing_count
        self._missing, self._missing_count = [], 0
        text = f"no execution and no skip accounts for it (revision {first.edit.number})"
        if count > 1:
            text = (
                f"no execution and no skip accounts for {count} plan_times up to {last.plan_time}"
            )
        found = self._violation("missing", first.plan_time, text, through=last.plan_time)
        yield replace(found, count=count)

    def _check_closed(self, closed: Iterable[OpenSkip]) -> Iterator[Violation]:
        """Check the skips that were compared, if that was done for their whole range."""
        for one in closed:
            skip = one.skip
            if skip.last > self.state.planned_through:
                text = f"the skip ({skip.reason}) reaches to {skip.last}, which is after the cursor"
                yield self._violation("extra", skip.first, text)
                continue
            if skip.reason == "overlap" and skip.last <= self._through():
                self.blocked.append(skip)
            whole = self.window.after < skip.first and skip.last <= self._through()
            if whole and one.met != skip.total:
                text = (
                    f"the skip ({skip.reason}) of {skip.first} to {skip.last} counts {skip.total}, "
                    f"but the schedule has {one.met} plan_times there"
                )
                yield self._violation("miscounted", skip.first, text)

    def _check_ended(self) -> Iterator[Violation]:
        """Check that a schedule that is parked as `ended` or `boot` has no further plan_time."""
        definition = self.history.edits[-1].definition
        if self.state.parked not in {"ended", "boot"} or definition is None:
            return
        cursor = self.state.planned_through
        definition = replace(definition, boots=tuple(boots_of(self.state)))
        following = next(walk(definition, self.state.key, cursor, cursor + _FAR), None)
        if following is not None:
            yield self._violation(
                "parked",
                following,
                f"it is parked as {self.state.parked}, but has another plan_time",
            )


def check_blocker(skip: SkippedRange, found: Blocker | None, external: bool) -> Violation | None:
    """Return the violation if `blocked_by` of a skip `overlap` cannot be true, or None.

    A skip names the execution that blocked when its range was last extended. That execution ended
    after the last plan_time, except for a slow COMMIT of its end. For a single plan_time, it also
    started before the skip was recorded.
    """

    def violation(text: str) -> Violation:
        return Violation("untrue_skip", *skip.key, skip.first, skip.blocked_by, text)

    named = f"the skip (overlap) names execution {skip.blocked_by}"
    if found is None:
        return violation(f"{named}, which does not exist")
    if found.key != skip.key:
        return violation(f"{named}, which belongs to another scope")
    start = found.created_at if external else found.started_at
    if start is None:
        return violation(f"{named}, which has not started")
    if skip.first == skip.last and start > skip.created_at:
        recorded = f"after the skip was recorded at {skip.created_at}"
        return violation(f"{named}, which started at {start}, {recorded}")
    if found.finished_at is not None and found.finished_at + _SLOW_COMMIT < skip.last:
        return violation(f"{named}, which had ended by {found.finished_at}")
    return None
