"""The next firings of a schedule, or of a job in the ledger."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cronledger.rules import cron
from cronledger.rules.cron import Cron, Firing
from cronledger.rules.firings import later

if TYPE_CHECKING:  # a schedule by itself needs no database
    from cronledger.ledger.reports import Reports, Row


@dataclass(frozen=True, slots=True)
class FiringRange:
    """The firings of `spec` in (`after`, `ends_at`] that are not before `starts_at`."""

    spec: Cron
    after: datetime
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def __iter__(self) -> Iterator[Firing]:
        """Return the firings of the next 100 years, in their order."""
        after = self.after
        if self.starts_at is not None and self.starts_at > after:
            after = self.starts_at - timedelta(microseconds=1)
        through = later(after)
        return self.spec.firings(after, min(through, self.ends_at or through))


def firings_of(
    reports: "Reports", definition: "Row", after: datetime, scope: str | None = None
) -> FiringRange:
    """Return the firings of a job after an instant.

    `definition`: the row that `Reports.job` returns, which has a schedule. `scope` decides `H`;
    None is the first scope of the job. A pause or a retirement of the job is not considered. Raises
    CronError if the schedule is invalid, and psycopg.Error.
    """
    if scope is None:
        scopes = reports.scopes(definition["name"], 1)
        scope = scopes[0]["scope_id"] if scopes else definition["scope_kind"]
    return firings_in(definition, scope, after)


def firings_in(definition: "Row", scope: str, after: datetime) -> FiringRange:
    """Return the firings of a scope after an instant, as `firings_of` does."""
    spec = cron.parse(
        definition["schedule"],
        timezone=definition["timezone"],
        day_or=definition["day_or"],
        dst_gap=definition["dst_gap"],
        dst_fold=definition["dst_fold"],
        job=definition["name"],
        scope=f"{definition['scope_kind']}/{scope}",
    )
    return FiringRange(spec, after, definition["starts_at"], definition["ends_at"])
