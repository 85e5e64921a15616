"""Now: what needs a person, what runs, and what comes next."""

import asyncio
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.web import owners
from cronledger.web.expected import expected
from cronledger.web.site import Entry, site_of

MOST = 50
"""Rows of one panel."""
VIOLATIONS_SECONDS = 30.0
"""A violation of the present has lasted for minutes when it is found."""
CHECK_SECONDS = 10.0
CALENDARS_SECONDS = 10.0
MOST_SCOPES = 10_000
"""Scopes of which the last execution is looked at, which costs a read of an index for each."""
FAILING_SECONDS = 5.0
MOST_BREACHES = 1_000
"""The newest breaches of all jobs, which are searched for open ones of the last day."""
MOST_NEXT = 10_000
"""Firings of one queue that are searched for those of an owner or a label."""

EVERY_SCOPE: dict[str, Any] = dict.fromkeys(("job", "scope_kind", "scope_id"))

ENTRY = Entry("Now", "/")


async def show(request: Request) -> Response:
    """Return the page. Each panel has one row more than it shows, if there are more."""
    site = site_of(request)
    read = site.reader.read
    filters = owners.chosen(request)
    is_filtered = any(filters.values())
    (
        overdue,
        failing,
        scopes,
        running,
        upcoming,
        violations,
        check,
        violating,
        runners,
        sources,
        breaches,
        alerts,
        ending,
    ) = await asyncio.gather(
        read("list_overdue", max_rows=MOST + 1, **filters),
        read(
            "list_failing", fresh=FAILING_SECONDS, max_rows=MOST + 1, most_scopes=MOST_SCOPES,
            **filters,
        ),
        read("show_scope_count", fresh=FAILING_SECONDS, most_scopes=MOST_SCOPES + 1),
        read("list_running", max_rows=MOST + 1, **filters),
        read(
            "list_next_hour", max_rows=MOST + 1, max_read=MOST_NEXT if is_filtered else MOST + 1,
            **filters,
        ),
        read("list_violations", fresh=VIOLATIONS_SECONDS, max_rows=MOST + 1, **filters),
        read("show_verification", fresh=CHECK_SECONDS),
        read("list_violating_runs", fresh=CHECK_SECONDS, max_rows=MOST),
        read("list_runners", with_former=False, max_rows=MOST + 1),
        owners.sources(request),
        read("list_open_breaches", max_rows=MOST + 1, max_read=MOST_BREACHES, **filters),
        read("list_open_alerts", max_rows=MOST + 1, **EVERY_SCOPE, **filters),
        read("examine_calendars", days=ENDS_SOON.days, fresh=CALENDARS_SECONDS),
    )  # fmt: skip
    running = replace(
        running, rows=running.rows and await expected(site.reader, running.rows, running.now)
    )
    trouble = (overdue, failing, violations, violating, breaches, alerts)
    are_all_known = bool(scopes.known) and scopes.known[0]["count"] <= MOST_SCOPES
    live = [row for row in runners.known if row["state"] != "stopped"]
    states = {row["state"] for row in live}
    return await site.page(
        request, "now.html", most=MOST, overdue=overdue, failing=failing, running=running,
        upcoming=upcoming, violations=violations, check=check, violating=violating,
        runners=replace(runners, rows=runners.rows and live), are_all_known=are_all_known,
        most_scopes=MOST_SCOPES, filters=filters,
        breaches=breaches, alerts=alerts, ending=ending,
        is_filtered=is_filtered, is_empty=sources.rows == [],
        owners=owners.distinct(sources, "owner"), most_next=MOST_NEXT,
        is_calm="alive" in states
        and "failing" not in states
        and sources.rows != []
        and are_all_known
        and not any(panel.known or panel.problem for panel in trouble),
    )  # fmt: skip


ROUTES = [Route("/", show, methods=["GET"])]
