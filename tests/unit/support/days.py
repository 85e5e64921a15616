"""Accounted days made of rows that a test writes, without a database."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from cronledger.explain.day.account import AccountedDay, Accounting, RunnerGap
from cronledger.explain.day.local_day import LocalDay
from cronledger.rules.model import ScopeKey

KEY = ScopeKey("billing <b>&", "global", "global")
DEFINITION = {
    "schedule": "0 * * * *", "timezone": "UTC", "day_or": True, "dst_gap": "shift",
    "dst_fold": "first", "starts_at": None, "ends_at": None, "schedule_delay": "00:00:00",
    "jitter": "00:00:00", "grace": "00:01:00",
}  # fmt: skip


def revision(number: int, at: datetime, state: str = "active", **columns: Any) -> dict[str, Any]:
    definition = DEFINITION | {
        name: columns.pop(name) for name in list(columns) if name in DEFINITION
    }
    row = {"job_name": KEY.job_name, "revision": number, "effective_from": at, "state": state}
    row |= {"paused_until": None, "definition": definition, "requested_by": None, "reason": None}
    return row | columns


def counted(*seconds: int, status: str = "SUCCESS", **columns: Any) -> dict[str, Any]:
    """A row of executions of the schedule with these plan_times, as seconds of the day."""
    row = {"minute": None, "trigger": "schedule", "status": status, "again": False, "late": False}
    return row | {"count": len(seconds), "seconds": list(seconds)} | columns


def requested(minute: int, trigger: str, status: str = "SUCCESS") -> dict[str, Any]:
    """A row of one execution that was requested."""
    return counted(0, status=status, minute=minute, trigger=trigger, seconds=None)


def executed(number: int, at: datetime, status: str = "SUCCESS", **columns: Any) -> dict[str, Any]:
    row = {
        "id": number, "plan_time": at, "trigger": "schedule", "status": status,
        "next_attempt_at": None, "revision": 1, "due_at": at, "attempt": 1, "max_attempts": 1,
        "runner_id": "r1", "first_started_at": at, "started_at": at, "finished_at": at,
        "duration_ms": 4200, "error_code": None, "requested_by": None,
    }  # fmt: skip
    return row | columns


def skipped(first: datetime, through: datetime, reason: str, **columns: Any) -> dict[str, Any]:
    row = {"from_plan_time": first, "through_plan_time": through, "count": 1, "reason": reason}
    return row | {"blocked_by": None, "detail": None, "created_at": through} | columns


def accounted(
    day: date,
    *,
    zone: str = "UTC",
    planned_through: datetime | None = None,
    now: datetime | None = None,
    revisions: Sequence[dict[str, Any]] = (),
    counts: Sequence[dict[str, Any]] = (),
    skips: Sequence[dict[str, Any]] = (),
    executions: Sequence[dict[str, Any]] | None = (),
    beside: Sequence[dict[str, Any]] | None = (),
    gaps: Sequence[RunnerGap] = (),
    **columns: Any,
) -> AccountedDay:
    """The day of these rows; all of it is planned, and it is the next day.

    `columns`: other values of the extent.
    """
    local = LocalDay.of(zone, day)
    began = datetime(2010, 1, 1, tzinfo=UTC)
    extent = {
        "now": now or local.end + timedelta(hours=6), "pruned_through": None,
        "planned_through": planned_through or local.end, "planned_revision": 99, "parked": None,
        "created_at": began, "queue": "default", "retirements": [], "returns": [], **columns,
    }  # fmt: skip
    accounting = Accounting(
        KEY, local, extent, [revision(1, began, timezone=zone), *revisions], {}, counts, skips, gaps
    )
    accounting.add_up()
    return accounting.day(executions, beside)
