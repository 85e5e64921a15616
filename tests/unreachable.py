"""Databases that are away: a port on which nobody listens, and one that never answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

CLOSED = "postgresql://reader:s3cret@127.0.0.1:1/x"
"""Nobody listens on port 1."""


@contextmanager
def silent(seconds: int = 2) -> Iterator[str]:
    """Yield the DSN of a server that accepts connections and never answers.

    `seconds`: how long a client waits, by default the shortest time.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield f"postgresql://reader:s3cret@127.0.0.1:{port}/x?connect_timeout={seconds}"
