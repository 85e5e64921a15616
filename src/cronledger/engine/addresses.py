"""Addresses to which requests may be sent. They are checked after a name is resolved.

The socket connects to the address that was checked, so a name cannot change in between.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from socket import AddressFamily
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
"""All public IPv6 addresses. Others are local, or are translated to IPv4 by rules of a network."""
_AZURE = IPv4Address("168.63.129.16")
"""Serves metadata and health probes to the virtual machines of Azure alone."""

Address = IPv4Address | IPv6Address


class AddressRefusedError(Exception):
    """A request would have been sent to an address that is not public."""


def is_public(address: Address) -> bool:
    """Return whether `address`, and an IPv4 address embedded in it, is a public address."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast and address != _AZURE


def _refuse(host: str, address: str) -> AddressRefusedError:
    at = "" if host == address else f" ({address})"
    return AddressRefusedError(
        f"{host}{at} is not a public address; set allow_private = true to permit it"
    )


def check_literal(url: URL, allow_private: bool) -> None:
    """Check a literal address, which is never resolved."""
    host = url.host or ""
    try:
        literal = ip_address(host.partition("%")[0])
    except ValueError:
        return
    if not (allow_private or is_public(literal)):
        raise _refuse(host, host)


class Resolver(AbstractResolver):
    """Refuses names that resolve to an address that is not permitted."""

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_UNSPEC
    ) -> list[ResolveResult]:
        found: list[Any] = await self._inner.resolve(host, port, family)
        for resolved in found:
            # One bad address refuses the name, because any of the addresses may be used.
            address = ip_address(resolved["host"].partition("%")[0])
            if not (self._allow_private or is_public(address)):
                raise _refuse(host, str(address))
        return found

    async def close(self) -> None:
        await self._inner.close()
