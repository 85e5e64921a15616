"""Servers on loopback, which keep what they were asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """Answer requests of every method and path. Yield the URL of the server."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class Site:
    """A server that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.answers: dict[str, Answer] = {}
        self.url = ""
        self.gone = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.asked.append((request.method, request.path, dict(request.headers), body))
        return await self.answers[request.path](request)

    def answer(self, path: str, status: int = 200, text: str = "", **headers: str) -> None:
        async def answer(request: web.Request) -> web.Response:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, text=text, headers=named)

        self.answers[path] = answer
