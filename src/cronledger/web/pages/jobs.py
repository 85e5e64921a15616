"""Jobs: one row per job in the order of a column, and the pause and resume of many."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger import calls
from cronledger.ledger.reports import Row
from cronledger.web import owners, queries
from cronledger.web.attention import MOST_FAILURES
from cronledger.web.forms import Form, form_of, whole
from cronledger.web.pages.job_strips import MOST_STREAK, read_jobs_strips
from cronledger.web.reading import Reading
from cronledger.web.site import Entry, identity_of, site_of

MOST = 100
"""Jobs of a page."""
MOST_PAGES = 100_000
MOST_CHANGED = 10_000
"""Jobs that one action pauses or resumes."""
MOST_EVENTS = 10
"""Events of which a job may have alerts."""
SORTING_SCOPES = 20
"""Scopes of a job that decide its place in the order of the next and of the last firing. They
usually fire at the same time."""
MOST_READ = 300_000
"""Failures, skips, sums of hours and executions of all jobs, each, that decide the order of the
last 24 hours: the newest ones."""
STATES = ("active", "paused", "queue_paused", "broken", "retired")
RESULTS = ("failing", "overdue", "never ran")
SORTS = ("name", "24h", "state", "schedule", "next", "last", "p95", "queue", "owner")
FIELDS = ("search", "state", "result", "queue", "source", *owners.FIELDS)
ORDER = ("sort", "order")
"""The fields of the address that order the rows: a column, and `desc`."""
CHOICES = {"state": STATES, "result": RESULTS, "sort": SORTS, "order": ("desc",)}
RESULTS_SECONDS = 10.0
MOST_SCOPES = 10_000
"""Scopes of which the last execution is looked at, beside those of the newest failures."""

ENTRY = Entry("Jobs", "/jobs")


async def show(request: Request) -> Response:
    """Return a page of jobs."""
    site = site_of(request)
    filters: dict[str, Any] = {name: queries.text(request, name) for name in FIELDS}
    for name, known in CHOICES.items():
        queries.choices(request, name, known)
    order = {name: queries.text(request, name) for name in ORDER}
    number = min(max(whole(request.query_params.get("page") or "1", "page"), 1), MOST_PAGES)
    results, sources = await asyncio.gather(_results(request), owners.sources(request))
    reading = await site.reader.read(
        "list_shown_jobs", sort=order["sort"] or "name", descending=order["order"] == "desc",
        failing=_places(results.failing), overdue=_places(results.overdue), max_rows=MOST,
        skipped=(number - 1) * MOST, max_scopes=SORTING_SCOPES, max_read=MOST_READ, **filters,
    )  # fmt: skip
    (strips, streaks), alerts = await asyncio.gather(
        read_jobs_strips(request, reading.known, reading.now), _alerts(request, reading)
    )
    return await site.page(
        request, "jobs.html", reading=reading, filters=filters, most=MOST, order=order,
        number=number, totals=next(iter(reading.known), None), results=results, strips=strips,
        streaks=streaks, states=STATES, most_failures=MOST_FAILURES,
        most_streak=MOST_STREAK, known_results=RESULTS, alerts=alerts,
        queues=owners.distinct(sources, "queue"), sources=owners.distinct(sources, "source"),
        owners=owners.distinct(sources, "owner"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Results:
    """The jobs that fail, and those of which something is overdue and not held, by their names.

    The first ones need a person first. `problem`: why they are not up to date.
    """

    failing: Mapping[str, Row]
    overdue: Mapping[str, Row]
    problem: str | None


def _places(names: Iterable[str]) -> str:
    """Return the names with their places as an object of JSON."""
    return json.dumps({name: place for place, name in enumerate(names)})


async def _results(request: Request) -> Results:
    read = site_of(request).reader.read
    most: dict[str, Any] = {"max_rows": MOST_CHANGED, "owner": None, "label": None}
    failing, overdue = await asyncio.gather(
        read("list_failing", fresh=RESULTS_SECONDS, most_scopes=MOST_SCOPES, **most),
        read("list_overdue", fresh=RESULTS_SECONDS, **most),
    )
    late = {row["job_name"]: row for row in overdue.known if not row["is_held"]}
    late.pop(None, None)  # deliveries of alerts
    return Results(
        {row["job_name"]: row for row in failing.known}, late, failing.problem or overdue.problem
    )


async def _alerts(request: Request, reading: Reading) -> Mapping[str, list[Row]]:
    """Return the events of which alerts are open, of the jobs that have some."""
    names = [row["name"] for row in reading.known]
    if not names:
        return {}
    found = await site_of(request).reader.read(
        "list_alerts_of_jobs", names=names, max_rows=MOST * MOST_EVENTS
    )
    of_job: dict[str, list[Row]] = defaultdict(list)
    for row in found.known:
        of_job[row["job_name"]].append(row)
    return of_job


@dataclass(frozen=True, slots=True)
class Change:
    """One of the two actions. `from_state`: jobs in this state are changed by it."""

    name: str
    from_state: str
    done: str


PAUSE = Change("pause", "active", "paused")
RESUME = Change("resume", "paused", "resumed")


async def pause(request: Request) -> Response:
    """Show what a pause would do, or pause."""
    return await _change(request, PAUSE)


async def resume(request: Request) -> Response:
    """Show what resuming would do, or resume."""
    return await _change(request, RESUME)


async def _change(request: Request, change: Change) -> Response:
    form = await form_of(request)
    if form.text("confirmed") != "yes":
        return await _preview(request, change, form)
    names = form.texts("job")
    if not names:
        raise HTTPException(400, "No job is chosen.")
    if len(names) > MOST_CHANGED:
        raise HTTPException(
            400, f"{len(names):,} jobs are chosen: choose at most {MOST_CHANGED:,} at once."
        )
    params: dict[str, object] = {}
    if change is PAUSE:
        now = (await site_of(request).reader.read("read_head")).now
        params["reason"] = form.text("reason").strip() or None
        params["until"] = queries.later(form.moment("until"), "until", now)
    # In the order of their locks, which is that of their bytes.
    asked = [calls.value_of(change.name, job=name, **params) for name in sorted(names)]
    changed = await site_of(request).actor.call_all(asked, identity_of(request))
    text = _sentence(change, names, sum(changed))
    return site_of(request).done(request, text, "/jobs", **_kept(form))


def _sentence(change: Change, names: Sequence[str], count: int) -> str:
    if len(names) == 1:
        return f"{names[0]} is {change.done}."
    rest = len(names) - count
    text = f"{change.done.capitalize()}: {count:,}."
    if rest and change is PAUSE:
        text += f" Paused already, with the new reason now: {rest:,}."
    elif rest:
        text += f" Not paused: {rest:,}."
    return text


async def _chosen(request: Request, form: Form) -> list[Row]:
    """Return the jobs that the form names, or all that match its filters."""
    every = form.text("every") == "yes"
    names = form.texts("job")
    if not every and not names:
        raise HTTPException(400, "No job is chosen. Choose jobs, or all that match the filters.")
    filters = {name: (form.text(name) or None) if every else None for name in FIELDS}
    among = await _among(request, filters["result"])
    found = await site_of(request).reader.read_once(
        "list_job_states", names=None if every else names, among=among,
        max_rows=MOST_CHANGED + 1, **filters,
    )  # fmt: skip
    if found.problem is not None:
        raise HTTPException(503, found.problem)
    if found.has_more(MOST_CHANGED):
        raise HTTPException(400, f"More than {MOST_CHANGED:,} jobs match. Use narrower filters.")
    return found.known


async def _among(request: Request, result: str | None) -> list[str] | None:
    """Return the jobs that have a result of those that `_results` reads; None: any job."""
    if result not in ("failing", "overdue"):
        return None
    results = await _results(request)
    if results.problem is not None:
        raise HTTPException(503, results.problem)
    return list(results.failing if result == "failing" else results.overdue)


async def _preview(request: Request, change: Change, form: Form) -> Response:
    chosen = await _chosen(request, form)
    groups: dict[str, list[Row]] = {"active": [], "paused": [], "retired": []}
    for row in chosen:
        is_retired = row["state"] == "retired"
        groups["retired" if is_retired else "paused" if row["is_paused"] else "active"].append(row)
    # A pause of a paused job replaces its reason; a job that is not paused cannot be resumed.
    affected = groups["active"] + groups["paused"] if change is PAUSE else groups["paused"]
    return await site_of(request).page(
        request, "change.html", change=change, groups=groups, affected=affected, kept=_kept(form)
    )


def _kept(form: Form) -> dict[str, str]:
    """Return the filters of the page from which the person came."""
    return {name: form.text(name) for name in (*FIELDS, *ORDER)}


ROUTES = [
    Route("/jobs", show, methods=["GET"]),
    Route("/jobs/pause", pause, methods=["POST"]),
    Route("/jobs/resume", resume, methods=["POST"]),
]
