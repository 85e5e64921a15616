"""Access without a sign-in, for the people who are on this machine already."""

import getpass
import os
import socket
from ipaddress import ip_address

from starlette.requests import HTTPConnection

from cronledger.web.access.identity import Access, Identity, RefusedRequestError, Role

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class LoopbackAccess(Access):
    """Every request from this machine is one of an operator.

    A request is refused if a proxy forwarded it, or if its Host is another name: a foreign page
    could let its own name lead to this machine, and would then be of the same origin.
    """

    def __init__(self) -> None:
        self._identity = Identity(_user(), Role.OPERATOR)

    async def identify(self, request: HTTPConnection) -> Identity:
        if not is_this_machine(None if request.client is None else request.client.host):
            raise RefusedRequestError(
                "Without a sign-in, this page serves only its own machine. Set "
                "CRONLEDGER_WEB_AUTH=token or CRONLEDGER_WEB_AUTH=proxy."
            )
        if any(name in request.headers for name in _FORWARDED):
            raise RefusedRequestError(
                "A proxy forwarded this request, and this page has no sign-in. Set "
                "CRONLEDGER_WEB_AUTH=proxy or CRONLEDGER_WEB_AUTH=token."
            )
        if request.client is not None and host_name(request.headers.get("host", "")) not in HOSTS:
            raise RefusedRequestError(
                "Without a sign-in, this page is reached as http://127.0.0.1 or http://localhost."
            )
        return self._identity


def is_this_machine(host: str | None) -> bool:
    """Return whether a peer is on this machine. None and "": it came through a unix socket."""
    if not host:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """Return the value of a Host header without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0].lower()


def _user() -> str:
    """Return `user@host` of this process, as commands record it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}".encode("utf-8", "replace").decode()
