"""Compression of responses."""

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class Compression:
    """Compresses responses, except to requests that another site has caused.

    With those, and the lengths of the responses, that site could guess what a page has (BREACH).
    A page has no token: sessions are in a cookie that is never written into a page.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        origin = Headers(scope=scope).get("sec-fetch-site", "none") if is_http else "none"
        app = self._compressed if origin in ("none", "same-origin") else self._app
        await app(scope, receive, send)
