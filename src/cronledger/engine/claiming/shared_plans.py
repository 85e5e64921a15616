"""One plan for all scopes of a job that differ in nothing that changes it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from cronledger.rules.model import HOST, Overlap, Revision
from cronledger.rules.plan_times import depends_on_scope
from cronledger.rules.planner import Room, plan
from cronledger.rules.plans import Plan, ScheduleRow


class _Shared(NamedTuple):
    """A plan, the cursor of its row, and how many executions each limit let start."""

    cursor: datetime
    starts: Sequence[int]
    plan: Plan

    def is_that_of(self, cursor: datetime, starts: Sequence[int]) -> bool:
        """Return whether it is also the plan of a row with this cursor and these limits.

        There must be no plan_time between the cursors, and no limit may have ended either plan.
        What else depends on a cursor (segments, times of one state) lies before the first plan_time
        after it.
        """
        if self.cursor != cursor and not self.cursor < cursor < self._first:
            return False
        unlimited = all(len(self.plan.runs) < most for most in (*self.starts, *starts))
        return unlimited or self.starts == starts

    @property
    def _first(self) -> datetime:
        """The first plan_time after the cursor, or the cursor if the plan settles none."""
        settled = (*(run.plan_time for run in self.plan.runs),
                   *(skip.from_plan_time for skip in self.plan.skips))  # fmt: skip
        return min(settled, default=self.cursor)


class SharedPlans:
    """The plans of one claim, in which thousands of scopes of a job may be due at one instant."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._plans: dict[tuple[object, ...], _Shared] = {}

    def plan(
        self,
        row: ScheduleRow,
        revisions: Sequence[Revision],
        now: datetime,
        *,
        blocker: int | None,
        room: Room,
        earlier: Mapping[int, Revision],
        away: bool,
    ) -> Plan:
        """Return what `planner.plan` returns for these arguments.

        Without a blocker, `revisions` have to be the same for all rows of a job with one
        `planned_revision`.
        """
        if blocker is not None or earlier or away or not _is_plain(row, revisions):
            return plan(
                row, revisions, now, blocker=blocker, room=room, step=self._step,
                earlier=earlier, away=away,
            )  # fmt: skip
        cursor, starts = row.planned_through, self._starts(room, revisions)
        same = (
            row.key.job_name, row.planned_revision, row.next_plan_time, row.woken, row.ahead_of, now
        )  # fmt: skip
        keys: tuple[tuple[object, ...], ...] = ((*same, cursor), same)
        for key in keys:
            before = self._plans.get(key)
            if before is not None and before.is_that_of(cursor, starts):
                return before.plan
        found = plan(row, revisions, now, blocker=None, room=room, step=self._step)
        self._plans.update(dict.fromkeys(keys, _Shared(cursor, starts, found)))
        return found

    def _starts(self, room: Room, revisions: Sequence[Revision]) -> tuple[int, int, int]:
        """Return how many executions each limit of the room lets start, up to those of a plan."""
        alone = all(one.job.overlap is not Overlap.ALLOW for one in revisions)
        most = 1 if alone else self._step
        limits = (room.slots, room.job, room.queue)
        slots, job, queue = (most if limit is None else min(limit, most) for limit in limits)
        return slots, job, queue


def _is_plain(row: ScheduleRow, revisions: Sequence[Revision]) -> bool:
    """Return whether nothing but the columns of the key decides about the row."""
    of_scope = (row.retirements, row.planned_skips, row.absences, row.reports, row.boots)
    if row.key.scope_kind == HOST or row.window_start is not None or any(of_scope):
        return False
    return not any(depends_on_scope(one.job) for one in revisions)
