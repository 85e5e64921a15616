"""Hosts that a test can lose: network namespaces, a cable from each to one switch.

What a lost host sends vanishes, and so does what is sent to it: no FIN, no RST, no ACK; its
processes live on. The namespaces have no names: they are gone with this process and those that it
started in them, and addresses in them are nobody else's.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.cluster.support.servers import OwnServer
from tests.waiting import until

CLONE_NEWNET = 0x40000000
SWITCH = "switch"
CABLE = "eth0"


def impossible() -> str | None:
    """Why there can be no such hosts here; None: there can."""
    if not sys.platform.startswith("linux"):
        return "only Linux has network namespaces"
    try:
        with Network() as network:
            network.host()
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        return f"network namespaces cannot be made here: {str(said).strip()}"
    return None


class Namespace:
    """A network namespace that a file descriptor keeps, and the processes in it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        home = _current()
        try:
            self._call(self._libc.unshare(CLONE_NEWNET))
            self._fd = _current()
            self._call(self._libc.setns(home, CLONE_NEWNET))
        finally:
            os.close(home)

    @property
    def path(self) -> str:
        """What `ip` takes for a name."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The sockets and processes that this thread makes are of this namespace."""
        home = _current()
        try:
            self._call(self._libc.setns(self._fd, CLONE_NEWNET))
            try:
                yield
            finally:
                self._call(self._libc.setns(home, CLONE_NEWNET))
        finally:
            os.close(home)

    def ip(self, *arguments: str) -> str:
        """What the program `ip` says. Raises CalledProcessError, and OSError where it is not."""
        with self.inside():
            done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def close(self) -> None:
        os.close(self._fd)

    def _call(self, answer: int) -> None:
        if answer != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Host:
    """A namespace with one address."""

    def __init__(self, switch: Namespace, namespace: Namespace, number: int) -> None:
        self.address = f"10.0.0.{number}"
        self._switch = switch
        self._namespace = namespace
        self._port = f"port{number}"
        end = ("peer", "name", CABLE, "netns", namespace.path)
        switch.ip("link", "add", self._port, "type", "veth", *end)
        namespace.ip("address", "add", f"{self.address}/24", "dev", CABLE)
        namespace.ip("link", "set", "lo", "up")
        namespace.ip("link", "set", CABLE, "up")
        self.heal()

    def inside(self) -> AbstractContextManager[None]:
        """The sockets and processes that this thread makes in the block are of this host."""
        return self._namespace.inside()

    def lose(self, *, silently: bool = False) -> None:
        """Nothing leaves it or arrives. `silently`: its cable looks well, the fault is behind."""
        if silently:
            self._switch.ip("link", "set", self._port, "nomaster")
        else:
            self._switch.ip("link", "set", self._port, "down")

    def heal(self) -> None:
        """What it sends is passed on, and what is sent to it. Idempotent."""
        self._switch.ip("link", "set", self._port, "master", SWITCH, "up")
        until(f"{self._port} forwards", self._forwards)

    def _forwards(self) -> bool:
        said = self._switch.ip("-oneline", "-details", "link", "show", self._port)
        return " state forwarding " in said


class Network:
    """Hosts around one switch; leaving the block takes the namespaces from those that are left."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._number = 0

    def __enter__(self) -> Self:
        self._switch = self._namespace()
        try:
            self._switch.ip("link", "add", SWITCH, "type", "bridge")
            self._switch.ip("link", "set", SWITCH, "up")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def host(self) -> Host:
        """One host more, which reaches all others."""
        self._number += 1
        return Host(self._switch, self._namespace(), self._number)

    def _namespace(self) -> Namespace:
        made = Namespace()
        self._stack.callback(made.close)
        return made


@contextmanager
def serving(server: OwnServer, host: Host) -> Iterator[str]:
    """The DSN, over its unix socket, of a superuser of a server that answers at the host's address
    too (`reached`); it has ended afterwards."""
    try:
        with host.inside():
            dsn = server.start()
            with psycopg.connect(dsn, autocommit=True) as c:
                c.execute(sql.SQL("ALTER SYSTEM SET listen_addresses = {}").format(host.address))
            with (server.data / "pg_hba.conf").open("r+") as file:
                rules = file.read()
                file.seek(0)
                file.write(f"host all all samenet trust\n{rules}")
            server.stop()
            server.start()
        yield dsn
    finally:
        server.stop("immediate")


def reached(dsn: str, host: Host) -> str:
    """`dsn` of a server of `host` as other hosts write it."""
    return make_conninfo(dsn, host=host.address)
