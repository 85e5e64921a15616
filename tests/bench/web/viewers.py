"""Open pages: each has a stream of events, and reads its page again after each event."""

import asyncio
import time
from contextlib import suppress

import httpx2
import psutil

PATIENCE = 60.0


def memory_beside(url: str, pid: int, viewers: int, seconds: float) -> tuple[float, float]:
    """Return the resident memory of a process in MB, after half of the time and at its end.

    During this time so many pages are open.
    """
    return asyncio.run(_watched(url, pid, viewers, seconds))


async def _watched(url: str, pid: int, viewers: int, seconds: float) -> tuple[float, float]:
    process = psutil.Process(pid)
    # Shorter than the server keeps them. Only browsers repeat a request that it closed.
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=viewers, keepalive_expiry=2
    )
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        open_pages = [asyncio.create_task(_page(client, seconds)) for _ in range(viewers)]
        await asyncio.sleep(seconds / 2)
        half = process.memory_info().rss
        await asyncio.gather(*open_pages)
        return half / 2**20, process.memory_info().rss / 2**20


async def _page(client: httpx2.AsyncClient, seconds: float) -> None:
    """Watch the page Now. A stream ends by itself, and the browser opens another."""
    until = time.monotonic() + seconds
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while time.monotonic() < until:
                async with client.stream("GET", "/events") as stream:
                    async for line in stream.raise_for_status().aiter_lines():
                        if line.startswith("event:"):
                            (await client.get("/")).raise_for_status()
