"""The gate in front of all pages: who sends a request, and what it may do."""

from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cronledger.web.access.identity import RefusedRequestError
from cronledger.web.access.origin import SAFE_METHODS, require_same_origin
from cronledger.web.site import IDENTITY, Links, Site, path_of

SIGN_IN = "/sign-in"
SIGN_OUT = "/sign-out"
STATIC = "/static/"
METRICS = "/metrics"


class Gate:
    """Lets a request pass with its identity, or refuses it.

    A method that changes something needs this page as its origin, and an operator.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        try:
            response = await self._refused(request, scope["method"])
        except RefusedRequestError as error:
            response = refusal(self._site, request, error)
        await (response or self._app)(scope, receive, send)

    async def _refused(self, request: HTTPConnection, method: str) -> Response | None:
        path = path_of(request)
        if self._site.access.signs_in and path.startswith(STATIC):  # of the form itself
            return None
        identity = await self._site.access.identify(request)
        request.scope.setdefault("state", {})[IDENTITY] = identity
        if method not in SAFE_METHODS:
            require_same_origin(request, identity)
        if self._site.access.signs_in and path in (SIGN_IN, SIGN_OUT):
            return None
        if identity is None:
            return self._ask(request, method, path)
        if method not in SAFE_METHODS and not identity.is_operator:
            raise RefusedRequestError(f"{identity.name} may read this page, and may not act on it.")
        return None

    def _ask(self, request: HTTPConnection, method: str, path: str) -> Response:
        # Programs would follow the redirect to the form.
        if method != "GET" or path == METRICS or "authorization" in request.headers:
            response = self._site.plain(
                request, "error.html", status=401, title="Not signed in",
                text="The token is missing or unknown.",
            )  # fmt: skip
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        query = request.url.query
        wanted = quote(path) + (f"?{query}" if query else "")
        return RedirectResponse(Links(request)(SIGN_IN, next=wanted), 303)


def refusal(site: Site, request: HTTPConnection, error: RefusedRequestError) -> Response:
    """Return the page that states why a request is refused."""
    return site.plain(request, "error.html", status=403, title="Not permitted", text=str(error))


def local_path(text: str) -> str:
    """Return `text` if it is a path of this page, otherwise the path of the first page."""
    inside = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if inside and not set(text) & set("\r\n\t\\") else "/"
