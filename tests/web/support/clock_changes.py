"""Two days on which the clocks change, with an execution or a skip for each plan_time but one."""

from datetime import UTC, date, datetime, timedelta

from cronledger.audit.walk import Definition, walk
from cronledger.rules.model import ScopeKey
from tests.db.support import rows
from tests.db.support.rows import Db

BERLIN = ("fold", "Europe/Berlin", date(2026, 10, 25), datetime(2026, 10, 24, 22, tzinfo=UTC), 25)
SANTIAGO = ("gap", "America/Santiago", date(2026, 9, 6), datetime(2026, 9, 6, 4, tzinfo=UTC), 23)
QUARTER = timedelta(minutes=15)


def open_days(db: Db) -> None:
    """Fill the day of the fold in Berlin, and that of the gap in Santiago."""
    for name, zone, _, start, hours in (BERLIN, SANTIAGO):
        rows.job(db, name, schedule="*/15 * * * *", timezone=zone)
        began, end = start - timedelta(days=2), start + timedelta(hours=hours)
        db.execute(
            "UPDATE cronledger.job_revisions SET effective_from = %s WHERE job_name = %s",
            [began, name],
        )
        db.execute(
            "UPDATE cronledger.schedules SET created_at = %s, planned_through = %s"
            " WHERE job_name = %s", [began, end, name],
        )  # fmt: skip
        rows.partitions(db, start, end)
        definition = Definition("*/15 * * * *", timezone=zone)
        key = ScopeKey(name, "global", "global")
        plan = list(walk(definition, key, start - timedelta(seconds=1), end - QUARTER))
        for number, at in enumerate(plan):
            if number == 40:
                continue  # nothing accounts for it
            if number in (50, 51):
                if number == 50:
                    rows.skip(db, at, at + QUARTER, 2, job=name)
                continue
            late = timedelta(minutes=5) if number % 31 == 7 else timedelta(seconds=1)
            rows.execution(
                db, "FAILED" if number % 29 == 13 else "SUCCESS", name, plan_time=at,
                started_at=at + late, finished_at=at + late + timedelta(seconds=2),
            )  # fmt: skip
