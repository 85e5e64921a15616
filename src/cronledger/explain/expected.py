"""How long running executions usually take, and when they probably end."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cronledger.ledger.reports import Reports, Row
from cronledger.rules.progress import described, expected_end

HISTORY = timedelta(days=28)
MOST_HOURS = 2000
"""Counted hours that one request reads, of all jobs together."""


@dataclass(frozen=True, slots=True)
class Usual:
    """The median and the 95th percentile of the durations of a job."""

    p50: timedelta
    p95: timedelta


def durations_of(jobs: Collection[str], now: datetime) -> dict[str, Any]:
    """Return the parameters of `list_job_durations` for these jobs."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    most = max(3, min(500, MOST_HOURS // max(1, len(jobs))))
    return {"names": sorted(jobs), "since": hour - HISTORY, "max_rows": most}


def usual(rows: Iterable[Row]) -> dict[str, Usual]:
    """Return the usual durations of each job from the rows of `list_job_durations`."""
    return {
        row["job_name"]: Usual(
            timedelta(milliseconds=float(row["p50"])), timedelta(milliseconds=float(row["p95"]))
        )
        for row in rows
        if row["p50"] is not None
    }


def expected_rows(reports: Reports, rows: Sequence[Row], now: datetime) -> list[Row]:
    """Return executions with what is expected; see `with_expected`. Raises psycopg.Error."""
    jobs = running_jobs(rows)
    durations = reports.job_durations(**durations_of(jobs, now)) if jobs else []
    return with_expected(rows, usual(durations), now)


def running_jobs(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the jobs of those rows that are RUNNING; rows without a status are."""
    return {row["job_name"] for row in rows if row.get("status", "RUNNING") == "RUNNING"}


def with_expected(rows: Sequence[Row], of_jobs: Mapping[str, Usual], now: datetime) -> list[Row]:
    """Return executions with their progress for people and, while they run, what is expected.

    The new fields are `progress`, `usual_p50`, `usual_p95`, `expected_end` and `is_longer` (than
    the 95th percentile). A field is None where nothing is known.
    """
    return [row | _expected(row, of_jobs.get(row["job_name"]), now) for row in rows]


def _expected(row: Row, known: Usual | None, now: datetime) -> dict[str, Any]:
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
        None if known is None else known.p50,
        None if done is None else (done, total, at),
    )
    found["expected_end"] = end
    if known is not None:
        found |= {"usual_p50": known.p50, "usual_p95": known.p95,
                  "is_longer": now - started > known.p95}  # fmt: skip
    return found
