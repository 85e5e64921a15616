"""What a planned skip would skip: the firings of a job in a range, before it is planned."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from cronledger.explain.firings import firings_in
from cronledger.ledger.reports import Reports, Row
from cronledger.rules.cron import CronError, Firing
from cronledger.rules.cron_fields import TEN_YEARS
from cronledger.rules.plan_times import EPOCH, TICK, back

MOST = 1000
"""Firings that are counted; of a range with more, there is one more."""
_SCOPES = 100
"""Scopes whose firings are searched: `H` gives each scope its own."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """The firings in the range, of the first scope that has any. `nearest`: if none has any."""

    firings: Sequence[Firing]
    nearest: Sequence[datetime] = ()


def skipping(
    reports: Reports, definition: Row, first: datetime, last: datetime, scope: str | None
) -> Skipping:
    """Return what a skip of [first, last] would skip, in this scope, or in all (None).

    `definition`: the row that `Reports.job` returns. Firings on excluded dates are left out. Raises
    CronError if the schedule is invalid or missing, and psycopg.Error.
    """
    if definition["schedule"] is None:
        problem = "the job has no schedule, and so no firings"
        raise CronError("schedule", "none", problem, "it runs only when it is triggered")
    calendars, kind = reports.calendars([definition]), definition["scope_kind"]
    names = [scope] if scope is not None else [
        row["scope_id"] for row in reports.scopes(definition["name"], _SCOPES)
    ]  # fmt: skip
    for name in names or [kind]:
        coming = firings_in(definition, name, first - TICK, calendars, last)
        if found := list(islice(coming, MOST + 1)):
            return Skipping(found)
    around = firings_in(definition, (names or [kind])[0], back(first, TEN_YEARS, EPOCH), calendars)
    return Skipping((), around.nearest(first))
