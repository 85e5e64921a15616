"""`why` and `next`: the answers that Python computes from reports."""

from datetime import datetime, timedelta
from itertools import islice

from cronledger.explain.firings import firings_of
from cronledger.explain.why import Answer, Why, schedules
from cronledger.ledger.refusals import NotFoundError
from cronledger.ledger.reports import Reports
from cronledger.rules.cron import Firing

ONE_MINUTE = timedelta(minutes=1)
_LIST = "use a name that the view job_details has"


def why(
    reports: Reports,
    job: str,
    *,
    at: datetime,
    until: datetime | None,
    scope: str | None,
    limit: int,
) -> list[Answer]:
    """Explain the plan_times in [`at`, `until`) of the scopes of a job."""
    end = _checked("until", until) if until is not None else _checked("at", at) + ONE_MINUTE
    if end <= _checked("at", at):
        raise ValueError(f"until={until!r} is not after at={at!r}; swap them")
    history = reports.history(job)
    if not history:
        raise NotFoundError(f"job {job!r} has never existed", remedy=_LIST)
    rows = schedules(reports, history, scope, limit)
    if not rows and scope is not None:
        raise NotFoundError(f"job {job!r} has no scope {scope!r}", remedy="leave the scope out")
    explain = Why(reports, history).explain
    return [explain(row, at, end) for row in rows]


def next_firings(
    reports: Reports, job: str, *, count: int, after: datetime | None, scope: str | None
) -> list[Firing]:
    """Return the first firings of a job after an instant."""
    definition = reports.job(job)
    if definition is None:
        raise NotFoundError(f"job {job!r} does not exist", remedy=_LIST)
    if definition["schedule"] is None:
        return []
    start = reports.now() if after is None else _checked("after", after)
    return list(islice(firings_of(reports, definition, start, scope), count))


def _checked(name: str, instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise ValueError(f"{name}={instant!r} has no time zone; add tzinfo=UTC")
    return instant
