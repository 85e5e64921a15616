"""Read the accounted day of a scope from the ledger, by bounded statements."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, timedelta

from cronledger.audit.dates import read_dates
from cronledger.audit.history import History
from cronledger.explain.day.account import MARKS, AccountedDay, Accounting, RunnerGap, gaps_between
from cronledger.explain.day.local_day import LocalDay
from cronledger.ledger.days import DayRows, Row
from cronledger.rules.model import ScopeKey

MAX_EDITS = 500
"""A job with as many revisions on one day is not accounted for here."""

_BESIDE = ("manual", "backfill", "enqueue")
_MAX_RUNNERS = 1000
_RUNNERS_ARE_KEPT = timedelta(days=1)

Read = Callable[[str, Mapping[str, object]], list[Row]]


class TooManyEditsError(ValueError):
    """The job has MAX_EDITS revisions or more on the day."""


def read_day(read: Read, key: ScopeKey, timezone: str, day: date) -> AccountedDay | None:
    """Return the accounted day of a scope, or None if the job does not have this scope.

    `read` returns the rows of the statement of `ledger/sql/NAME.sql`. `timezone`: the zone of the
    job, which decides when the day begins. Raises NoSuchDayError, TooManyEditsError, CronError
    for an unknown zone, and what `read` raises.
    """
    local = LocalDay.of(timezone, day)
    rows = DayRows(read, key, local.start, local.end)
    extent = rows.extent()
    if extent is None:
        return None
    revisions = rows.revisions(MAX_EDITS)
    if len(revisions) >= MAX_EDITS:
        raise TooManyEditsError(
            f"job {key.job_name} has at least {MAX_EDITS} revisions on {day}, which are too many"
            f" for one picture; `cronledger verify {key.job_name}` checks this day"
        )
    accounting = Accounting(
        key, local, extent, revisions, read_dates(rows.calendars(revisions)),
        rows.counts(_graces(revisions)), rows.skips(), _runner_gaps(rows, extent, local),
        rows.planned_skips(), rows.pauses(),
    )  # fmt: skip
    accounting.add_up()
    planned: list[Row] | None = None
    beside: list[Row] | None = None
    if accounting.has_marks:
        planned = rows.executions(["schedule"], 2 * MARKS)
    if accounting.has_beside_marks:
        beside = rows.executions(_BESIDE, MARKS) if accounting.beside else []
    return replace(accounting.day(planned, beside), verified_at=rows.verified_at())


def _graces(revisions: list[Row]) -> dict[int, timedelta]:
    """Return the grace of each readable revision."""
    edits = History(revisions, {}).edits
    return {edit.number: edit.grace for edit in edits if edit.grace is not None}


def _runner_gaps(rows: DayRows, extent: Row, local: LocalDay) -> list[RunnerGap]:
    """Return the times without runners, for as long as the rows of dead runners are kept."""
    now = extent["now"]
    start = max(local.start, extent["created_at"], now - _RUNNERS_ARE_KEPT)
    end = min(local.end, now)
    if start >= end:
        return []
    runners = rows.runners(extent["queue"], start, _MAX_RUNNERS)
    if len(runners) >= _MAX_RUNNERS:
        return []
    return gaps_between(runners, start, end)
