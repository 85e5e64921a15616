"""The audit reads a stored definition of any session as PostgreSQL reads the columns of the job."""

from datetime import UTC, datetime, timedelta

import psycopg
from psycopg.rows import dict_row

from cronledger.audit.walk import Definition

INTERVALS = ["0", "90 s", "1 day", "1 day 02:03:04.000005", "36525 days", "500 ms", "26:00"]


def test_the_audit_reads_durations_of_any_session(database_url: str) -> None:
    styles = ("postgres", "postgres_verbose", "iso_8601", "sql_standard")
    with psycopg.connect(database_url, autocommit=True, row_factory=dict_row) as c:
        c.execute("SET timezone TO 'Asia/Kathmandu'")
        c.execute("SET search_path TO cronledger")
        for style in styles:
            c.execute("SELECT set_config('intervalstyle', %s, false)", (style,))
            for n, interval in enumerate(INTERVALS):
                c.execute(
                    "INSERT INTO jobs (name, handler, schedule, day_or, jitter, schedule_delay,"
                    " starts_at, ends_at) VALUES (%s, 'external', '@daily', false,"
                    " %s::interval, '1 mon', '2026-01-01 00:00:00.25+00', '2027-06-01 12:00+00')",
                    (f"{style} {n}", interval),
                )
        c.execute("SET intervalstyle TO 'postgres'")
        stored = c.execute(
            "SELECT r.definition, j.jitter FROM job_revisions r JOIN jobs j ON j.name = r.job_name"
        ).fetchall()
    assert len(stored) == len(styles) * len(INTERVALS)
    for row in stored:
        assert row["definition"]["schedule_delay"] == "1 mon"  # in every IntervalStyle
        assert Definition.from_revision(row["definition"]) == Definition(
            schedule="@daily",
            day_or=False,
            starts_at=datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC),
            ends_at=datetime(2027, 6, 1, 12, tzinfo=UTC),
            jitter=row["jitter"],
            schedule_delay=timedelta(days=30),
        )
