"""What a planned pause will skip, by job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cronledger.explain.firings import firings_in
from cronledger.rules.cron import CronError
from cronledger.rules.instants import InstantError, iso
from cronledger.rules.plan_times import TICK

if TYPE_CHECKING:
    from cronledger.ledger.reports import Reports, Row

OPEN_ENDED = timedelta(days=7)
"""The time for which the firings of a pause without an end are counted."""


@dataclass(frozen=True, slots=True)
class PausedJob:
    """A job that a pause covers.

    `firings`: the plan_times in the pause, of all scopes. A scope with `H` in its schedule may
    have one more or one less. `first`: the first plan_time of the first scope, or None. `error`:
    why they are not known, or None.
    """

    job: str
    timezone: str
    scopes: int
    firings: int
    first: datetime | None
    error: str | None = None


def paused_jobs(
    reports: "Reports", rows: "list[Row]", begins: datetime, until: datetime | None
) -> Iterator[PausedJob]:
    """Yield what a pause of these jobs skips, from `begins` through `until`.

    `rows`: of `Reports.selected_jobs`. `until` None: the first OPEN_ENDED of the pause are counted.
    Delays are not considered. Raises InstantError if `until` is not after `begins`, and
    psycopg.Error.
    """
    if until is not None and until <= begins:
        raise InstantError(f"until {iso(until)} is not after from {iso(begins)}")
    calendars = reports.calendars(rows)
    end = until if until is not None else begins + OPEN_ENDED
    for row in rows:
        scopes = row["scope_count"]
        named = row["name"], row["timezone"], scopes
        if row["schedule"] is None or not scopes:
            yield PausedJob(*named, 0, None)
            continue
        try:
            found = firings_in(row, row["first_scope"], begins - TICK, calendars, end)
            count, first = found.count(), next(found.plan_times(), None)
        except CronError as error:
            yield PausedJob(*named, 0, None, str(error))
        else:
            yield PausedJob(*named, count * scopes, first)


def selected(row: Mapping[str, Any]) -> str:
    """Return which jobs a row of `Reports.pauses` selects, for people."""
    parts = [
        f"{name} {row[key]}"
        for key, name in (("job_name", "job"), ("queue", "queue"), ("owner", "owner"))
        if row[key] is not None
    ]
    labels = (row["labels"] or {}).items()
    return ", ".join([*parts, *(f"{key}={value}" for key, value in labels)]) or "all jobs"
