"""Audit: who did what to jobs, queues and executions, the newest first."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.web import queries
from cronledger.web.site import Entry, site_of

MOST = 100
"""Rows of a page."""
FIELDS = ("job", "by", "verb")
LARGEST = 2**63 - 1

ENTRY = Entry("Audit", "/audit")


async def show(request: Request) -> Response:
    """Return a page of the audit trail."""
    site = site_of(request)
    filters: dict[str, Any] = {name: queries.text(request, name) for name in FIELDS}
    before = _before(request)
    reading = await site.reader.read("list_audit", before=before, max_rows=MOST + 1, **filters)
    following = reading.first(MOST)[-1]["id"] if reading.has_more(MOST) else None
    return await site.page(
        request, "audit.html", reading=reading, filters=filters, before=before, most=MOST,
        following=following,
    )  # fmt: skip


def _before(request: Request) -> int | None:
    """Return the id of the last row of the page before, or None on the first page."""
    given = queries.text(request, "before")
    if given is None or not given.isdecimal() or int(given) > LARGEST:
        return None
    return int(given)


ROUTES = [Route("/audit", show, methods=["GET"])]
