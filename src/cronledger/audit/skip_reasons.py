"""Whether the reasons that skips give are true, as far as the ledger can tell.

`paused`, `retired`: a pause, a retirement was in force when the plan_time was due. `superseded`: a
newer one that was due in active state came after it. `missed`: it was late beyond grace, or not the
newest, when that was recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from cronledger.audit.history import Expected, History, Window
from cronledger.ledger.audits import Skipped, Stand

Said = tuple[str, datetime, str, datetime]  # kind, plan_time, detail, last plan_time
_LOOK_AHEAD = 100


@dataclass(slots=True)
class Open:
    """A skip whose range is being walked, and how many plan_times it has met."""

    skip: Skipped
    met: int = 0
    wrong_revision: bool = False
    untrue: bool = False


class SkipReasons:
    """Follows a schedule in order of plan_time: `met`, then `ran` or `skipped`; `over` at last."""

    def __init__(self, stand: Stand, history: History, window: Window) -> None:
        self._stand = stand
        self._history = history
        self._now = window.now
        self._superseded: Open | None = None  # whose newer run has yet to come
        self._missed: tuple[Open, Expected] | None = None  # whose follower has yet to be seen
        self._last: datetime | None = None

    def met(self, expected: Expected, skipped: bool) -> Iterator[Said]:
        """The next plan_time."""
        self._last = expected.plan_time
        if self._missed is not None:
            yield from self._was_missed(expected)

    def ran(self) -> Iterator[Said]:
        """It has an execution."""
        self._superseded = None
        return iter(())

    def skipped(self, one: Open, expected: Expected) -> Iterator[Said]:
        """It lies in this skip."""
        skip = one.skip
        one.met += 1
        if skip.revision not in expected.edit.names and not one.wrong_revision:
            one.wrong_revision = True
            at = expected.plan_time
            yield (
                "wrong_revision",
                at,
                (
                    f"the skip ({skip.reason}) of {skip.first} is of revision {skip.revision}; "
                    f"this plan_time belongs to {expected.edit.number}"
                ),
                skip.last,
            )
        match skip.reason:
            case "paused" | "retired":
                if not one.untrue and not self._held(skip.reason, expected.due_at):
                    one.untrue = True
                    text = f"the skip says {skip.reason}; it was not, at {expected.due_at}"
                    yield "untrue_skip", expected.plan_time, text, skip.last
            case "superseded":
                self._superseded = self._superseded or one
            case "missed":
                self._superseded = None
                if expected.plan_time == skip.first:
                    self._missed = one, expected
            case _:
                self._superseded = None

    def over(self, to_the_cursor: bool) -> Iterator[Said]:
        """No more plan_times; `to_the_cursor`: because there are none yet."""
        if not to_the_cursor or self._history.planned(self._stand) < self._stand.planned_through:
            return
        if self._missed is not None:
            yield from self._was_missed(self._next_due())
        if self._superseded is not None and self._next_due() is None:
            skip = self._superseded.skip
            text = "the reason of the skip is superseded, but nothing newer came"
            yield "untrue_skip", skip.first, text, skip.last

    def _held(self, reason: str, due: datetime) -> bool:
        if reason == "paused":
            return self._history.paused(due)
        return self._history.may_be_retired(self._stand, due)

    def _was_missed(self, following: Expected | None) -> Iterator[Said]:
        """`following`: the next plan_time, if it was due by now."""
        assert self._missed is not None
        one, expected = self._missed
        self._missed = None
        recorded = one.skip.created_at
        if following is not None and following.due_at <= recorded:
            return  # it was not the newest
        grace = self._history.at(recorded).grace
        late = recorded - expected.due_at
        if late < timedelta(0) or grace is None or late > grace:
            return
        if self._history.was_retired_between(self._stand, expected.due_at, recorded):
            return
        text = f"the skip says missed; it was recorded {late} after due_at, and grace was {grace}"
        yield "untrue_skip", expected.plan_time, text, one.skip.last

    def _next_due(self) -> Expected | None:
        """A later plan_time that is due in active state by now and has yet to start."""
        last = self._last
        if last is None or last >= self._now:
            return None
        coming = self._history.expected(self._stand.key, last, self._now)
        for expected in islice(coming, _LOOK_AHEAD):
            if expected.due_at <= self._now and not self._history.paused(expected.due_at):
                return expected
        return None
