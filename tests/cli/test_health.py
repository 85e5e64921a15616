"""/healthz, /readyz and /metrics: what each state answers."""

import asyncio
import threading
from dataclasses import replace
from time import sleep

import aiohttp
import pytest

from cronledger.process.health import HealthServer
from cronledger.replica import Health

RUNNING = Health("running", "ok", None, None, 3, 10, 0.2)


@pytest.mark.parametrize(
    ("health", "healthz", "readyz"),
    [
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
    ],
    ids=str,
)
async def test_answers(health: Health, healthz: int, readyz: int) -> None:
    server = HealthServer("127.0.0.1", 0, lambda: health)
    port = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            for path, status in (("/healthz", healthz), ("/readyz", readyz)):
                async with client.get(path) as response:
                    body = await response.json()
                    assert response.status == status
                    assert body["state"] == health.state
                    assert body["database"] == health.database
                    assert body["stuck"] == health.stuck
                    assert body["failing"] == health.failing
            async with client.get("/") as response:
                assert response.status == 404
    finally:
        await server.close()


async def test_a_taken_port_is_an_error() -> None:
    first = HealthServer("127.0.0.1", 0, lambda: RUNNING)
    port = await first.start()
    second = HealthServer("127.0.0.1", port, lambda: RUNNING)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.close()
    await first.close()


async def _metrics(server: HealthServer) -> tuple[int, str, str]:
    port = await server.start()
    try:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
            client.get("/metrics", headers={"Accept": "text/special"}) as response,
        ):
            return response.status, response.headers["Content-Type"], await response.text()
    finally:
        await server.close()


async def test_metrics_are_what_is_rendered_for_the_header() -> None:
    def render(accept: str) -> tuple[bytes, str]:
        return f"for {accept} in {threading.current_thread().name}".encode(), "text/x; version=7"

    server = HealthServer("127.0.0.1", 0, lambda: RUNNING, render=render)
    text = "for text/special in metrics 1"
    assert await _metrics(server) == (200, "text/x; version=7", text)


async def test_many_scrapes_at_once_use_one_thread() -> None:
    names = set()

    def render(accept: str) -> tuple[bytes, str]:
        names.add(threading.current_thread().name)
        sleep(0.01)  # so that scrapes without turns would overlap
        return accept.encode(), "text/plain"

    server = HealthServer("127.0.0.1", 0, lambda: RUNNING, render=render)
    port = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

            async def scrape() -> int:
                async with client.get("/metrics") as response:
                    return response.status

            assert await asyncio.gather(*(scrape() for _ in range(50))) == [200] * 50
    finally:
        await server.close()
    assert names == {"metrics 1"}


async def test_without_metrics_the_path_does_not_exist() -> None:
    status, _, text = await _metrics(HealthServer("127.0.0.1", 0, lambda: RUNNING))
    assert status == 404
    assert "pip install 'cronledger[metrics]'" in text
    assert "CRONLEDGER_METRICS" in text


async def test_metrics_that_cannot_be_made_are_an_error() -> None:
    def render(accept: str) -> tuple[bytes, str]:
        raise RuntimeError(accept)

    server = HealthServer("127.0.0.1", 0, lambda: RUNNING, render=render)
    assert (await _metrics(server))[0] == 500
