"""How long running executions usually take, and when they probably end."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cronledger.explain import durations
from cronledger.explain.durations import Durations
from cronledger.ledger.reports import Reports, Row
from cronledger.rules.progress import described, expected_end


def expected_rows(reports: Reports, rows: Sequence[Row], now: datetime) -> list[Row]:
    """Return executions with what is expected; see `with_expected`. Raises psycopg.Error."""
    jobs = running_jobs(rows)
    found = reports.job_durations(**durations.parameters(jobs, now)) if jobs else []
    return with_expected(rows, durations.by_job(found), now)


def running_jobs(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the jobs of those rows that are RUNNING; rows without a status are."""
    return {row["job_name"] for row in rows if row.get("status", "RUNNING") == "RUNNING"}


def with_expected(
    rows: Sequence[Row], of_jobs: Mapping[str, Durations], now: datetime
) -> list[Row]:
    """Return executions with their progress for people and, while they run, what is expected.

    The new fields are `progress`, `usual_p50`, `usual_p95`, `expected_end` and `is_longer` (than
    the 95th percentile). A field is None where nothing is known.
    """
    return [row | _expected(row, of_jobs.get(row["job_name"]), now) for row in rows]


def _expected(row: Row, known: Durations | None, now: datetime) -> dict[str, Any]:
    done, total, at = row["progress_done"], row["progress_total"], row["progress_at"]
    progress = None if done is None else described(done, total, row["progress_text"])
    fields = ("usual_p50", "usual_p95", "expected_end", "is_longer")
    found: dict[str, Any] = {"progress": progress, **dict.fromkeys(fields)}
    if row.get("status", "RUNNING") != "RUNNING":
        return found
    started = row["started_at"]
    end = expected_end(
        started,
        now,
        None if known is None else known.typical,
        None if done is None else (done, total, at),
    )
    found["expected_end"] = end
    if known is not None:
        found |= {"usual_p50": known.typical, "usual_p95": known.long,
                  "is_longer": now - started > known.long}  # fmt: skip
    return found
