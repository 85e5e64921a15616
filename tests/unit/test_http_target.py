"""F29: the pure parts of the `http` handler: addresses, waits, redirects."""

from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import pytest

from cronledger.engine.addresses import AddressRefusedError, Resolver, is_public
from cronledger.engine.running.handlers.http import retry_after

PRIVATE_OR_RESERVED = (
    "127.0.0.1 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 224.0.0.1 "
    "255.255.255.255 :: ::1 fe80::1 fec0::1 fd00::1 ff02::1 ::ffff:10.0.0.1 2002:7f00:1:: "
    "64:ff9b::a00:1 192.0.2.1 168.63.129.16 ::ffff:168.63.129.16 64:ff9b:1::808:808 "
    "64:ff9b:1:2::10.0.0.1 ::10.0.0.1 ::8.8.8.8 ::ffff:0:10.0.0.1 ::ffff:0:808:808 5f00::1 "
    "100:0:0:1::1"
)
GLOBAL = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


def test_only_global_addresses_are_public() -> None:
    addresses = [*PRIVATE_OR_RESERVED.split(), *GLOBAL]
    assert [address for address in addresses if is_public(ip_address(address))] == GLOBAL


class Names:
    """A resolver that answers what a test says."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts

    async def resolve(self, *_: Any) -> list[dict[str, Any]]:
        return [{"host": host, "port": 80} for host in self.hosts]

    async def close(self) -> None: ...


async def test_a_name_with_one_private_address_is_refused() -> None:
    for allow, refused in ((False, True), (True, False)):
        resolver = Resolver(allow)
        resolver._inner = Names("8.8.8.8", "127.0.0.1")  # type: ignore[assignment]
        if refused:
            with pytest.raises(AddressRefusedError, match=r"a.example \(127.0.0.1\)"):
                await resolver.resolve("a.example")
        else:
            assert len(await resolver.resolve("a.example")) == 2


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "999999999999"}, 86_400),
        ({"Retry-After": "Wed, 21 Oct 2026 07:30:00 GMT", "Date": DATE}, 120),
        ({"Retry-After": DATE, "Date": "Wed, 21 Oct 2026 07:30:00 GMT"}, 0),
        ({"Retry-After": DATE}, None), ({"Retry-After": "soon", "Date": DATE}, None), ({}, None),
    ],
)  # fmt: skip
def test_retry_after_is_a_bounded_wait(headers: dict[str, str], seconds: int | None) -> None:
    assert retry_after(headers) == (None if seconds is None else timedelta(seconds=seconds))
