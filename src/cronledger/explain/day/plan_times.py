"""The plan_times of a day, and the state of those that planning has not reached.

They come from the revisions of the job, computed as `verify` computes them.
"""

from bisect import bisect_left, bisect_right
from datetime import datetime
from itertools import pairwise

from cronledger.audit.history import Edit, History, Owned
from cronledger.audit.walk import due_at, runs
from cronledger.explain.day import seconds
from cronledger.explain.day.seconds import Axis
from cronledger.explain.day.states import State
from cronledger.ledger.audits import ScheduleState


class PlanTimes:
    """The plan_times of one scope in (after, through], which lie on the axis of a day."""

    def __init__(
        self, history: History, schedule: ScheduleState, axis: Axis, *,
        after: datetime, through: datetime, now: datetime,
    ) -> None:  # fmt: skip
        self._history = history
        self._schedule = schedule
        self._axis = axis
        self._now = now
        self._owned = list(history.owned(after, through)) if history.edits else []
        instants = [now, schedule.retired_at, schedule.returned_at]
        for edit in history.edits:
            instants += [edit.start, edit.paused_until]
        self._instants = sorted({one for one in instants if one is not None})

    def planned(self) -> bytes:
        """Return 1 for each second of the day that is a plan_time, and otherwise 0."""
        planned = bytearray(self._axis.length)
        for owned in self._owned:
            for run in runs(owned.definition, self._schedule.key, owned.after, owned.through):
                place, found = self._axis.place(run.base), run.parts.seconds
                first, found = max(place, 0), found[max(-place, 0) :]
                there = slice(first, first + len(found))
                planned[there] = seconds.either(planned[there], found)
        return bytes(planned)

    def unsettled(self, planned: bytes, authority: datetime) -> bytes:
        """Return the states of plan_times after `authority`, which planning has not reached.

        `planned`: the result of `planned`. Other seconds have any state.
        """
        states = bytearray(self._axis.length)
        for owned in self._owned:
            if owned.through > authority:
                after = max(owned.after, authority)
                self._write(states, planned, owned._replace(after=after))
        return bytes(states)

    def _write(self, states: bytearray, planned: bytes, owned: Owned) -> None:
        """Write the states of plan_times that one edit owns.

        Between two changes all have the same state. Those that the jitter may move over a change
        are computed one by one.
        """
        definition, axis = owned.definition, self._axis
        delay, jitter = definition.schedule_delay, definition.jitter
        end = axis.through(owned.through)
        for before, last in pairwise(
            self._changes(owned.after + delay, owned.through + delay + jitter)
        ):
            first, same_until = axis.through(before - delay), axis.through(last - delay - jitter)
            seconds.fill(states, first, same_until, seconds.code(self._state(last, owned.edit)))
            for place in range(max(first, same_until), min(axis.through(last - delay), end)):
                if planned[place]:
                    due = due_at(definition, self._schedule.key, axis.instant(place))
                    states[place] = seconds.code(self._state(due, owned.edit))

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
        retired, returned = self._schedule.retired_at, self._schedule.returned_at
        gone = retired is not None and retired < due and (returned is None or due <= returned)
        if gone or owner.state == "retired":
            return None
        if due > self._now:
            return State.FUTURE
        return State.HELD if self._history.paused(due) else State.OVERDUE
