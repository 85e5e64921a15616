"""Access by named tokens: a session in a cookie for people, the token as Bearer for programs."""

import hmac
from collections.abc import Sequence

from starlette.requests import HTTPConnection
from starlette.responses import Response

from cronledger.web.access.identity import Access, Identity, Role
from cronledger.web.access.scheme import Scheme
from cronledger.web.access.sessions import LIFETIME, Sessions, hashed
from cronledger.web.links import top_of

COOKIE = "cronledger_session"


class TokenAccess(Access):
    """Compares tokens with the SHA-256 of those in the settings.

    `tokens`: each NAME:ROLE:SHA256. The session of a token that is removed from them has no rights.
    """

    signs_in = True

    def __init__(self, tokens: Sequence[str], sessions: Sessions, scheme: Scheme) -> None:
        self._known = [
            (digest, name, Role(role)) for name, role, digest in (t.split(":") for t in tokens)
        ]
        self._sessions = sessions
        self._scheme = scheme

    async def identify(self, request: HTTPConnection) -> Identity | None:
        given = request.headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            return self.of(token.strip(), bearer=True) if scheme.lower() == "bearer" else None
        session = request.cookies.get(self._cookie(request))
        kept = None if session is None else await self._sessions.token_of(session)
        # The ledger has the SHA-256 of what is in the settings.
        found = (one for one in self._known if hashed(one[0]) == kept)
        return next((Identity(name, role) for _, name, role in found), None)

    def of(self, token: str, *, bearer: bool = False) -> Identity | None:
        """Return the identity that has this token, or None."""
        digest = hashed(token)
        found = None
        for known, name, role in self._known:  # all of them, so that time tells nothing
            if hmac.compare_digest(known, digest):
                found = Identity(name, role, bearer)
        return found

    async def remember(self, response: Response, request: HTTPConnection, token: str) -> None:
        """Begin a session, and let the browser send its id with each request to this page.

        The session that the browser had ends. Raises psycopg.Error.
        """
        await self.forget(response, request)
        session = await self._sessions.begin(hashed(token))
        is_https = self._scheme.is_https(request)
        # Lax: a link from another site opens the page signed in, and its forms send no cookie.
        response.set_cookie(
            self._cookie(request), session, max_age=int(LIFETIME.total_seconds()),
            path=_path(request, is_https), httponly=True, samesite="lax", secure=is_https,
        )  # fmt: skip

    async def forget(self, response: Response, request: HTTPConnection) -> None:
        """End the session of the browser. Raises psycopg.Error."""
        name = self._cookie(request)
        if (session := request.cookies.get(name)) is not None:
            await self._sessions.end(session)
            is_https = self._scheme.is_https(request)
            response.delete_cookie(
                name, path=_path(request, is_https), httponly=True, samesite="lax", secure=is_https
            )

    def _cookie(self, request: HTTPConnection) -> str:
        """Return the name of the cookie. With HTTPS, no other host and no plain HTTP can set it."""
        if not self._scheme.is_https(request):
            return COOKIE
        # Such a cookie belongs to the whole host, which may serve several pages.
        below = top_of(request).strip("/")
        part = "".join(c if c.isascii() and c.isalnum() else "-" for c in below)
        return f"__Host-{COOKIE}{part and '-' + part}"

    async def close(self) -> None:
        await self._sessions.close()


def _path(request: HTTPConnection, is_https: bool) -> str:
    return "/" if is_https else top_of(request) or "/"
