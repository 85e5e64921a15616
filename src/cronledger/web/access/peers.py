"""The peers whose headers the page believes."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network

from starlette.requests import HTTPConnection

UNIX = "unix"


class Peers:
    """Addresses and networks, and `unix` for a unix socket."""

    def __init__(self, peers: Sequence[str]) -> None:
        self._networks = [ip_network(peer) for peer in peers if peer != UNIX]
        self._unix = UNIX in peers

    def has(self, request: HTTPConnection) -> bool:
        """Return whether one of them sent this request."""
        host = None if request.client is None else request.client.host
        if not host:
            return self._unix
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)
