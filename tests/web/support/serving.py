"""The page on a real server, in a thread of the test."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def served(page: Any) -> Iterator[str]:
    """Serve an ASGI application on a free port, and yield its address without a slash."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = uvicorn.Config(
            page, log_config=None, proxy_headers=False, timeout_graceful_shutdown=2
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
