"""The past of a ledger: since when its jobs fire."""

from datetime import datetime

from tests.db.support.rows import Db


def planned(db: Db, began: datetime, through: datetime) -> None:
    """Let every job fire since `began`, and be planned through an instant."""
    db.execute("UPDATE cronledger.job_revisions SET effective_from = %s", [began])
    db.execute(
        "UPDATE cronledger.schedules SET created_at = %s, planned_through = %s", [began, through]
    )
