"""Messages to the service manager, for example to systemd from a unit with `Type=notify`.

The protocol is that of sd_notify(3). Each message is a datagram to the socket that the variable
NOTIFY_SOCKET names. Without this variable nothing is sent.
"""

import os
import socket
from collections.abc import MutableMapping
from typing import Self

from cronledger.logs.loggers import get_logger

log = get_logger(__name__)


class ServiceManager:
    """The service manager of this process.

    `address`: a path, or `@` and the name of an abstract socket; None: there is no service manager.
    `watchdog_seconds`: the service manager restarts a process that sends no WATCHDOG=1 for this
    time; None: it does not.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self.address = address
        self.watchdog_seconds = watchdog_seconds
        self._failure: str | None = None

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """Return the service manager that the variables name, and remove these variables.

        Otherwise commands and an embedded PostgreSQL would inherit them, and might send messages in
        the name of this process.
        """
        address = environ.pop("NOTIFY_SOCKET", None) or None
        microseconds = environ.pop("WATCHDOG_USEC", "")
        of_this_process = environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = of_this_process and microseconds.isdecimal() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1e6 if watched else None)

    def send(self, *fields: str) -> bool:
        """Send fields such as `READY=1`. Return whether the service manager received them.

        The call never waits. An error of the socket is logged once.
        """
        if self.address is None:
            return False
        message = "\n".join(fields).encode("utf-8", "replace")
        abstract = self.address.startswith("@")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message, f"\0{self.address[1:]}" if abstract else self.address)
        except BlockingIOError:  # its queue is full
            return False
        except OSError as error:
            if self._failure != str(error):
                self._failure = str(error)
                log.warning("service_manager_away", address=self.address, error=self._failure)
            return False
        self._failure = None
        return True
