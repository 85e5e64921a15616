"""The audit reads a stored definition of any session as PostgreSQL reads the columns of the job."""

from datetime import UTC, datetime, timedelta

from cronledger.audit.walk import Definition
from tests.db.support.engine import Ledger

STYLES = ("postgres", "postgres_verbose", "iso_8601", "sql_standard")
INTERVALS = ["0", "90 s", "1 day", "1 day 02:03:04.000005", "36525 days", "500 ms", "26:00"]


def test_the_audit_reads_durations_of_any_session(ledger: Ledger) -> None:
    starts_at = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    ends_at = datetime(2027, 6, 1, 12, tzinfo=UTC)
    ledger.values("SET timezone TO 'Asia/Kathmandu'")
    for style in STYLES:
        ledger.values("SELECT set_config('intervalstyle', %s, false)", style)
        for interval in INTERVALS:
            ledger.job(
                f"{style} {interval}", schedule="@daily", day_or=False, jitter=interval,
                schedule_delay="1 mon", starts_at=starts_at, ends_at=ends_at,
            )  # fmt: skip
    ledger.values("SET intervalstyle TO 'postgres'")
    stored = ledger.values(
        "SELECT r.definition, j.jitter FROM job_revisions r JOIN jobs j ON j.name = r.job_name"
    )
    assert len(stored) == len(STYLES) * len(INTERVALS)
    for definition, jitter in stored:
        assert definition["schedule_delay"] == "1 mon"  # in every IntervalStyle
        assert Definition.from_revision(definition, {}) == Definition(
            schedule="@daily",
            day_or=False,
            starts_at=starts_at,
            ends_at=ends_at,
            jitter=jitter,
            schedule_delay=timedelta(days=30),
        )
