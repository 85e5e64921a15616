"""/healthz and /readyz: what each state answers."""

from dataclasses import replace

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
