"""A proxy between a replica and its database whose network a test can spoil."""

import contextlib
import os
import selectors
import socket
import tempfile
import threading
from collections import deque
from pathlib import Path
from time import monotonic
from typing import Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK = 1 << 16
SWALLOW = ("black_hole", "half_open")


class _Pipe:
    """One direction of one connection: what was read and has to be written, and when."""

    def __init__(self, source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        self.source = source
        self.sink = sink
        self.answers = answers
        self.waiting: deque[tuple[float, bytes]] = deque()


class Proxy:
    """Listens on a unix socket and passes bytes to the server of a DSN; `dsn` leads through it.

    `delay` holds every chunk for so long; `black_hole` swallows what either side sends and keeps
    all connections open; `half_open` passes what the client sends and swallows every answer; `cut`
    closes all connections and refuses new ones; `heal` passes bytes again (swallowed ones are gone,
    so connections that lost any are closed). `lead_to`: new connections go to another server.
    """

    def __init__(self, dsn: str) -> None:
        self.lead_to(dsn)
        port = self._server[1]
        self._directory = tempfile.TemporaryDirectory(prefix="proxy-")
        self.dsn = make_conninfo(dsn, host=self._directory.name, port=port)
        self._path = Path(self._directory.name) / f".s.PGSQL.{port}"
        self._selector = selectors.DefaultSelector()
        self._pipes: dict[socket.socket, _Pipe] = {}
        self._delay = 0.0
        self._mode = "pass"
        self._commands: deque[tuple[str, threading.Event]] = deque()
        self._wake_r, self._wake_w = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._listener = self._listen()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._say("close")
        self._thread.join()
        self._listener.close()
        self._selector.close()
        os.close(self._wake_r)
        os.close(self._wake_w)
        self._directory.cleanup()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen(256)
        return listener

    def lead_to(self, dsn: str) -> None:
        parameters = conninfo_to_dict(dsn)
        host, port = str(parameters.get("host") or "/tmp"), str(parameters.get("port") or "5432")
        self._server = (host, int(port))

    def delay(self, seconds: float) -> None:
        self._delay = seconds

    def black_hole(self) -> None:
        self._say("black_hole")

    def half_open(self) -> None:
        self._say("half_open")

    def cut(self) -> None:
        self._say("cut")

    def heal(self) -> None:
        self._say("pass")

    def _say(self, mode: str) -> None:
        """Returns once the mode holds."""
        done = threading.Event()
        self._commands.append((mode, done))
        os.write(self._wake_w, b".")
        assert done.wait(90), "the proxy does not answer"

    # -- in the thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._mode != "close":
            due = [pipe.waiting[0][0] for pipe in self._pipes.values() if pipe.waiting]
            wait = max(0.0, min(due) - monotonic()) if due else None
            for key, _ in self._selector.select(wait):
                self._on_ready(key.fileobj)
            for pipe in tuple(self._pipes.values()):
                self._flush(pipe)
        self._close_all()

    def _on_ready(self, ready: Any) -> None:
        if ready == self._wake_r:
            os.read(self._wake_r, CHUNK)
            while self._commands:
                mode, done = self._commands.popleft()
                if mode in ("cut", "close") or (mode == "pass" and self._mode in SWALLOW):
                    self._close_all()
                self._mode = mode
                done.set()
        elif ready is self._listener:
            self._accept()
        elif ready in self._pipes:
            self._read(self._pipes[ready])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._mode == "cut":
            client.close()
            return
        host, port = self._server
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            connect_to: Any = f"{host}/.s.PGSQL.{port}"
        else:
            server = socket.socket(socket.AF_INET)
            connect_to = (host, port)
        try:
            server.connect(connect_to)
        except OSError:
            server.close()
            client.close()
            return
        for source, sink in ((client, server), (server, client)):
            self._pipes[source] = _Pipe(source, sink, answers=source is server)
            self._selector.register(source, selectors.EVENT_READ)

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = pipe.source.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            self._close(pipe)
        elif self._passes(pipe):
            pipe.waiting.append((monotonic() + self._delay, data))

    def _passes(self, pipe: _Pipe) -> bool:
        return self._mode == "pass" or (self._mode == "half_open" and not pipe.answers)

    def _flush(self, pipe: _Pipe) -> None:
        if not self._passes(pipe):
            pipe.waiting.clear()
        while pipe.waiting and pipe.waiting[0][0] <= monotonic():
            _, data = pipe.waiting.popleft()
            try:
                pipe.sink.sendall(data)
            except OSError:
                self._close(pipe)
                return

    def _close(self, pipe: _Pipe) -> None:
        for end in (pipe.source, pipe.sink):
            if self._pipes.pop(end, None) is not None:
                self._selector.unregister(end)
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _close_all(self) -> None:
        for pipe in tuple(self._pipes.values()):
            self._close(pipe)
