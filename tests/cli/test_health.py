"""/healthz, /readyz and /metrics: what each state answers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from time import sleep

import aiohttp
import pytest

from cronledger.process.health import HealthServer
from cronledger.replica import Health

Render = Callable[[str], tuple[bytes, str]]
RUNNING = Health("running", "ok", None, None, 3, 10, 0.2)


@asynccontextmanager
async def started(server: HealthServer) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the server, which is closed at the end."""
    port = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        await server.close()


async def test_each_state_has_its_answers() -> None:
    states = (
        (RUNNING, 200, 200),
        (replace(RUNNING, state="starting"), 200, 503),
        (replace(RUNNING, state="draining"), 200, 503),
        (replace(RUNNING, state="stopped"), 200, 503),
        (replace(RUNNING, database="away", away_for_s=7.5), 200, 503),
        (replace(RUNNING, database="other"), 200, 503),
        (replace(RUNNING, stuck="dispatcher"), 503, 200),
        (replace(RUNNING, failing={"dispatcher": "permission denied"}), 200, 503),
        (replace(RUNNING, failing={"heartbeats": "refused"}), 200, 503),
        (replace(RUNNING, failing={"listen": "refused"}), 200, 200),
    )
    current = [RUNNING]
    async with started(HealthServer("127.0.0.1", 0, lambda: current[0])) as client:
        for health, healthz, readyz in states:
            current[0] = health
            for path, status in (("/healthz", healthz), ("/readyz", readyz), ("/", 404)):
                async with client.get(path) as response:
                    assert response.status == status, health
                    if status != 404:
                        body = await response.json()
                        names = ("state", "database", "stuck", "failing")
                        assert [body[name] for name in names] == [getattr(health, n) for n in names]


async def test_a_taken_port_is_an_error() -> None:
    async with started(HealthServer("127.0.0.1", 0, lambda: RUNNING)) as client:
        assert client._base_url is not None and client._base_url.port is not None
        second = HealthServer("127.0.0.1", client._base_url.port, lambda: RUNNING)
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await second.close()


async def _metrics(render: Render | None) -> tuple[int, str, str]:
    server = HealthServer("127.0.0.1", 0, lambda: RUNNING, render=render)
    async with (
        started(server) as client,
        client.get("/metrics", headers={"Accept": "text/special"}) as response,
    ):
        return response.status, response.headers["Content-Type"], await response.text()


async def test_metrics_are_what_is_rendered_for_the_header() -> None:
    def render(accept: str) -> tuple[bytes, str]:
        return f"for {accept} in {threading.current_thread().name}".encode(), "text/x; version=7"

    text = "for text/special in metrics 1"
    assert await _metrics(render) == (200, "text/x; version=7", text)


async def test_many_scrapes_at_once_use_one_thread() -> None:
    names = set()

    def render(accept: str) -> tuple[bytes, str]:
        names.add(threading.current_thread().name)
        sleep(0.01)  # so that scrapes without turns would overlap
        return accept.encode(), "text/plain"

    server = HealthServer("127.0.0.1", 0, lambda: RUNNING, render=render)
    async with started(server) as client:

        async def scrape() -> int:
            async with client.get("/metrics") as response:
                return response.status

        assert await asyncio.gather(*(scrape() for _ in range(50))) == [200] * 50
    assert names == {"metrics 1"}


async def test_without_metrics_the_path_does_not_exist_and_an_error_is_one() -> None:
    status, _, text = await _metrics(None)
    assert status == 404
    assert "pip install 'cronledger[metrics]'" in text
    assert "CRONLEDGER_METRICS" in text

    def fail(accept: str) -> tuple[bytes, str]:
        raise RuntimeError(accept)

    assert (await _metrics(fail))[0] == 500
