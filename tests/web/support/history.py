"""The past of a ledger: since when its jobs fire, and runs of verify."""

from datetime import datetime, timedelta

from psycopg.types.json import Jsonb

from tests.db.support import rows
from tests.db.support.rows import Db


def planned(db: Db, began: datetime, through: datetime) -> None:
    """Let every job fire since `began`, and be planned through an instant."""
    db.execute("UPDATE cronledger.job_revisions SET effective_from = %s", [began])
    db.execute(
        "UPDATE cronledger.schedules SET created_at = %s, planned_through = %s", [began, through]
    )


def verified(db: Db, **columns: object) -> None:
    """Record a run of verify that has ended."""
    at = rows.now(db)
    counts = dict.fromkeys(
        ("schedules", "plan_times", "executions", "skips", "behind", "violations", "accepted"), 0
    )
    row = {
        "requested_by": "nightly", "version": "1", "started_at": at - timedelta(hours=1),
        "finished_at": at, "outcome": "finished", "kinds": Jsonb({}), **counts, **columns,
    }  # fmt: skip
    rows.insert(db, "verification_runs", **row)
