"""PgBouncer in transaction mode, before whichever server it is told to lead to."""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from psycopg.conninfo import make_conninfo

from cronledger.embedded.binaries import as_ordinary_user
from tests.cluster.support.servers import OwnServer
from tests.waiting import until

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"


def program() -> Path | None:
    """The binary, if this machine has one."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path=PLACES)
    return Path(found) if found else None


class Bouncer:
    """`dsn(user)` leads through it; `directory` is its own."""

    def __init__(self, directory: Path, server: OwnServer, users: tuple[str, ...]) -> None:
        found = program()
        assert found is not None, "there is no pgbouncer"
        self._program = found
        self._prefix = as_ordinary_user(server.programs.directory / "postgres")
        self._directory = directory
        directory.mkdir(mode=0o700)
        (directory / "users").write_text("".join(f'"{user}" ""\n' for user in users))
        self._popen: subprocess.Popen[bytes] | None = None
        self.lead_to(server)
        self.start()

    def dsn(self, user: str) -> str:
        return make_conninfo("", host=str(self._directory), port=5432, dbname="cronledger",
                             user=user)  # fmt: skip

    def lead_to(self, server: OwnServer) -> None:
        """New server connections go there."""
        (self._directory / "ini").write_text(
            f"[databases]\n* = host={server.data} port=5432\n"
            "[pgbouncer]\nlisten_addr =\nlisten_port = 5432\n"
            f"unix_socket_dir = {self._directory}\n"
            f"auth_type = trust\nauth_file = {self._directory / 'users'}\n"
            "pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 100\n"
            "server_login_retry = 1\nserver_check_delay = 1\nquery_wait_timeout = 10\n"
            f"logfile = {self._directory / 'log'}\nlog_connections = 0\nlog_disconnections = 0\n"
        )
        if self._popen is not None:
            self._popen.send_signal(signal.SIGHUP)

    def start(self) -> None:
        """It accepts connections."""
        self._popen = subprocess.Popen(
            [*self._prefix, str(self._program), "-q", str(self._directory / "ini")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        until("pgbouncer answers", self._answers)

    def kill(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None
        (self._directory / ".s.PGSQL.5432").unlink(missing_ok=True)

    def _answers(self) -> bool:
        # No query: the server behind it may be away.
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(str(self._directory / ".s.PGSQL.5432"))
            return True
        return False
