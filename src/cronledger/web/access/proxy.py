"""Access by the headers of a proxy that signs people in."""

from collections.abc import Collection, Sequence

from starlette.requests import HTTPConnection

from cronledger.web.access.identity import Access, Identity, RefusedRequestError, Role
from cronledger.web.access.peers import Peers


class ProxyAccess(Access):
    """Believes the headers of listed peers, and refuses every other request.

    `viewers` empty: every user whom the proxy names may read.
    """

    def __init__(
        self,
        *,
        peers: Sequence[str],
        user_header: str,
        groups_header: str,
        operators: Collection[str],
        viewers: Collection[str],
    ) -> None:
        self._peers = Peers(peers)
        self._user_header = user_header
        self._groups_header = groups_header
        self._operators = frozenset(operators)
        self._viewers = frozenset(viewers)

    async def identify(self, request: HTTPConnection) -> Identity:
        if not self._peers.has(request):
            raise RefusedRequestError("This page is reached through its proxy only.")
        users = request.headers.getlist(self._user_header)
        if len(users) != 1 or not users[0].strip():
            raise RefusedRequestError(
                f"The proxy named no user, or several, in the header {self._user_header}."
            )
        name = _utf8(users[0]).strip()
        groups = {
            group.strip()
            for header in request.headers.getlist(self._groups_header)
            for group in _utf8(header).split(",")
        }
        if groups & self._operators:
            return Identity(name, Role.OPERATOR)
        if not self._viewers or groups & self._viewers:
            return Identity(name, Role.VIEWER)
        raise RefusedRequestError(f"{name} is in no group that may see this page.")


def _utf8(header: str) -> str:
    """Return the text of a header that a proxy wrote in UTF-8."""
    return header.encode("latin-1").decode("utf-8", "replace")
