"""Whether a request that changes something comes from this page itself."""

from starlette.requests import HTTPConnection

from cronledger.web.access.identity import Identity, RefusedRequestError

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def require_same_origin(request: HTTPConnection, identity: Identity | None, own: str) -> None:
    """Raise RefusedRequestError for a request that another site made a browser send.

    `identity`: the sender; a Bearer token proves that no other site sent the request. `own`: the
    origin of this page.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    elif origin is not None:
        same = origin.lower() == own and "host" in request.headers
    else:
        same = identity is not None and identity.bearer
    if not same:
        remedy = "Open the page itself, and repeat the action there."
        if origin is not None and origin.partition("://")[2].lower() == own.partition("://")[2]:
            remedy = (
                f"It comes from {origin}, and this page is {own}. If a proxy serves the page with "
                "HTTPS, set CRONLEDGER_WEB_PUBLIC_URL to its address."
            )
        raise RefusedRequestError(
            f"This request comes from another site, so nothing was changed. {remedy}"
        )
