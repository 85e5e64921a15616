"""Jobs: one row per job in alphabetical order, and the pause and resume of many."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger import calls
from cronledger.ledger.reports import Row
from cronledger.web import owners, queries
from cronledger.web.forms import Form, form_of
from cronledger.web.pages.job_strips import read_jobs_strips
from cronledger.web.reading import Reading
from cronledger.web.site import Entry, identity_of, site_of

MOST = 100
"""Jobs of a page."""
MOST_CHANGED = 10_000
"""Jobs that one action pauses or resumes."""
MOST_EVENTS = 10
"""Events of which a job may have alerts."""
NEWEST, SCOPES = 20, 10
"""Executions of a scope, and scopes of a job, from which the p95 is computed."""
DAY = timedelta(days=1)
DURATIONS_SECONDS = 60.0
STATES = ("active", "paused", "broken", "retired")
FIELDS = ("search", "state", "queue", "source", *owners.FIELDS)

ENTRY = Entry("Jobs", "/jobs")


async def show(request: Request) -> Response:
    """Return a page of jobs."""
    site = site_of(request)
    filters: dict[str, Any] = {name: queries.text(request, name) for name in FIELDS}
    queries.choices(request, "state", STATES)
    after = queries.text(request, "after")
    reading, sources = await asyncio.gather(
        site.reader.read("list_shown_jobs", after=after, max_rows=MOST + 1, **filters),
        owners.sources(request),
    )
    (strips, streaks), p95, alerts = await asyncio.gather(
        read_jobs_strips(request, reading.first(MOST), reading.now), _p95(request, reading),
        _alerts(request, reading),
    )  # fmt: skip
    following = reading.first(MOST)[-1]["name"] if reading.has_more(MOST) else None
    return await site.page(
        request, "jobs.html", reading=reading, filters=filters, after=after, most=MOST,
        following=following, strips=strips, streaks=streaks, p95=p95, states=STATES,
        most_changed=MOST_CHANGED, alerts=alerts,
        queues=owners.distinct(sources, "queue"), sources=owners.distinct(sources, "source"),
        owners=owners.distinct(sources, "owner"),
    )  # fmt: skip


async def _alerts(request: Request, reading: Reading) -> Mapping[str, list[Row]]:
    """Return the events of which alerts are open, of the jobs that have some."""
    names = [row["name"] for row in reading.first(MOST)]
    if not names:
        return {}
    found = await site_of(request).reader.read(
        "list_alerts_of_jobs", names=names, max_rows=MOST * MOST_EVENTS
    )
    of_job: dict[str, list[Row]] = defaultdict(list)
    for row in found.known:
        of_job[row["job_name"]].append(row)
    return of_job


async def _p95(request: Request, reading: Reading) -> Mapping[str, float]:
    """Return the 95th percentile of the durations of each job in milliseconds.

    It is that of the last executions, of several scopes those of the last day.
    """
    rows, now = reading.first(MOST), reading.now
    newest = {row["name"]: row["p95"] for row in rows if row["p95"] is not None}
    others = [row["name"] for row in rows if row["scopes"] > 1]
    if not others or now is None:
        return newest
    found = await site_of(request).reader.read(
        "list_job_durations", names=others, since=now.replace(second=0, microsecond=0) - DAY,
        max_rows=NEWEST, max_scopes=SCOPES, fresh=DURATIONS_SECONDS,
    )  # fmt: skip
    return newest | {row["job_name"]: row["p95"] for row in found.known}


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
        params["until"] = queries.later(form.text("until"), "until", now)
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
    found = await site_of(request).reader.read_once(
        "list_job_states", names=None if every else names, max_rows=MOST_CHANGED + 1, **filters
    )
    if found.problem is not None:
        raise HTTPException(503, found.problem)
    if found.has_more(MOST_CHANGED):
        raise HTTPException(400, f"More than {MOST_CHANGED:,} jobs match. Use narrower filters.")
    return found.known


async def _preview(request: Request, change: Change, form: Form) -> Response:
    chosen = await _chosen(request, form)
    groups = {
        state: [row for row in chosen if row["state"] == state]
        for state in ("active", "paused", "retired")
    }
    # A pause of a paused job replaces its reason; a job that is not paused cannot be resumed.
    affected = groups["active"] + groups["paused"] if change is PAUSE else groups["paused"]
    return await site_of(request).page(
        request, "change.html", change=change, groups=groups, affected=affected, kept=_kept(form)
    )


def _kept(form: Form) -> dict[str, str]:
    """Return the filters of the page from which the person came."""
    return {name: form.text(name) for name in FIELDS}


ROUTES = [
    Route("/jobs", show, methods=["GET"]),
    Route("/jobs/pause", pause, methods=["POST"]),
    Route("/jobs/resume", resume, methods=["POST"]),
]
