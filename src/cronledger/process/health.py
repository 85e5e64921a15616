"""/healthz, /readyz and /diagnostics over HTTP, with JSON bodies, and /metrics as text."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from aiohttp import web

from cronledger.engine.threads import Threads
from cronledger.replica import Health

METRICS_OFF = (
    "The metrics of this replica are off. Run `pip install 'cronledger[metrics]'` and set "
    "CRONLEDGER_METRICS=true.\n"
)


class HealthServer:
    """The HTTP endpoints of one replica. `read` must not block.

    /healthz returns 503 if a loop is stuck, so that the process is restarted. An unreachable
    database is not a reason for that. /readyz returns 200 only while the runner takes work: its
    last steps succeeded. /diagnostics returns the result of `diagnose`. /metrics returns the text
    and the content type that `render` makes, in a thread, from the header Accept.
    """

    def __init__(
        self,
        host: str,
        port: int,
        read: Callable[[], Health],
        diagnose: Callable[[], dict[str, Any]] | None = None,
        render: Callable[[str], tuple[bytes, str]] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._read = read
        self._diagnose = diagnose or (lambda: asdict(read()))
        self._render = render
        self._threads = Threads("metrics")
        self._turn = asyncio.Lock()
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen, and return the port. Raises OSError if the address is not available."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/diagnostics", self._diagnostics)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Stop listening."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self._threads.close()

    async def _healthz(self, _: web.Request) -> web.Response:
        health = self._read()
        return _response(health, "ok" if health.stuck is None else "stuck", health.stuck is None)

    async def _readyz(self, _: web.Request) -> web.Response:
        health = self._read()
        return _response(health, "ready" if health.ready else "not ready", health.ready)

    async def _diagnostics(self, _: web.Request) -> web.Response:
        return web.json_response(self._diagnose())

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._render is None:
            return web.Response(text=METRICS_OFF, status=404)
        # In a thread, because the text of many queues takes some milliseconds.
        render = partial(self._render, request.headers.get("Accept", ""))
        async with self._turn:  # otherwise many requests at once would start as many threads
            rendered, error = await self._threads.call(render)
        if error is not None:
            raise error
        text, content_type = rendered
        return web.Response(body=text, headers={"Content-Type": content_type})


def _response(health: Health, status: str, good: bool) -> web.Response:
    body: dict[str, Any] = {"status": status, **asdict(health)}
    return web.json_response(body, status=200 if good else 503)
