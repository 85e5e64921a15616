"""LISTEN cannot connect, or idle connections are ended: work goes on, and the fault is visible."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cronledger.settings import LISTENING_POLL, POLL
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.cluster.support.proxy import Proxy
from tests.waiting import eventually


async def test_a_listen_that_is_lost_and_comes_back(ledger: Ledger) -> None:
    with Proxy(ledger.url) as proxy, capture_logs() as logged:
        async with live(ledger, listen_url=proxy.dsn) as listens:
            components = listens._runtime.components
            await eventually("it listens", lambda: components.poll() == LISTENING_POLL)
            trusted = components.clock.trusted_since
            proxy.cut()
            await eventually("it polls", lambda: components.poll() == POLL)
            await eventually("it is visible", lambda: "listen" in listens.health().failing)
            proxy.heal()
            await eventually("it listens again", lambda: components.poll() == LISTENING_POLL)
            assert listens.health().failing == {}
            assert components.clock.trusted_since == trusted
    *failed, restored = [x for x in logged if x["event"].startswith(("listen", "database"))]
    assert restored["event"] == "listen_restored"
    assert {x["event"] for x in failed} == {"listen_failed"}
    assert len({x["error"] for x in failed}) == len(failed)  # the end, and a refused connection


OURS = (
    " FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cronledger'"
)


async def _end_connections(ledger: Ledger) -> None:
    """Those of the pool are gone, while no step uses them."""
    (mine,) = ledger.rows("SELECT array_agg(pid) AS pids" + OURS)
    ledger.rows("SELECT pg_terminate_backend(pid)" + OURS)
    await eventually("they have ended", lambda: not ledger.rows(
        "SELECT 1" + OURS + " AND pid = ANY (%s)", mine["pids"]
    ))  # fmt: skip


@pytest.mark.long
async def test_connections_that_end_while_they_are_idle_cost_nothing(ledger: Ledger) -> None:
    """As an idle limit of a proxy does, or of a pooler, that our settings do not reach."""
    async with ledger.replica() as one:
        trusted = one._runtime.components.clock.trusted_since
        for _ in range(3):
            await _end_connections(ledger)
            await one.step()
        assert one._runtime.components.clock.trusted_since == trusted


async def test_another_server_process_costs_trust(ledger: Ledger) -> None:
    """Its clock may be another one, and it was away meanwhile."""
    async with ledger.replica() as one:
        pool, clock = one._runtime.pool, one._runtime.components.clock
        before, started = clock.trusted_since, pool.server_started
        assert started is not None
        one._runtime.pool.server_started = started - timedelta(days=1)
        await _end_connections(ledger)
        await one.step()
        since = one._runtime.components.clock.trusted_since
        assert before is not None and since is not None and before < since
        assert one._runtime.pool.server_started == started
