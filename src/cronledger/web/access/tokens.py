"""Access by named tokens: in a cookie for people, as Bearer for programs."""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from starlette.requests import HTTPConnection
from starlette.responses import Response

from cronledger.web.access.identity import Access, Identity, Role

COOKIE = "cronledger_token"
SECONDS = 30 * 86_400
"""Life of the cookie."""


class TokenAccess(Access):
    """Compares tokens with the SHA-256 of those in the settings.

    `tokens`: each NAME:ROLE:SHA256.
    """

    signs_in = True

    def __init__(self, tokens: Sequence[str]) -> None:
        self._known = [
            (digest, name, Role(role)) for name, role, digest in (t.split(":") for t in tokens)
        ]

    async def identify(self, request: HTTPConnection) -> Identity | None:
        given = request.headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            return self.of(token.strip(), bearer=True) if scheme.lower() == "bearer" else None
        return self.of(request.cookies.get(COOKIE, ""))

    def of(self, token: str, *, bearer: bool = False) -> Identity | None:
        """Return the identity that has this token, or None."""
        digest = sha256(token.encode("utf-8", "replace")).hexdigest()
        found = None
        for known, name, role in self._known:  # all of them, so that time tells nothing
            if hmac.compare_digest(known, digest):
                found = Identity(name, role, bearer)
        return found


def remember(response: Response, request: HTTPConnection, token: str) -> None:
    """Let the browser send the token with each request from this page, and only from it."""
    response.set_cookie(
        COOKIE, token, max_age=SECONDS, path=request.scope.get("root_path", "") or "/",
        httponly=True, samesite="strict", secure=request.url.scheme == "https",
    )  # fmt: skip


def forget(response: Response, request: HTTPConnection) -> None:
    """Remove the token from the browser."""
    response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
