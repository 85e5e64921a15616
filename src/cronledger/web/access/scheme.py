"""Whether a browser uses HTTPS, although a proxy may pass its requests on without."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from cronledger.web.access.peers import Peers


class Scheme:
    """The scheme of the address that the browser shows.

    It is https if the connection is, if a listed proxy says so in X-Forwarded-Proto, or if the host
    of the request is that of an https:// `public_url`.
    """

    def __init__(self, peers: Sequence[str], public_url: str | None) -> None:
        self._peers = Peers(peers)
        public = urlsplit(public_url or "")
        self._public_host = public.netloc.lower() if public.scheme == "https" else None

    def is_https(self, request: HTTPConnection) -> bool:
        """Return whether the browser uses HTTPS for this request."""
        if request.url.scheme == "https":
            return True
        if self._public_host is not None and self._public_host == _host(request):
            return True
        forwarded = request.headers.getlist("x-forwarded-proto")
        return (
            len(forwarded) == 1
            and forwarded[0].strip().lower() == "https"
            and self._peers.has(request)
        )

    def origin(self, request: HTTPConnection) -> str:
        """Return the origin of the page, as a browser sends it in `Origin`."""
        return f"{'https' if self.is_https(request) else 'http'}://{_host(request)}"


def _host(request: HTTPConnection) -> str:
    return request.headers.get("host", "").lower()
