"""The clock of the ledger, away from the instants at which an hour or a minute begins."""

from datetime import UTC, timedelta

from tests.db.support import rows
from tests.db.support.rows import Db


def set_ten_past(db: Db, second: int = 0) -> None:
    """Let the clock of the ledger show ten past the present hour, and run on from there.

    No schedule of a test begins an hour within the next minutes, in whatever zone it is.
    """
    rows.travel(db, timedelta(0))
    now = rows.now(db).astimezone(UTC)
    rows.travel(db, now.replace(minute=10, second=second, microsecond=0) - now)
