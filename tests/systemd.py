"""The notification socket of systemd: what a unit with `Type=notify` sends."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import until

Message = dict[str, str]
"""The fields of one datagram by name."""


class Notifications:
    """A socket that receives the messages of one process. `address` as in NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.received: list[Message] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def variables(self, watchdog_seconds: float | None = None) -> dict[str, str]:
        """Return the variables that systemd sets, without WATCHDOG_PID, which needs the process."""
        given = {"NOTIFY_SOCKET": self.address}
        if watchdog_seconds is not None:
            given["WATCHDOG_USEC"] = str(round(watchdog_seconds * 1e6))
        return given

    def new(self) -> list[Message]:
        """Return the messages that have arrived since the last call."""
        found: list[Message] = []
        while True:
            try:
                text = self._socket.recv(65536).decode()
            except BlockingIOError:
                self.received += found
                return found
            pairs = (line.partition("=") for line in text.split("\n"))
            found.append({name: value for name, _, value in pairs})

    def has(self, name: str) -> Message | None:
        """Return the first message with this field, if there has been one."""
        self.new()
        return next((message for message in self.received if name in message), None)

    def until(self, name: str) -> Message:
        """Return the first message with this field once there has been one."""
        return until(f"a message with {name}", lambda: self.has(name))

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening(address: str) -> Iterator[Notifications]:
    """Yield the socket at `address`; `@` and a name: an abstract one."""
    made = Notifications(address)
    try:
        yield made
    finally:
        made.close()
