"""/metrics of the whole ledger over HTTP, for `cronledger metrics --listen`."""

import asyncio
import signal
from collections.abc import Callable

from aiohttp import web

from cronledger.ledger.access import Access
from cronledger.ledger.senders import AsyncConnections
from cronledger.metrics.ledger_metrics import LedgerMetrics, encoded

NAME = "cronledger metrics"


async def serve(
    access: Access, schema: str, *, job_limit: int, ledger: str | None, host: str, port: int,
    started: Callable[[str], None],
) -> None:  # fmt: skip
    """Serve /metrics until SIGTERM or SIGINT. Raises OSError if the address is not available.

    `started` receives the address once requests are accepted.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connections = AsyncConnections(access, NAME, 1)
    metrics = LedgerMetrics(connections.lend, schema, job_limit=job_limit, ledger=ledger)

    async def respond(request: web.Request) -> web.Response:
        body, content_type = await metrics.exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get("/metrics", respond)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        shown = f"[{host}]" if ":" in host else host
        started(f"http://{shown}:{runner.addresses[0][1]}/metrics")
        await stop.wait()
    finally:
        await runner.cleanup()
        await connections.close()


async def read_once(access: Access, schema: str, *, job_limit: int, ledger: str | None) -> bytes:
    """Return the current metrics. Raises psycopg.Error, or TimeoutError after PATIENCE."""
    connections = AsyncConnections(access, NAME, 1)
    try:
        metrics = LedgerMetrics(connections.lend, schema, job_limit=job_limit)
        return encoded(await metrics.read(), ledger)
    finally:
        await connections.close()
