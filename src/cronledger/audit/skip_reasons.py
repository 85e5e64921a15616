"""Check that the reasons of skips are true, as far as the ledger allows.

`paused`, `retired`: a pause or retirement was in force when the plan_time was due. `superseded`: a
newer plan_time that was due in active state followed, or with windows any execution of a later
plan_time succeeded. `calendar`: the calendar of the edit that owns the plan_time excludes its date,
and the detail is the name of the day. `operator`: a planned skip contains the plan_time, and the
detail is its reason. `upstream`: that edit requires other jobs (`gates` checks the rest).
`host_absent`: no replica of the host checked in from the due_at to the end of grace. `missed`:
when the skip was recorded, the plan_time was later than grace, or not the newest, or an edit had
replaced its definition, of which no execution shows that it was valid, or the job or scope was
retired since due_at, or the job had no handler. Neither what another scheduler runs counts as
newer, nor what was due before such a time of the job. Each plan_time of a skip is checked. Of
`missed`, all but those that were due within grace before the record need one comparison only. The
first false plan_time of a skip is reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from cronledger.audit.history import Expected, History, Window
from cronledger.ledger.audits import ScheduleState, SkippedRange

_LOOK_AHEAD = 100
_BY_POLICIES = ("overlap", "superseded", "upstream")


class FalseReason(NamedTuple):
    """A violation of a skip: its kind, the first plan_time, a text, and the last plan_time."""

    kind: str
    plan_time: datetime
    detail: str
    through: datetime


@dataclass(slots=True)
class OpenSkip:
    """A skip whose range contains the present plan_time. `met`: its plan_times so far."""

    skip: SkippedRange
    met: int = 0
    wrong_revision: bool = False
    untrue: bool = False


class SkipReasons:
    """Follows a schedule: `reach` a plan_time, then `executed` or `skipped`; finally `finish`."""

    def __init__(self, state: ScheduleState, history: History, window: Window) -> None:
        self._state = state
        self._history = history
        self._now = window.now
        self._superseded: OpenSkip | None = None  # no newer run was found yet
        self._missed: tuple[OpenSkip, Expected] | None = None  # its successor was not seen yet
        self._last: datetime | None = None
        self._valid: set[int] = set()

    def reach(self, expected: Expected) -> Iterator[FalseReason]:
        """Go to the next plan_time."""
        self._last = expected.plan_time
        if self._missed is None:
            return
        skip = self._missed[0].skip
        if self._could_run(expected, skip) and not self._was_stopped(expected, skip):
            yield from self._was_missed(expected)

    def executed(self, expected: Expected, revision: int) -> None:
        """Note that the plan_time has an execution, with this revision, which thus was valid."""
        if not expected.is_observed:
            self._superseded = None
        self._valid.add(revision)

    def skipped(self, one: OpenSkip, expected: Expected) -> Iterator[FalseReason]:
        """Check the plan_time against a skip that contains it."""
        skip = one.skip
        one.met += 1
        if skip.revision not in expected.edit.revisions and not one.wrong_revision:
            one.wrong_revision = True
            at = expected.plan_time
            text = (
                f"the skip ({skip.reason}) of {skip.first} has revision {skip.revision}, but this "
                f"plan_time belongs to {expected.edit.number}"
            )
            yield FalseReason("wrong_revision", at, text, skip.last)
        if (untrue := self._untrue(skip, expected)) is not None:
            if not one.untrue:
                one.untrue = True
                yield FalseReason("untrue_skip", expected.plan_time, untrue, skip.last)
            return
        match skip.reason:
            case "paused" | "retired" | "calendar" | "not_reported":
                pass
            case "operator":
                before = self._superseded
                if before is not None and self._could_run(expected, before.skip):
                    self._superseded = None
            case "superseded":
                windows = self._history.at(skip.created_at).raw.get("windows")
                if not (windows and skip.succeeded):  # its window contains this plan_time
                    self._superseded = self._superseded or one
            case "missed":
                self._superseded = None
                may_be_false = self._missed is None and not one.untrue
                if may_be_false and self._could_start(expected, skip):
                    self._missed = one, expected
            case _:
                self._superseded = None

    def finish(self, to_the_cursor: bool) -> Iterator[FalseReason]:
        """Check the last skips. `to_the_cursor`: the comparison has reached the cursor."""
        if not to_the_cursor or self._history.planned(self._state) < self._state.planned_through:
            return
        if self._missed is not None:
            yield from self._was_missed(self._next_due())
        if self._superseded is not None and self._next_due() is None:
            skip = self._superseded.skip
            text = "the reason is superseded, but no newer plan_time followed"
            yield FalseReason("untrue_skip", skip.first, text, skip.last)

    def _conceals(self, skip: SkippedRange, expected: Expected) -> bool:
        """Return whether a skip has another reason although the plan_time never runs.

        A plan_time of an invalid revision is missed, whatever its date is.
        """
        reason = "operator" if expected.excluded is None else "calendar"
        if not expected.never_runs or skip.reason in (reason, "paused", "retired"):
            return False
        replaced = self._history.at(skip.created_at) is not expected.edit
        may_be_invalid = replaced and self._valid.isdisjoint(expected.edit.revisions)
        return not (skip.reason == "missed" and may_be_invalid)

    def _untrue(  # noqa: PLR0911
        self, skip: SkippedRange, expected: Expected
    ) -> str | None:
        """Return why the reason is false if the plan_time alone shows it; otherwise None."""
        if self._conceals(skip, expected):
            return f"the reason is {skip.reason}, but {why_never(expected)}"
        raw = expected.edit.raw
        match skip.reason:
            case "paused" | "retired" if not self._held(skip.reason, expected.due_at):
                return f"the reason is {skip.reason}, which was not so at {expected.due_at}"
            case "calendar" if skip.detail != expected.excluded:
                day = expected.excluded or "not excluded"
                return f"the reason is calendar ({skip.detail}), but the date is {day}"
            case "operator" if skip.detail not in {x.reason for x in expected.decisions}:
                return f"the reason is operator ({skip.detail}), but no planned skip has it"
            case "host_absent" if not self._history.absent(self._state, expected, self._now):
                return f"the reason is host_absent, but its host checked in after {expected.due_at}"
            case "upstream" if not (raw.get("requires") or raw.get("after")):
                return f"the reason is upstream, but revision {skip.revision} requires no job"
        return _misplaced(skip, expected)

    @staticmethod
    def _could_run(expected: Expected, skip: SkippedRange) -> bool:
        """Return whether nothing kept replicas from running it when a skip was recorded."""
        decided = (one.decided_at <= skip.created_at for one in expected.decisions)
        return expected.excluded is None and not expected.is_observed and not any(decided)

    def _held(self, reason: str, due: datetime) -> bool:
        if reason == "paused":
            return self._history.paused(due)
        return self._history.retired(self._state, due)

    def _could_start(self, expected: Expected, skip: SkippedRange) -> bool:
        """Return whether it was on time when a skip was recorded, and its job not stopped."""
        grace, due = self._history.at(skip.created_at).grace, expected.due_at
        if grace is None or not timedelta(0) <= skip.created_at - due <= grace:
            return False
        if self._history.was_retired_between(self._state, due, skip.created_at):
            return False
        return expected.is_observed or not self._was_stopped(expected, skip)

    def _was_stopped(self, expected: Expected, skip: SkippedRange) -> bool:
        """Return whether the job started nothing for a time before a skip was recorded.

        What was due before the end of that time never starts.
        """
        return self._history.started_nothing_between(expected.due_at, skip.created_at)

    def _was_missed(self, following: Expected | None) -> Iterator[FalseReason]:
        """Check a skip `missed`. `following`: the next plan_time, if it is due."""
        assert self._missed is not None
        one, expected = self._missed
        self._missed = None
        recorded = one.skip.created_at
        if following is not None and following.due_at <= recorded:
            return  # it was not the newest
        edit = self._history.at(recorded)
        if edit is not expected.edit and self._valid.isdisjoint(expected.edit.revisions):
            return  # its definition may have been invalid
        one.untrue = True
        late = recorded - expected.due_at
        text = (
            f"the reason is missed, but it was recorded {late} after due_at, "
            f"within grace {edit.grace}"
        )
        yield FalseReason("untrue_skip", expected.plan_time, text, one.skip.last)

    def _next_due(self) -> Expected | None:
        """Return the next plan_time of replicas that is due in active state, or None."""
        last = self._last
        if last is None or last >= self._now:
            return None
        coming = self._history.expected(self._state.key, last, self._now, self._state, own=True)
        for expected in islice(coming, _LOOK_AHEAD):
            held = expected.never_runs or self._history.paused(expected.due_at)
            if expected.due_at <= self._now and not held:
                return expected
        return None


def _misplaced(skip: SkippedRange, expected: Expected) -> str | None:
    """Return why no plan_time of this definition has such a reason, or None."""
    observed = expected.is_observed
    if observed and skip.reason in _BY_POLICIES:
        return f"the reason is {skip.reason}, but another scheduler runs this plan_time"
    if skip.reason == "not_reported" and not observed:
        return f"the reason is not_reported, but revision {skip.revision} is not observed"
    return None


def why_never(expected: Expected) -> str:
    """Return why a plan_time that never runs does not, as the end of a sentence."""
    if expected.excluded is not None:
        return f"the calendar excludes its date ({expected.excluded})"
    return f"a planned skip contains it ({expected.decisions[0].reason})"
