"""The zone in which this browser shows times: that of each job, UTC, or the viewer's own."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cronledger.web import queries
from cronledger.web.links import local_path, root_of, top_of
from cronledger.web.site import ZONE, frame_of

YEAR = 365 * 24 * 3600


async def choose(request: Request) -> Response:
    """Remember the zone in a cookie, and return to the page that was open. Empty: the job's."""
    zone = queries.text(request, "zone")
    response = RedirectResponse(
        root_of(request) + local_path(queries.text(request, "next") or "/"), 303
    )
    path = top_of(request) or "/"
    if zone is None:
        response.delete_cookie(ZONE, path=path)
        return response
    queries.zone(zone)
    response.set_cookie(
        ZONE, zone, max_age=YEAR, path=path, httponly=True, samesite="lax",
        secure=frame_of(request).scheme.is_https(request),
    )  # fmt: skip
    return response


ROUTES = [Route("/times", choose, methods=["GET"])]
