"""The page on a real server, in a thread of the test."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn


class Certificate(NamedTuple):
    """A certificate, and its key."""

    file: Path
    key: Path


def certificate_of(host: str, directory: Path) -> Certificate:
    """Return a new certificate for this host and for 127.0.0.1."""
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host},IP:127.0.0.1",
         "-keyout", str(made.key), "-out", str(made.file)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@contextmanager
def served(page: Any, certificate: Certificate | None = None) -> Iterator[str]:
    """Serve an ASGI application on a free port, and yield its address without a slash.

    With a certificate, by HTTPS.
    """
    scheme = "http" if certificate is None else "https"
    files: dict[str, Any] = {}
    if certificate is not None:
        files = {"ssl_certfile": certificate.file, "ssl_keyfile": certificate.key}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = uvicorn.Config(
            page, log_config=None, proxy_headers=False, timeout_graceful_shutdown=2, **files
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
