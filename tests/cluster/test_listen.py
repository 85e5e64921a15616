"""LISTEN cannot connect, or idle connections are ended: work goes on, and the fault is visible."""

import json
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cronledger.settings import LISTENING_POLL, POLL
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.cluster.support.proxy import Proxy
from tests.waiting import eventually

CLOSED = "postgresql://127.0.0.1:1/nowhere"


@pytest.mark.long
async def test_without_listen_it_polls_as_often_as_it_is_told(ledger: Ledger) -> None:
    with capture_logs() as logged:
        async with live(ledger, listen_url=CLOSED) as polls:
            trusted = polls._runtime.components.clock.trusted_since
            listener = polls._runtime.components.listener
            assert listener is not None
            await eventually("it was tried again", lambda: listener.failures > 3)
            assert polls._runtime.components.clock.trusted_since == trusted
            assert polls._runtime.components.poll() == POLL
            health = polls.health()
            assert health.ready
            assert health.database == "ok"
            assert health.failing.keys() == {"listen"}
            assert "refused" in health.failing["listen"]
            assert (
                "refused"
                in json.loads(json.dumps(polls.diagnostics().as_json()))["failing"]["listen"]
            )
    events = [x["event"] for x in logged]
    assert events.count("listen_failed") == 1
    assert not {"database_unreachable", "step_failed"} & set(events)


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


@pytest.mark.long
async def test_connections_that_have_not_ended_are_kept(ledger: Ledger) -> None:
    pids = "SELECT array_agg(pid ORDER BY pid) AS pids" + OURS
    async with ledger.replica() as one:
        before = ledger.rows(pids)
        for _ in range(20):
            await one.step()
        assert ledger.rows(pids) == before


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
