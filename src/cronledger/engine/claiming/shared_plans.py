"""One plan for all scopes of a job that differ in nothing but their names."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from cronledger.rules.model import HOST, Overlap, Revision
from cronledger.rules.plan_times import depends_on_scope
from cronledger.rules.planner import Room, plan
from cronledger.rules.plans import Plan, ScheduleRow


class SharedPlans:
    """The plans of one claim, in which thousands of scopes of a job may be due at one instant."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._plans: dict[tuple[object, ...], tuple[Sequence[int], Plan]] = {}

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
        key = (
            row.key.job_name, row.planned_revision, row.planned_through, row.next_plan_time,
            row.woken, row.ahead_of, now,
        )  # fmt: skip
        starts = self._starts(room, revisions)
        before = self._plans.get(key)
        if before is not None and _is_same(*before, starts):
            return before[1]
        shared = plan(row, revisions, now, blocker=None, room=room, step=self._step)
        self._plans[key] = starts, shared
        return shared

    def _starts(self, room: Room, revisions: Sequence[Revision]) -> tuple[int, int, int]:
        """Return how many executions each limit of the room lets start, up to those of a plan."""
        alone = all(one.job.overlap is not Overlap.ALLOW for one in revisions)
        most = 1 if alone else self._step
        limits = (room.slots, room.job, room.queue)
        slots, job, queue = (most if limit is None else min(limit, most) for limit in limits)
        return slots, job, queue


def _is_same(starts: Sequence[int], shared: Plan, others: Sequence[int]) -> bool:
    """Return whether a plan that could start so many executions is that of `others`, too.

    It is if neither of them could have been ended by a limit.
    """
    return starts == others or all(len(shared.runs) < most for most in (*starts, *others))


def _is_plain(row: ScheduleRow, revisions: Sequence[Revision]) -> bool:
    """Return whether nothing but the columns of the key decides about the row."""
    of_scope = (row.retirements, row.planned_skips, row.absences, row.reports, row.boots)
    if row.key.scope_kind == HOST or row.window_start is not None or any(of_scope):
        return False
    return not any(depends_on_scope(one.job) for one in revisions)
