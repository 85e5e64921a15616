"""Open pages: each has a stream of events, and reads what has changed after each event."""

import asyncio
import re
import time
from contextlib import suppress
from typing import NamedTuple

import httpx2
import psutil

PATIENCE = 300.0


class Watched(NamedTuple):
    """The resident memory of the page's process in MB, after half of the time and at its end, and
    the kB that an open page has received each minute.
    """

    half: float
    end: float
    kb_a_minute: float


def watched(url: str, pid: int, viewers: int, seconds: float) -> Watched:
    """Keep so many pages open for this time."""
    return asyncio.run(_watched(url, pid, viewers, seconds))


async def _watched(url: str, pid: int, viewers: int, seconds: float) -> Watched:
    process = psutil.Process(pid)
    # Shorter than the server keeps them. Only browsers repeat a request that it closed.
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=viewers, keepalive_expiry=2
    )
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        open_pages = [asyncio.create_task(_page(client, seconds)) for _ in range(viewers)]
        await asyncio.sleep(seconds / 2)
        half = process.memory_info().rss
        received = await asyncio.gather(*open_pages)
        end = process.memory_info().rss
        return Watched(half / 2**20, end / 2**20, sum(received) / viewers / 1000 * 60 / seconds)


async def _page(client: httpx2.AsyncClient, seconds: float) -> int:
    """Watch the page Now, and return the bytes that came after it was loaded.

    A stream ends by itself, and the browser opens another.
    """
    until, received = time.monotonic() + seconds, 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            known = _parts((await client.get("/")).raise_for_status().text)
            while time.monotonic() < until:
                async with client.stream("GET", "/events") as stream:
                    received += _head(stream)
                    async for line in stream.raise_for_status().aiter_lines():
                        received += len(line) + 1
                        if line.startswith("event:"):
                            header = " ".join(f"{name}={digest}" for name, digest in known.items())
                            fresh = await client.get("/", headers={"Known-Parts": header})
                            received += _head(fresh.raise_for_status()) + fresh.num_bytes_downloaded
                            is_whole = fresh.headers["Sent-Parts"] == "all"
                            known = ({} if is_whole else known) | _parts(fresh.text)
    return received


def _parts(html: str) -> dict[str, str]:
    return dict(re.findall(r'id="([^"]+)" data-part="([^"]+)"', html))


def _head(response: httpx2.Response) -> int:
    return sum(len(name) + len(value) + 4 for name, value in response.headers.raw)
