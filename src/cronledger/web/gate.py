"""The gate in front of all pages: who sends a request, and what it may do."""

import psycopg
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cronledger.ledger.database_errors import explained
from cronledger.logs.loggers import get_logger
from cronledger.rules.remedies import Surface
from cronledger.web.access.identity import RefusedRequestError
from cronledger.web.access.origin import SAFE_METHODS, require_same_origin
from cronledger.web.links import Links, local_address, path_of
from cronledger.web.site import IDENTITY, Frame, frame_of

log = get_logger(__name__)

SIGN_IN = "/sign-in"
SIGN_OUT = "/sign-out"
STATIC = "/static/"
METRICS = "/metrics"
REPORT = "/report/"
"""Below it, a token in the path takes the place of a sign-in and of an origin. These addresses only
report runs, and read no cookie."""
EXPORTS = (".csv", ".json")
SAVE_VIEW = "/ledger/views/save"
DELETE_VIEW = "/ledger/views/delete"
OWN = frozenset({SAVE_VIEW, DELETE_VIEW})
"""The actions that viewers may also request: they change only what belongs to the person."""


class Gate:
    """Lets a request pass with its identity, or refuses it.

    A method that changes something needs this page as its origin. It also needs an operator, unless
    its path is one of OWN.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        site = frame_of(request)
        try:
            response = await _refused(site, request, scope["method"])
        except RefusedRequestError as error:
            response = refusal(site, request, error)
        except psycopg.Error as error:
            response = database_away(site, request, error)
        await (response or self._app)(scope, receive, send)


async def _refused(site: Frame, request: HTTPConnection, method: str) -> Response | None:
    path = path_of(request)
    if path.startswith(REPORT):
        return None
    if site.access.signs_in and path.startswith(STATIC):  # of the form itself
        return None
    identity = await site.access.identify(request)
    request.scope.setdefault("state", {})[IDENTITY] = identity
    if method not in SAFE_METHODS:
        require_same_origin(request, identity, site.scheme.origin(request))
    if site.access.signs_in and path in (SIGN_IN, SIGN_OUT):
        return None
    if identity is None:
        return _ask(site, request, method, path)
    if not (method in SAFE_METHODS or path in OWN or identity.is_operator):
        raise RefusedRequestError(f"{identity.name} may read this page, but may not act on it.")
    return None


def _ask(site: Frame, request: HTTPConnection, method: str, path: str) -> Response:
    # Programs would follow the redirect to the form.
    is_for_programs = path == METRICS or path.endswith(EXPORTS)
    if method != "GET" or is_for_programs or "authorization" in request.headers:
        response = site.plain(
            request, "error.html", status=401, title="Not signed in",
            text="The token is missing or unknown.",
        )  # fmt: skip
        response.headers["WWW-Authenticate"] = "Bearer"
        return response
    return RedirectResponse(Links(request)(SIGN_IN, next=local_address(request)), 303)


def refusal(site: Frame, request: HTTPConnection, error: RefusedRequestError) -> Response:
    """Return the page that states why a request is refused."""
    return site.plain(request, "error.html", status=403, title="Not permitted", text=str(error))


def database_away(site: Frame, request: HTTPConnection, error: psycopg.Error) -> Response:
    """Return the page that states that the database cannot tell who sends a request."""
    log.warning("web_act_failed", path=request.url.path, error=str(error))
    return site.plain(
        request, "error.html", status=503, title="The database does not respond",
        text=explained(error, Surface.PAGE).message,
        detail="The database has to confirm the session of this browser.",
        remedy="Open the page again once the database responds.",
    )  # fmt: skip
