"""Now: what needs a person, what is held on purpose, what runs, and what comes next."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.web import attention, glance, owners, queries
from cronledger.web.reading import Reader, Reading
from cronledger.web.site import Entry, site_of

FIRST = 10
"""Rows of a quiet panel. The others are behind a summary."""
CHECK_SECONDS = 10.0
CALENDARS_SECONDS = 10.0
SCOPES_SECONDS = 60.0
MOST_WAITING = 10_000
MOST_NEXT = 10_000
"""Firings of one queue that are searched for those of an owner or a label."""
MOST_NEXT_OF_ALL = 2_000
LISTED = (*glance.TROUBLE, "violating", "paused", "waiting")
HELD = ("overdue", "paused", "waiting")
"""The readings of *Needs attention* and *Held on purpose*."""

ENTRY = Entry("Now", "/")


async def show(request: Request) -> Response:
    """Return the page. `only` selects one kind of problem. Raises HTTPException."""
    site = site_of(request)
    filters = owners.chosen(request)
    only = next(iter(queries.choices(request, "only", glance.SELECTABLE)), None)
    is_filtered = any(filters.values())
    readings, sources = await asyncio.gather(
        _readings(site.reader, filters, is_filtered), owners.sources(request)
    )
    overdue = readings["overdue"]
    wrong = glance.wrong(readings)
    held = attention.folded(attention.problems(
        overdue=[row for row in overdue.known if row["is_held"]],
        paused=readings["paused"].known, waiting=readings["waiting"].known,
    ))  # fmt: skip
    scopes = readings["scopes"]
    are_all_known = bool(scopes.known) and scopes.known[0]["count"] <= glance.MOST_SCOPES
    runners, running = readings["runners"], readings["running"]
    most_next = MOST_NEXT if is_filtered else MOST_NEXT_OF_ALL
    rows = running.rows and await site.expectations.of(running.rows, running.now)
    live = [row for row in runners.known if row["state"] != "stopped"]
    states = {row["state"] for row in live}
    shown = [*wrong[: glance.MOST], *held[: glance.MOST]]
    runbooks, of_scopes = await asyncio.gather(
        _of_jobs(site.reader, "list_runbooks", CALENDARS_SECONDS, shown),
        _of_jobs(site.reader, "list_scope_counts", SCOPES_SECONDS, shown),
    )
    trouble = [readings[name] for name in glance.TROUBLE]
    return await site.page(
        request, "now.html", most=glance.MOST, first=FIRST, wrong=attention.of_kind(wrong, only),
        held=held, only=only, counts=glance.counts(wrong, readings), problems=_problems(readings),
        is_cut=glance.is_cut(readings),
        running=replace(running, rows=rows), upcoming=readings["upcoming"], check=readings["check"],
        violating=readings["violating"], runners=replace(runners, rows=runners.rows and live),
        ending=readings["ending"], are_all_known=are_all_known, most_scopes=glance.MOST_SCOPES,
        filters=filters, is_filtered=is_filtered, is_empty=sources.rows == [],
        owners=owners.distinct(sources, "owner"), most_next=most_next, runbooks=runbooks,
        of_scopes=of_scopes,
        is_read=all(readings[name].rows is not None for name in LISTED),
        is_held_read=all(readings[name].rows is not None for name in HELD),
        is_calm="alive" in states
        and "failing" not in states
        and sources.rows != []
        and are_all_known
        and not wrong
        and not readings["violating"].known
        and not any(panel.problem for panel in (*trouble, readings["violating"])),
    )  # fmt: skip


async def _readings(
    reader: Reader, filters: dict[str, Any], is_filtered: bool
) -> dict[str, Reading]:
    """Return what the page reads, by name. Each list has one row more than it shows, if any."""
    most: dict[str, Any] = {"max_rows": glance.MOST + 1, **filters}
    read = reader.read
    return await glance.gathered({
        **glance.readings(reader, filters),
        "scopes": read(
            "show_scope_count", fresh=glance.FAILING_SECONDS, most_scopes=glance.MOST_SCOPES + 1
        ),
        "check": read("show_verification", fresh=CHECK_SECONDS),
        "violating": read("list_violating_runs", fresh=CHECK_SECONDS, max_rows=glance.MOST),
        "waiting": read("list_waiting", max_read=MOST_WAITING, **most),
        "upcoming": read(
            "list_next_hour", max_read=MOST_NEXT if is_filtered else MOST_NEXT_OF_ALL, **most
        ),
        "runners": read("list_runners", with_former=False, max_rows=glance.MOST + 1),
        "ending": read("examine_calendars", days=ENDS_SOON.days, fresh=CALENDARS_SECONDS),
    })  # fmt: skip


async def _of_jobs(
    reader: Reader, statement: str, fresh: float, troubles: Sequence[attention.Trouble]
) -> dict[str, Any]:
    """Return the second column of the statement by the first one, which is the job."""
    names = sorted({name for one in troubles if (name := one.row["job_name"]) is not None})
    if not names:
        return {}
    found = await reader.read(statement, names=names, max_rows=len(names), fresh=fresh)
    return dict(tuple(row.values()) for row in found.known)


def _problems(readings: dict[str, Reading]) -> list[str]:
    """Return why parts of the list are not up to date, each reason once."""
    return glance.problems_of(readings[name] for name in LISTED)


ROUTES = [Route("/", show, methods=["GET"])]
