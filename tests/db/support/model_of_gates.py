"""Which executions start after others, and which do not because those did not succeed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tests.db.support.model_of_input import Input
from tests.db.support.model_of_rows import Row, Rows, Scope


@dataclass(frozen=True)
class Skipped:
    """A skip: why, and the revision to which it belongs."""

    where: Scope
    first: datetime
    last: datetime
    reason: str
    revision: int


class Gates(Input):
    """What a check of all gates must do.

    Each plan_time requires the same one of another job, if that job existed then.
    """

    def gates_checked(
        self, found: Rows, skips: list[Skipped], woken: Mapping[Scope, datetime]
    ) -> tuple[list[Row], list[Row]]:
        """After a check, each gate is open, or its wait has ended, or it has to wait.

        `woken`: schedules that are to be planned again, and how far they are planned. Returns what
        opened and what expired.
        """
        waiting = [row for row in self.rows.values() if row.waits_for_gate]
        opened = [row for row in waiting if self._may_open(row, skips, woken)]
        expired = [
            row for row in waiting
            if row not in opened and self._until(row) + self._late(row, woken) <= self.now
        ]  # fmt: skip
        for row in waiting:
            self.put(replace(row, waits_until=self._until(row)))
        for row in opened:
            due = max(row.due_at, self.now)
            self.put(replace(self.rows[row.id], next_attempt_at=due))
            if self.policy(row).overlap == "replace":
                for other in self.running(*row.where):
                    self.put(replace(other, ends=True))
        for row in expired:
            if row.trigger == "backfill":
                self.put(replace(self.rows[row.id], status="FAILED", error_code="upstream"))
                continue
            assert row.id not in found, row
            assert [x.reason for x in skips if _has(x, row.where, row.plan_time)] == ["upstream"]
            del self.rows[row.id]
        return opened, expired

    def _until(self, row: Row) -> datetime:
        assert row.gated_at is not None
        policy = self.jobs[row.job].revision(row.revision)
        return max(row.due_at, row.gated_at) + policy.wait

    def _late(self, row: Row, woken: Mapping[Scope, datetime]) -> timedelta:
        """How much longer the wait may be, because a claim has to plan the required job."""
        return timedelta(minutes=self._is_to_plan(row, woken))

    def _is_to_plan(self, row: Row, woken: Mapping[Scope, datetime]) -> bool:
        gate = self.jobs[row.job].revision(row.revision).gate
        return gate is not None and row.plan_time > woken.get((gate, row.scope), row.plan_time)

    def _may_open(self, row: Row, skips: list[Skipped], woken: Mapping[Scope, datetime]) -> bool:
        policy = self.jobs[row.job].revision(row.revision)
        assert policy.gate is not None
        required, at = (policy.gate, row.scope), row.plan_time
        runs = [
            r.status for r in self.rows.values()
            if r.where == required and r.plan_time == at and r.trigger in ("schedule", "backfill")
        ]  # fmt: skip
        skipped = [x for x in skips if _has(x, required, at)]
        if self._is_to_plan(row, woken):
            return False
        if at <= self.jobs[policy.gate].history[0][1] and not runs:
            return True
        return runs == ["SUCCESS"] if runs else any(map(self._does_not_count, skipped))

    def _does_not_count(self, skip: Skipped) -> bool:
        """Its date is excluded."""
        policy = self.jobs[skip.where[0]].revision(skip.revision)
        return skip.reason == "calendar" or (policy.calendar and policy.excluded)


def _has(skip: Skipped, where: Scope, plan_time: datetime) -> bool:
    return skip.where == where and skip.first <= plan_time <= skip.last
