"""All ledgers of a page that has several: what each counts, and what needs attention there."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cronledger.web.links import LEDGERS, Links
from cronledger.web.overview import Overview
from cronledger.web.site import frame_of

FIRST = 5
"""Rows of the list of each ledger. A link leads to the others."""


async def show(request: Request) -> Response:
    """Return the page."""
    site = frame_of(request)
    assert isinstance(site, Overview)
    looks = await site.looks()
    now = max((look.now for look in looks if look.now is not None), default=None)
    responding = sum(look.away is None and not look.is_slow for look in looks)
    return site.live(request, "overview.html", now, looks=looks, first=FIRST, responding=responding)


async def enter(request: Request) -> Response:
    """Redirect an address of a ledger that has no slash at its end. Raises HTTPException."""
    switcher, name = frame_of(request).switcher, request.path_params["path_ledger"]
    if switcher is None or name not in switcher.names:
        raise HTTPException(404)
    return RedirectResponse(Links(request, name)("/"), 308)


ROUTES = [
    Route("/", show, methods=["GET"]),
    Route(f"{LEDGERS}/{{path_ledger}}", enter, methods=["GET"]),
]
