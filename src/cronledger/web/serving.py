"""`cronledger web` as a process: the address, the check of the schema, and the server."""

import os
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from errno import EADDRINUSE
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from cronledger.ledger.migrate import check_for_reader
from cronledger.logs.loggers import get_logger
from cronledger.process.service_manager import ServiceManager
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.settings import Settings
from cronledger.web.access.loopback import is_this_machine

log = get_logger(__name__)

UNIX = "unix:"
GRACE_SECONDS = 5
"""After a stop signal, requests may take this long."""


def require_own_machine(settings: Settings) -> None:
    """Raise ConfigurationError if the page had no sign-in on an address that others reach."""
    listen = settings.web_listen
    if settings.web_auth != "loopback" or listen.startswith(UNIX):
        return
    host = _host(listen)
    if host != "localhost" and not is_this_machine(host):
        message = "is reached by other machines, and there is no sign-in"
        remedy = "use 127.0.0.1, or set CRONLEDGER_WEB_AUTH=token or CRONLEDGER_WEB_AUTH=proxy"
        problem = Problem(
            field="CRONLEDGER_WEB_LISTEN", value=listen, message=message, remedy=remedy
        )
        raise ConfigurationError([problem])


def check_schema(url: str, schema: str) -> None:
    """Check the schema that the page reads.

    Raise MigrationError or SchemaNewerError if the page could not work with the schema.

    Raises psycopg.OperationalError if the server refuses the connection. A database that is away is
    logged, because the page states it and recovers.
    """
    if (away := check_for_reader(url, schema)) is not None:
        log.warning("web_database_away", error=str(away))


def serve(
    app: Starlette,
    listen: str,
    started: Callable[[str], None],
    *,
    prefix: str = "",
    open_to_group: bool = False,
) -> None:
    """Serve `app` on `listen` until a stop signal. Raises OSError if the address is not free.

    `started` receives the address once requests are accepted. Headers of a proxy are left as they
    are: only the access decides whom to believe. `open_to_group`: the group of this process may
    connect to a unix socket, too. The service manager learns when the page is ready, and when it
    stops.
    """
    manager = ServiceManager.from_environment()
    try:
        taken = _socket(listen, 0o117 if open_to_group else 0o177)
    except OSError as error:
        number = error.errno or 0  # negative: of the look-up of a name
        why = os.strerror(number) if number > 0 else error.strerror or error
        remedy = "free it, or choose" if number == EADDRINUSE else "choose"
        text = f"cannot listen on {listen}: {why}; {remedy} another with --listen"
        raise OSError(text) from None
    try:
        config = uvicorn.Config(
            _below(prefix, app), log_config=None, log_level="warning", access_log=False,
            proxy_headers=False, server_header=False, lifespan="on",
            timeout_graceful_shutdown=GRACE_SECONDS,
        )  # fmt: skip
        for number in (signal.SIGTERM, signal.SIGINT):
            # The server raises the signal once more when it has ended, and that is no failure.
            signal.signal(number, lambda *_: None)
        started(_address(listen, taken, prefix))
        _Server(config, manager).run(sockets=[taken])
    finally:
        taken.close()
        if listen.startswith(UNIX):
            with suppress(OSError):
                Path(listen.removeprefix(UNIX)).unlink()


def _below(prefix: str, app: Starlette) -> Starlette:
    """Return `app` below a prefix."""
    if not prefix:
        return app
    lifespan: Any = app.router.lifespan_context
    return Starlette(routes=[Mount(prefix, app)], lifespan=lambda _: lifespan(app))


class _Server(uvicorn.Server):
    """Notifies the service manager when it is ready, and when it stops."""

    def __init__(self, config: uvicorn.Config, manager: ServiceManager) -> None:
        super().__init__(config)
        self._manager = manager

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._manager.send("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._manager.send("STOPPING=1")
        super().handle_exit(sig, frame)


def _socket(listen: str, mask: int) -> socket.socket:
    """Return a socket that listens, so that requests wait from now on."""
    if listen.startswith(UNIX):
        path = Path(listen.removeprefix(UNIX))
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _is_served(path):
            path.unlink()  # of a process that was killed
        made = socket.socket(socket.AF_UNIX)
        before = os.umask(mask)
        try:
            made.bind(str(path))
        except OSError:
            made.close()
            raise
        finally:
            os.umask(before)
    else:
        host, port = _host(listen), int(listen.rpartition(":")[2])
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family)
    made.listen(128)
    made.set_inheritable(True)
    return made


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _host(listen: str) -> str:
    return listen.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _address(listen: str, taken: socket.socket, prefix: str) -> str:
    if listen.startswith(UNIX):
        return listen
    host = _host(listen)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{taken.getsockname()[1]}{prefix}/"
