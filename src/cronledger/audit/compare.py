"""One (job, scope) judged: what should be there, against its executions and skips.

All three come as streams, by plan_time, and are merged in one pass: the memory is that of the skips
that are open at one plan_time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from cronledger.audit.accepted import Acceptance, Acceptances
from cronledger.audit.history import Expected, History, Window
from cronledger.audit.skip_reasons import Open, Said, SkipReasons
from cronledger.audit.walk import walk
from cronledger.ledger.audits import Blocker, Ran, Skipped, Stand

_FAR = timedelta(days=2000)
_SLOW_COMMIT = timedelta(minutes=1)
"""How long after finished_at others may still see RUNNING: until the COMMIT, which a lock, a frozen
server or a lost standby holds up."""
_BEHIND = timedelta(minutes=1)
"""How long after its due_at a plan_time may still await its claim, on a schedule that keeps up."""
_LOOK_AHEAD = 100
_NEVER_BEHIND = ("paused", "spec_error", "retired", "ended", "unscheduled")


@dataclass(frozen=True, slots=True)
class Violation:
    """What must not be. The key is empty where it is about a queue, or about the ledger.

    `through`: the last plan_time where it is about several; `count`: how many in a row are missing.
    `accepted`: somebody has accepted it.
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
    """How much was looked at: plan_times in (after, through]; None: in no range at all.

    `behind`: schedules with plan_times that are due in the range asked for and not planned yet.
    """

    schedules: int = 0
    plan_times: int = 0
    executions: int = 0
    skips: int = 0
    behind: int = 0
    after: datetime | None = None
    through: datetime | None = None

    def cover(self, after: datetime, through: datetime) -> None:
        """Extend the range to plan_times in (after, through]."""
        if after < through:
            self.after = min(after, self.after or after)
            self.through = max(through, self.through or through)


@dataclass(slots=True)
class Judge:
    """Merges the streams of one schedule; `blocked` collects overlap skips to look at later."""

    stand: Stand
    history: History
    window: Window
    tally: Tally
    acceptances: Acceptances
    blocked: list[Skipped] = field(default_factory=list)
    _missing: list[Expected] = field(default_factory=list)  # the first and the last in a row
    _lacking: int = 0

    def judge(self, executions: Iterable[Ran], skips: Iterable[Skipped]) -> Iterator[Violation]:
        """Yield what is wrong. Both streams are read to their ends."""
        after, through = self.window.after, self._through()
        self.tally.cover(after, through)
        self.tally.behind += self._is_behind()
        excuses = SkipReasons(self.stand, self.history, self.window)
        running, skipping = iter(executions), iter(skips)
        ran, skip = next(running, None), next(skipping, None)
        opened: list[Open] = []
        for expected in self.history.expected(self.stand.key, after, through):
            at = expected.plan_time
            self.tally.plan_times += 1
            while ran is not None and ran.plan_time < at:
                yield from self._odd(ran)
                ran = next(running, None)
            while skip is not None and skip.first <= at:
                self.tally.skips += 1
                opened.append(Open(skip))
                skip = next(skipping, None)
            if opened and any(one.skip.last < at for one in opened):
                yield from self._closed(opened, at, excuses)
                opened = [one for one in opened if one.skip.last >= at]
            yield from self._wrap(excuses.met(expected, bool(opened)))
            found = False
            if ran is not None and ran.plan_time == at:
                found = True
                yield from self._compare(ran, expected)
                yield from self._wrap(excuses.ran())
                ran = next(running, None)
            for one in opened:
                found = True
                yield from self._wrap(excuses.skipped(one, expected))
            yield from self._account(expected, found)
        yield from self._lacked()
        yield from self._closed(opened, None, excuses)
        while ran is not None:
            yield from self._odd(ran)
            ran = next(running, None)
        while skip is not None:
            self.tally.skips += 1
            yield from self._closed([Open(skip)], None, excuses)
            skip = next(skipping, None)
        yield from self._wrap(excuses.over(self.window.through >= self.stand.planned_through))
        yield from self._ended()

    def _through(self) -> datetime:
        return min(self.window.through, self.history.planned(self.stand))

    def _is_behind(self) -> bool:
        """Return whether a plan_time of the range has been due for a while and is not planned."""
        if self.stand.parked in _NEVER_BEHIND or self.stand.retired_at is not None:
            return False
        after, end = max(self.window.after, self._through()), self.window.end
        late = self.window.now - _BEHIND
        due = self.history.expected(self.stand.key, after, min(end, late))
        return any(
            one.due_at <= late
            and not self.history.paused(one.due_at)
            and one.edit.state != "retired"
            for one in islice(due, _LOOK_AHEAD)
        )

    def _say(
        self,
        kind: str,
        at: datetime | None,
        detail: str,
        ident: int | None = None,
        through: datetime | None = None,
    ) -> Violation:
        last = through if through != at else None
        return Violation(kind, *self.stand.key, at, ident, detail, last)

    def _wrap(self, said: Iterable[Said]) -> Iterator[Violation]:
        for kind, at, detail, through in said:
            yield self._say(kind, at, detail, through=through)

    def _odd(self, ran: Ran) -> Iterator[Violation]:
        """An execution at an instant that is no plan_time."""
        self.tally.executions += 1
        if ran.plan_time > self.stand.planned_through:
            text = f"it lies behind the cursor, which is at {self.stand.planned_through}"
        elif ran.plan_time > self._through():
            return  # of a revision that the cursor has yet to reach
        else:
            edit = self.history.at(ran.plan_time)
            text = f"{edit.raw['schedule']!r} of revision {edit.number} has no such plan_time"
        yield self._say("extra", ran.plan_time, text, ran.id)

    def _compare(self, ran: Ran, expected: Expected) -> Iterator[Violation]:
        self.tally.executions += 1
        edit = expected.edit
        if ran.revision not in edit.names:
            text = f"it ran as of revision {ran.revision}; its plan_time belongs to {edit.number}"
            yield self._say("wrong_revision", ran.plan_time, text, ran.id)
        elif ran.due_at != expected.due_at:
            text = f"its due_at is {ran.due_at}, and should be {expected.due_at}"
            yield self._say("wrong_due_at", ran.plan_time, text, ran.id)

    def _account(self, expected: Expected, found: bool) -> Iterator[Violation]:
        if found:
            yield from self._lacked()
            return
        if self._missing and not self._is_like(self._missing[0], expected):
            yield from self._lacked()
        self._missing = [*self._missing[:1], expected]
        self._lacking += 1

    def _is_like(self, one: Expected, other: Expected) -> bool:
        """Return whether one violation can say of both that they are missing."""
        return one.edit is other.edit and self._accepted(one) is self._accepted(other)

    def _accepted(self, expected: Expected) -> Acceptance | None:
        return self.acceptances.find("missing", self.stand.key, expected.plan_time, None)

    def _lacked(self) -> Iterator[Violation]:
        if not self._missing:
            return
        first, last, count = self._missing[0], self._missing[-1], self._lacking
        self._missing, self._lacking = [], 0
        text = f"no execution and no skip accounts for it (revision {first.edit.number})"
        if count > 1:
            text = (
                f"no execution and no skip accounts for {count} plan_times up to {last.plan_time}"
            )
        key = self.stand.key
        yield Violation(
            "missing",
            *key,
            first.plan_time,
            None,
            text,
            last.plan_time if count > 1 else None,
            count,
        )

    def _closed(
        self, opened: Iterable[Open], at: datetime | None, excuses: SkipReasons
    ) -> Iterator[Violation]:
        """Skips that end before `at`, or with all: counted, if all of their range was walked."""
        for one in opened:
            skip = one.skip
            if at is not None and skip.last >= at:
                continue
            if skip.last > self.stand.planned_through:
                text = f"the skip ({skip.reason}) reaches to {skip.last}, behind the cursor"
                yield self._say("extra", skip.first, text)
                continue
            if skip.reason == "overlap" and skip.last <= self._through():
                self.blocked.append(skip)
            whole = self.window.after < skip.first and skip.last <= self._through()
            if whole and one.met != skip.total:
                text = (
                    f"the skip ({skip.reason}) of {skip.first} to {skip.last} says {skip.total}, "
                    f"and the schedule has {one.met} plan_times there"
                )
                yield self._say("miscounted", skip.first, text)

    def _ended(self) -> Iterator[Violation]:
        """`ended` says that the schedule has no plan_time to come."""
        edit = self.history.edits[-1]
        if self.stand.parked != "ended" or edit.definition is None:
            return
        cursor = self.stand.planned_through
        following = next(walk(edit.definition, *self.stand.key, cursor, cursor + _FAR), None)
        if following is not None:
            yield self._say("parked", following, "it is parked ended, and has a plan_time to come")


def judge_blocker(skip: Skipped, found: Blocker | None, external: bool) -> Violation | None:
    """What is wrong with `blocked_by` of a skip `overlap`: another scope's, or not RUNNING then.

    A skip names what blocked when its range was last extended, so that this ended after the last
    plan_time is certain (but for a slow COMMIT of that end); of a single plan_time also that it
    started before the skip was recorded.
    """

    def say(text: str) -> Violation:
        return Violation("untrue_skip", *skip.key, skip.first, skip.blocked_by, text)

    named = f"the skip (overlap) names execution {skip.blocked_by}"
    if found is None:
        return say(f"{named}, which does not exist")
    if found.key != skip.key:
        return say(f"{named}, which is of another scope")
    start = found.created_at if external else found.started_at
    if start is None or (skip.first == skip.last and start > skip.created_at):
        return say(f"{named}, which had not started then")
    if found.finished_at is not None and found.finished_at + _SLOW_COMMIT < skip.last:
        return say(f"{named}, which had ended by {found.finished_at}")
    return None
