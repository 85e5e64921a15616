"""Job: the accounted day of a scope, what comes next, sums, scopes and revisions."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cronledger.explain.day.account import AccountedDay
from cronledger.explain.day.local_day import LocalDay, NoSuchDayError, day_of, neighbour
from cronledger.explain.day.read import TooManyEditsError, read_day
from cronledger.explain.firings import firings_in, noted, planned_skip
from cronledger.ledger.reports import NEWEST, Row
from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.rules.calendars import Calendars
from cronledger.rules.cron import Firing
from cronledger.rules.cron_fields import CronError, is_reboot
from cronledger.rules.firings import later
from cronledger.rules.model import ScopeKey
from cronledger.web import links, queries
from cronledger.web.changes import changes
from cronledger.web.drawing.accounted_day import draw
from cronledger.web.drawing.durations import draw_durations
from cronledger.web.forms import whole
from cronledger.web.links import Links, root_of
from cronledger.web.reading import Reading
from cronledger.web.redaction import Redaction
from cronledger.web.site import identity_of, site_of

MOST_SCOPES = 50
MOST_REVISIONS = 20
MOST_ALERTS = 10
MOST_NEWEST = 10
MOST_PAUSES = 100
"""Pauses of the job that are read, the first ones first."""
MOST_SKIPS = 20
MOST_COMING_SKIPS = 1000
"""Planned skips that are read: far more than the firings that are shown."""
MOST_BREACHES = 20
MOST_MONTHS = 12
SUMS_DAYS = 7
SUMS_SECONDS = 10.0
ALL_SUMS_SECONDS = 60.0
DURATIONS_DAYS = (7, 30)
MOST_CELLS = 1_000
CELLS_SECONDS = 5.0
FIRINGS = 10
TODAY_SECONDS, PAST_SECONDS = 2.0, 30.0
"""A day that is over changes by retries and backfills only."""


@dataclass(frozen=True, slots=True)
class Change:
    """A revision, and how its definition differs from the one before: name, before, after."""

    row: Row
    fields: Sequence[tuple[str, object, object]]
    is_first: bool


@dataclass(frozen=True, slots=True)
class DayLinks:
    """The addresses to which the picture of a day leads."""

    to: Links
    key: ScopeKey

    def execution(self, execution_id: int) -> str:
        """Return the address of an execution."""
        return self.to("/execution", id=execution_id)

    def why(self, plan_time: datetime) -> str:
        """Return the address of the explanation of a plan_time."""
        return self.to.why(self.key.job_name, self.key.scope_id, plan_time)

    def revision(self, revision: int) -> str:
        """Return the address of a revision on the page of the job."""
        return self.to.revision(self.key.job_name, revision)


async def show(request: Request) -> Response:
    """Return the page of one job and one of its scopes."""
    site = site_of(request)
    row, now = await job_of(request)
    # All fields are read first: a refusal would leave a coroutine that is never awaited.
    after: dict[str, Any] = {
        name: queries.text(request, name) or "" for name in ("after_kind", "after_scope")
    }
    before = whole(request.query_params.get("before") or str(NEWEST), "before")
    scopes, revisions = await asyncio.gather(
        site.reader.read("list_job_scopes", job=row["name"], max_rows=MOST_SCOPES + 1, **after),
        site.reader.read(
            "list_revisions", job=row["name"], max_rows=MOST_REVISIONS + 1, before=before
        ),
    )
    key = scope_of(request, row, scopes)
    find = queries.text(request, "find")
    cells = all_sums = Reading()
    if find or len(scopes.known) > 1:
        cells = await site.reader.read(
            "list_scope_cells", job=row["name"], search=find, max_rows=MOST_CELLS + 1,
            fresh=CELLS_SECONDS,
        )  # fmt: skip
        all_sums = await site.reader.read(
            "show_scope_sums", job=row["name"], search=find, max_scopes=MOST_CELLS,
            since=_whole_hour(now) - timedelta(days=1), fresh=ALL_SUMS_SECONDS,
        )  # fmt: skip
    days = int(next(iter(queries.choices(request, "days", [*map(str, DURATIONS_DAYS)])), "7"))
    shown_since = _whole_hour(now) - timedelta(days=days)
    durations = await site.reader.read(
        "list_duration_hours", job=row["name"], scope_kind=key.scope_kind, scope_id=key.scope_id,
        since=shown_since, max_rows=24 * days + 1, fresh=SUMS_SECONDS,
    )  # fmt: skip
    calendars = await site.reader.calendars([row])
    ending = await site.reader.read("examine_calendars", days=ENDS_SOON.days, fresh=SUMS_SECONDS)
    sums = await site.reader.read(
        "show_sums", job=row["name"], scope_kind=key.scope_kind, scope_id=key.scope_id,
        since=_whole_hour(now) - timedelta(days=SUMS_DAYS), fresh=SUMS_SECONDS,
    )  # fmt: skip
    skips = await site.reader.read(
        "list_planned_skips_at", job=row["name"], kind=key.scope_kind, scope=key.scope_id,
        since=_minute(now), until=later(_minute(now)), max_rows=MOST_COMING_SKIPS,
    )  # fmt: skip
    pauses = await site.reader.read("list_job_pauses", job=row["name"], max_rows=MOST_PAUSES)
    day, target, firings, kept = await asyncio.gather(
        _day(request, row, key, now),
        _target(request, row),
        asyncio.to_thread(_firings, row, calendars, skips.known, key, now),
        _of_scope(request, key),
    )
    outcomes = Counter(one["status"] or "never ran" for one in cells.first(MOST_CELLS))
    return await site.page(
        request, "job.html", row=row, key=key, scopes=scopes, revisions=revisions,
        changes=_changes(revisions, site.redaction), day=day, target=target,
        firings=firings, note=noted(row, key, pauses.known), is_reboot=is_reboot, skips=skips,
        most_skips=MOST_SKIPS,
        ending=[one for one in ending.known if one["name"] == row["calendar"]],
        sums=sums, sums_days=SUMS_DAYS, durations=durations, durations_days=days,
        all_durations_days=DURATIONS_DAYS, find=find, cells=cells, most_cells=MOST_CELLS,
        outcomes=outcomes.most_common(), all_sums=all_sums,
        durations_figure=Markup(draw_durations(durations.known, shown_since, now)),
        most_scopes=MOST_SCOPES, most_revisions=MOST_REVISIONS, **kept,
    )  # fmt: skip


async def _of_scope(request: Request, key: ScopeKey) -> dict[str, Any]:
    """Return what the ledger has of a scope: open alerts, deadlines, and the newest rows."""
    read = site_of(request).reader.read
    scope: dict[str, Any] = {
        "job": key.job_name,
        "scope_kind": key.scope_kind,
        "scope_id": key.scope_id,
    }
    alerts, breaches, compliance, newest = await asyncio.gather(
        read("list_open_alerts", max_rows=MOST_ALERTS + 1, owner=None, label=None, **scope),
        read("list_breaches_of_scope", max_rows=MOST_BREACHES + 1, at=None, **scope),
        read(
            "list_compliance",
            max_rows=MOST_MONTHS + 1,
            fresh=SUMS_SECONDS,
            month=None,
            owner=None,
            labels=None,
            **scope,
        ),
        read("list_newest", max_rows=MOST_NEWEST, **scope),
    )
    shown = await site_of(request).expectations.of(newest.known, newest.now)
    newest = replace(newest, rows=newest.rows and shown)
    return {
        "alerts": alerts, "breaches": breaches, "compliance": compliance, "newest": newest,
        "is_failing": _is_failing(newest),
        "most_alerts": MOST_ALERTS, "most_breaches": MOST_BREACHES, "most_months": MOST_MONTHS,
    }  # fmt: skip


def _is_failing(newest: Reading) -> bool:
    """Return whether the last of these executions that ended is FAILED."""
    ended = (x["outcome"] for x in newest.known if x["outcome"] in ("SUCCESS", "FAILED"))
    return next(ended, None) == "FAILED"


async def _target(request: Request, row: Row) -> Reading | None:
    """Return the target as text, or None for a viewer."""
    site = site_of(request)
    if not identity_of(request).is_operator:
        return None
    found = await site.operators.read("show_target", job=row["name"])
    shown = [{"target": site.redaction.text(one["target"])} for one in found.known]
    return replace(found, rows=None if found.rows is None else shown)


async def job_of(request: Request, given: str | None = None) -> tuple[Row, datetime]:
    """Return the job that `given` or the address names, and the database's time.

    Raises HTTPException.
    """
    name = queries.text(request, "name") if given is None else given
    if not name:
        raise HTTPException(400, "The request has no name of a job.")
    found = await site_of(request).reader.read("show_job", job=name)
    if not found.known or found.now is None:
        raise HTTPException(
            404 if found.problem is None else 503,
            found.problem or f"The job {name} does not exist.",
        )
    return found.known[0], found.now


def scope_of(request: Request, row: Row, scopes: Reading) -> ScopeKey:
    """Return the scope that the address names; by default the first one of the job."""
    kind = queries.text(request, "scope_kind") or row["scope_kind"]
    scope = queries.text(request, "scope")
    if scope is None and row["scope_kind"] == "global":
        kind, scope = "global", "global"
    elif scope is None:
        first = scopes.known[0] if scopes.known else {"scope_kind": kind, "scope_id": "global"}
        kind, scope = first["scope_kind"], first["scope_id"]
    return ScopeKey(row["name"], kind, scope)


# --- the accounted day ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Day:
    """The picture of a day, the days beside it, and why there is no newer or no picture at all."""

    day: date
    figure: Markup | None
    before: date | None
    after: date | None
    problem: str | None
    age: float


async def _day(request: Request, row: Row, key: ScopeKey, now: datetime) -> _Day:
    zone = row["timezone"]
    try:
        today = day_of(zone, now)
        wanted = _date(request) or today
        before, after = neighbour(zone, wanted, -1), neighbour(zone, wanted, 1)
        over = LocalDay.of(zone, wanted).end < now
        leads_to = DayLinks(Links(request), key)
        # What is kept is the picture, which is much smaller than the day of a job that fires often.
        found = await site_of(request).reader.compute(
            "day", lambda read: _drawn(read_day(read, key, zone, wanted), leads_to), key=key,
            zone=zone, day=wanted, root=root_of(request),
            fresh=PAST_SECONDS if over else TODAY_SECONDS,
        )  # fmt: skip
    except (NoSuchDayError, TooManyEditsError) as error:
        return _Day(wanted, None, before, after, f"{error}.", 0.0)
    except CronError as error:
        raise HTTPException(409, f"{error}.") from None
    if found.value is None:
        problem = found.problem or f"{key.scope_kind}/{key.scope_id} is not a scope of this job."
        return _Day(wanted, None, before, after, problem, 0.0)
    return _Day(wanted, found.value, before, after, found.problem, found.age)


def _drawn(day: AccountedDay | None, leads_to: DayLinks) -> Markup | None:
    return None if day is None else Markup(draw(day, leads_to))


def _date(request: Request) -> date | None:
    given = queries.text(request, "day")
    if given is None:
        return None
    try:
        return date.fromisoformat(given.strip())
    except ValueError:
        raise HTTPException(400, f"day is not a date: {given[:100]!r}; write 2026-11-22.") from None


# --- panels --------------------------------------------------------------------------------------


def _firings(
    row: Row, calendars: Calendars, skips: Sequence[Row], key: ScopeKey, now: datetime
) -> list[Firing]:
    """Return the next firings, and between them those that are skipped.

    There are none if the schedule cannot be read.
    """
    if row["schedule"] is None or row["retired_at"] is not None:
        return []
    try:
        coming = firings_in(row, key.scope_id, now, calendars)
        coming = replace(coming, planned_skips=[planned_skip(one) for one in skips])
        return list(islice(coming.with_skipped(), FIRINGS))
    except CronError:
        return []  # spec_error of the job says why


def _changes(revisions: Reading, redaction: Redaction) -> list[Change]:
    """Return the revisions, each compared with the one before it."""
    rows = revisions.known
    found = [
        Change(new, changes(old["definition"], new["definition"], redaction), False)
        for new, old in pairwise(rows)
    ]
    if rows and len(rows) <= MOST_REVISIONS:
        found.append(Change(rows[-1], (), True))
    return found


def _minute(now: datetime) -> datetime:
    """Return the beginning of the minute, so that the requests of one minute read the same."""
    return now.replace(second=0, microsecond=0)


def _whole_hour(now: datetime) -> datetime:
    """Return the beginning of the hour in UTC, because sums are kept by hour."""
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


ROUTES = links.routes("/job", show)
