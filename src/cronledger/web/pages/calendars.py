"""Calendars: their revisions, their ends, the jobs that use them, and the next excluded dates."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.web.site import Entry, site_of

MOST = 200
"""Calendars of the page."""
MOST_DATES = MOST_JOBS = 5
"""Excluded dates, and jobs, of one calendar."""
FRESH_SECONDS = 10.0

ENTRY = Entry("Calendars", "/calendars")


async def show(request: Request) -> Response:
    """Return the page."""
    site = site_of(request)
    calendars = await site.reader.read(
        "list_shown_calendars", max_rows=MOST + 1, max_dates=MOST_DATES, max_jobs=MOST_JOBS,
        fresh=FRESH_SECONDS,
    )  # fmt: skip
    return await site.page(
        request, "calendars.html", calendars=calendars, most=MOST, ends_soon=ENDS_SOON.days
    )


ROUTES = [Route("/calendars", show, methods=["GET"])]
