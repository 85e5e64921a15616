"""PgBouncer in transaction mode, before the server of a test."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cronledger.embedded.binaries import as_ordinary_user
from tests.waiting import until

needs_pgbouncer = pytest.mark.skipif(
    shutil.which("pgbouncer") is None, reason="there is no pgbouncer"
)


@contextmanager
def pgbouncer(
    url: str, directory: Path, ignored: str = "extra_float_digits,options"
) -> Iterator[str]:
    """A PgBouncer in transaction mode before the server of `url`.

    It refuses connections with startup parameters that it neither knows nor has in `ignored`.
    """
    to = conninfo_to_dict(url)
    known = " ".join(
        f"{key}={to[key]}" for key in ("host", "port", "user", "password") if key in to
    )
    file = directory / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = {known}\n[pgbouncer]\nunix_socket_dir = {directory}\n"
        "listen_port = 6432\nauth_type = any\npool_mode = transaction\n"
        f"ignore_startup_parameters = {ignored}\n"
    )
    program = shutil.which("pgbouncer")
    assert program is not None
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*as_ordinary_user(Path(program)), program, str(file)],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        until(f"it listens: {(directory / 'log').read_text()}", lambda: _accepts(directory))
        yield make_conninfo(url, host=str(directory), port=6432, user="anybody")
    finally:
        process.terminate()
        process.wait()


def _accepts(directory: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:  # its file exists before it listens
        return client.connect_ex(str(directory / ".s.PGSQL.6432")) == 0
