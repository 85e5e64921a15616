"""The plan_times of a day, and the state that each has if no row accounts for it.

They come from the revisions of the job, computed as `verify` computes them. A plan_time is a whole
second, and is written here as the number of seconds since the start of the day.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from cronledger.audit.history import Edit, History, Owned
from cronledger.audit.walk import due_at, excluded_day, runs
from cronledger.explain.day.local_day import LocalDay
from cronledger.explain.day.states import State
from cronledger.ledger.audits import ScheduleState

_TICK = timedelta(microseconds=1)


class PlanTimes:
    """The plan_times of one scope on a day that are later than `after`.

    `pauses`: the rows of the job in `job_pauses`.
    """

    def __init__(
        self, history: History, schedule: ScheduleState, local: LocalDay, *,
        after: datetime, now: datetime, pauses: Sequence[Mapping[str, Any]],
    ) -> None:  # fmt: skip
        self._history = history
        self._schedule = schedule
        self._local = local
        self._now = now
        self._pauses = [(row["from_at"] - _TICK, row["until_at"]) for row in pauses]
        self._owned: list[Owned] = []
        if history.edits:
            self._owned += history.owned(after, local.end - _TICK, schedule.boots or ())
        instants = [now, *schedule.retirements, *schedule.returns]
        for pause in self._pauses:
            instants += pause
        for edit in history.edits:
            instants += [edit.start, edit.paused_until]
        self._instants = sorted({one for one in instants if one is not None})

    def states(self, authority: datetime) -> dict[int, State | None]:
        """Return the state of each plan_time, ascending, as if the day had no other rows.

        Those through `authority` are unexplained, and planning has not reached the others. None:
        the plan_time is not one unless it was executed, because its job or scope was retired.
        """
        states: dict[int, State | None] = {}
        for owned in self._owned:
            seconds = list(self._seconds(owned))
            reached = self._place(seconds, authority)
            states.update(dict.fromkeys(seconds[:reached], State.UNEXPLAINED))
            after = max(owned.after, authority)
            if after < owned.through:
                states.update(self._unsettled(owned._replace(after=after), seconds))
        return states

    def excluded(self) -> Iterator[int]:
        """Yield the plan_times that a calendar excludes."""
        for owned in self._owned:
            if owned.definition.dates is None:
                continue
            for second in self._seconds(owned):
                at = self._local.instant(second)
                if excluded_day(owned.definition, self._schedule.key, at) is not None:
                    yield second

    def _seconds(self, owned: Owned) -> Iterator[int]:
        """Yield the plan_times that an edit owns, ascending."""
        for piece in self._local.pieces:
            after = max(owned.after, piece.start - _TICK)
            through = min(owned.through, piece.end - _TICK)
            for run in runs(owned.definition, self._schedule.key, after, through):
                base = self._local.second(run.base)
                yield from (base + second for second in run.parts.seconds)

    def _place(self, seconds: Sequence[int], instant: datetime) -> int:
        """Return the number of these plan_times that are not after `instant`."""
        return bisect_right(seconds, self._local.second(instant))

    def _unsettled(
        self, owned: Owned, seconds: Sequence[int]
    ) -> Iterator[tuple[int, State | None]]:
        """Yield the plan_times of `seconds` that an edit owns, with their states.

        Between two changes all have the same state. Those that the jitter may move over a change
        are computed one by one.
        """
        definition = owned.definition
        delay, jitter = definition.schedule_delay, definition.jitter
        for before, last in pairwise(
            self._changes(owned.after + delay, owned.through + delay + jitter)
        ):
            first = self._place(seconds, before - delay)
            same = max(first, self._place(seconds, last - delay - jitter))
            state = self._state(last, owned.edit)
            yield from ((second, state) for second in seconds[first:same])
            for second in seconds[same : self._place(seconds, last - delay)]:
                due = due_at(definition, self._schedule.key, self._local.instant(second))
                yield second, self._state(due, owned.edit)

    def _changes(self, after: datetime, through: datetime) -> list[datetime]:
        """Return the instants between these two at which `_state` changes, and both of them.

        The state of all due times after one of them is the same through the next one.
        """
        instants = self._instants
        within = instants[bisect_right(instants, after) : bisect_left(instants, through)]
        return [after, *within, through]

    def _state(self, due: datetime, owner: Edit) -> State | None:
        """Return the state of a plan_time that planning has not reached; None: it is not one.

        A retired job or scope plans nothing until it returns, and records then what was left out.
        """
        if owner.state == "retired" or self._history.scope_retired(self._schedule, due):
            return None
        if due > self._now:
            return State.TO_SKIP if self._in_pause(due) else State.FUTURE
        return State.HELD if self._history.paused(due) else State.OVERDUE

    def _in_pause(self, due: datetime) -> bool:
        """Return whether a pause that is planned or in force contains an instant to come."""
        return any(
            before < due and (until is None or due <= until) for before, until in self._pauses
        )
