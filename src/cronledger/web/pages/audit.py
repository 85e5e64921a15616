"""Audit: who did what to jobs, queues and executions, the newest first."""

import asyncio
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.rules.instants import iso
from cronledger.web import owners, queries
from cronledger.web.forms import whole
from cronledger.web.site import Entry, site_of

MOST = 100
"""Rows of a page."""
MOST_READ = 20_000
"""Rows that are searched for those of a page. Where the search stopped, the next page goes on."""
MOST_EXECUTIONS = 10
"""Executions of a row that are listed."""
FIELDS = ("job", "by", "verb", *owners.FIELDS)

ENTRY = Entry("Audit", "/audit")


async def show(request: Request) -> Response:
    """Return a page of the audit trail."""
    site = site_of(request)
    filters: dict[str, Any] = {name: queries.text(request, name) for name in FIELDS}
    before = _before(request)
    reading, sources = await asyncio.gather(
        site.reader.read(
            "list_audit", max_rows=MOST + 1, max_read=MOST_READ, since=None, labels=None,
            max_executions=MOST_EXECUTIONS + 1, **before, **filters,
        ),
        owners.sources(request),
    )  # fmt: skip
    rows = [row for row in reading.known if row["is_match"]]
    last, searched_to = None, None
    if reading.has_more(MOST):
        last = rows[MOST - 1]
    elif reading.known and reading.known[-1]["is_last_read"]:
        last = reading.known[-1]
        searched_to = last["at"]
    following = last and {**filters, "before": last["id"], "before_at": iso(last["at"])}
    shown = replace(reading, rows=None if reading.rows is None else rows)
    return await site.page(
        request, "audit.html", reading=shown, filters=filters, is_first=before["before"] is None,
        most=MOST, most_executions=MOST_EXECUTIONS, following=following, searched_to=searched_to,
        owners=owners.distinct(sources, "owner"),
    )  # fmt: skip


def _before(request: Request) -> dict[str, Any]:
    """Return the place of the last row of the page before: NULLs on the first page.

    Raises HTTPException.
    """
    number, at = (queries.text(request, name) for name in ("before", "before_at"))
    if number is None or at is None:
        return {"before": None, "before_at": None}
    return {"before": whole(number, "before"), "before_at": queries.absolute(at, "before_at")}


ROUTES = [Route("/audit", show, methods=["GET"])]
