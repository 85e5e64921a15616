"""What Python computes from reports: `why` and `next`, and the call of `adopt`."""

from datetime import datetime, timedelta
from itertools import islice

from cronledger.explain.adopting import Adoption, adoption
from cronledger.explain.firings import firings_of
from cronledger.explain.why import Explanation, Why, schedules
from cronledger.ledger.calls import Call
from cronledger.ledger.refusals import NotFoundError
from cronledger.ledger.reports import Reports
from cronledger.rules import instants
from cronledger.rules.cron import Firing

ONE_MINUTE = timedelta(minutes=1)


def why(
    reports: Reports,
    job: str,
    at: datetime,
    *,
    until: datetime | None = None,
    scope: str | None = None,
    limit: int = 20,
) -> list[Explanation]:
    """Explain why a job ran, or did not run, in [`at`, `until`), with a paragraph per scope.

    `until`: by default one minute after `at`. Without `scope`, the first scopes are explained,
    at most `limit`.
    """
    end = _checked("until", until) if until is not None else _checked("at", at) + ONE_MINUTE
    if end <= _checked("at", at):
        raise ValueError(f"until={until!r} is not after at={at!r}; swap them")
    history = reports.history(job)
    if not history:
        raise _unknown_job(reports, job)
    rows = schedules(reports, history, scope, limit)
    if not rows and scope is not None:
        raise NotFoundError(f"job {job!r} has no scope {scope!r}", remedy="leave the scope out")
    explain = Why(reports, history).explain
    return [explain(row, at, end) for row in rows]


def next_firings(
    reports: Reports,
    job: str,
    count: int = 10,
    *,
    after: datetime | None = None,
    scope: str | None = None,
    with_skipped: bool = False,
) -> list[Firing]:
    """Return the first `count` firings of a job after an instant, by default after now.

    There are none if the job has no schedule. A pause or a retirement is not considered.
    `moved_from` of a firing has the dates from which the calendar of the job moved it. Firings that
    are skipped are left out. With `with_skipped`, they are among the `count` firings: `skipped` has
    the reason of a planned skip, and `excluded` the name of the day that a calendar excludes, of
    which there is only the first firing. `scope` decides `H` in the schedule. Raises ValueError if
    the schedule in the ledger is invalid.
    """
    definition = reports.job(job)
    if definition is None:
        raise _unknown_job(reports, job)
    if definition["schedule"] is None:
        return []
    start = reports.now() if after is None else _checked("after", after)
    found = firings_of(reports, definition, start, scope)
    return list(islice(found.with_skipped() if with_skipped else found, count))


def adopt(
    reports: Reports,
    job: str,
    at: datetime,
    *,
    back: bool = False,
    reason: str | None = None,
    preview: bool = False,
) -> Call[Adoption]:
    """Move an observed job to replicas, which fire its plan_times from `at` on.

    With `back`, the other scheduler fires them from `at` on. To withdraw a switch that has not
    happened yet, request the opposite one with the same `at` or an earlier one. `str()` of the
    returned value states what happens. With `preview`, nothing changes. The ledger refuses the call
    unless the switch is at least 5 s ahead and the job has both `observed` and a handler. Raises
    ValueError if the job has no plan_time from `at` on, or `at` is not in the years 1000 to 9998.
    """
    definition = reports.job(job)
    if definition is None:
        raise _unknown_job(reports, job)
    at = _checked("at", at)
    return adoption(reports, definition, at, back=back, reason=reason, preview=preview)


def _unknown_job(reports: Reports, job: str) -> NotFoundError:
    similar = reports.similar_job(job)
    listed = "use a name that the view job_details has"
    remedy = listed if similar is None else f"did you mean {similar!r}?"
    return NotFoundError(f"job {job!r} does not exist", remedy=remedy)


def _checked(name: str, instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise ValueError(f"{name}={instant!r} has no time zone; add tzinfo=UTC")
    return instants.storable(instant)
