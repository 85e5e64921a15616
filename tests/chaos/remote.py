"""A replica on a host of its own, which can be lost without a word, and the way to its database."""

import socket

from psycopg.conninfo import make_conninfo

from tests.cluster.support.hosts import Host
from tests.cluster.support.proxy import Proxy

PORT = 5432
NOTICES = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 10_000),
)
"""What stands between a replica and its server must notice as well that one of them is gone."""


class Gate(Proxy):
    """A proxy that listens at the address of a host."""

    def __init__(self, dsn: str, host: Host) -> None:
        super().__init__(dsn)
        self._host = host
        self.dsn = make_conninfo(dsn, host=host.address, port=PORT)

    def _listen(self) -> socket.socket:
        with self._host.inside():
            listener = socket.create_server((self._host.address, PORT), backlog=256)
        for level, name, value in NOTICES:  # whom it accepts inherits them
            listener.setsockopt(level, getattr(socket, name), value)
        return listener
