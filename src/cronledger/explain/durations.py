"""How long executions of jobs usually take, by their history."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cronledger.ledger.reports import Row

MOST_EXECUTIONS = 200_000
"""Executions that are read over all jobs, unless there are more jobs than this allows
FEW_EXECUTIONS each.
"""
FEW_EXECUTIONS, MANY_EXECUTIONS = 20, 100
"""How many executions of a scope are read, with many jobs and with few."""
SCOPES_OF_JOB = 50
HISTORY = timedelta(days=28)
"""The time before now from which durations are taken."""


@dataclass(frozen=True, slots=True)
class Durations:
    """The median and the 95th percentile of the durations of a job."""

    typical: timedelta
    long: timedelta


def parameters(jobs: Collection[str], now: datetime) -> dict[str, Any]:
    """Return the parameters of `list_job_durations` for these jobs.

    They are the same during an hour, so that a page reads the statement once for many requests.
    """
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    most = max(FEW_EXECUTIONS, MOST_EXECUTIONS // max(1, len(jobs)))
    of_scope = min(MANY_EXECUTIONS, most)
    return {
        "names": sorted(jobs), "since": hour - HISTORY, "max_rows": of_scope,
        "max_scopes": min(SCOPES_OF_JOB, most // of_scope),
    }  # fmt: skip


def length(milliseconds: int) -> timedelta:
    """Return the length. A row that was written by SQL may exceed a timedelta, or be negative."""
    longest = timedelta(days=timedelta.max.days) // timedelta(milliseconds=1)
    return timedelta(milliseconds=max(0, min(milliseconds, longest)))


def by_job(rows: Iterable[Row]) -> dict[str, Durations]:
    """Return the durations of each job from the rows of `list_job_durations`."""
    return {row["job_name"]: Durations(length(row["p50"]), length(row["p95"])) for row in rows}
