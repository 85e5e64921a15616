"""Whether a request that changes something comes from this page itself."""

from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from cronledger.web.access.identity import Identity, RefusedRequestError

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def require_same_origin(request: HTTPConnection, identity: Identity | None) -> None:
    """Raise RefusedRequestError for a request that another site made a browser send.

    `identity`: the sender; a Bearer token proves that no other site sent the request.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    elif origin is not None:
        same = urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower() != ""
    else:
        same = identity is not None and identity.bearer
    if not same:
        raise RefusedRequestError(
            "This request comes from another site, so nothing was changed. Open the page itself, "
            "and repeat the action there."
        )
