"""F68 /metrics of live replicas: what an end of an execution adds, and what a fault shows."""

import asyncio
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cronledger.declaring.app import App
from cronledger.metrics.measurements import OUTCOMES
from cronledger.testing import Ledger
from tests.cli.support.daemon import Run, Start, starter
from tests.db.support.scrapes import Scrape
from tests.waiting import until

pytestmark = pytest.mark.long

SCOPES = [f"s{number}" for number in range(30)]
JOBS = f"""
[jobs.succeeds]
command = ["true"]
scope_kind = "tenant"
scopes = {SCOPES}
"""


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """Start `cronledger run` with metrics."""
    (tmp_path / "jobs.toml").write_text(JOBS)
    with starter(
        tmp_path, "run",
        CRONLEDGER_DATABASE_URL=database_url, CRONLEDGER_HEALTH_PORT="0", CRONLEDGER_METRICS="true",
        CRONLEDGER_LOG_FORMAT="json",
    ) as started:  # fmt: skip
        yield started


def scraped(run: Run) -> Scrape:
    url = f"http://127.0.0.1:{run.until_event('health_listening')['port']}/metrics"
    with urllib.request.urlopen(url, timeout=90) as answer:
        return Scrape(answer.read().decode())


def ended(metrics: Scrape, outcome: str) -> float:
    return metrics["replica_executions_total"]["command", outcome, "default"]


def series(metrics: Scrape) -> set[tuple[str, ...]]:
    """Return all but the skew of the clock, which is known from the first check-in or claim on."""
    found = {(name, *labels) for name, values in metrics.items() for labels in values}
    return found - {("replica_clock_skew_seconds",)}


def test_the_number_of_series_depends_neither_on_scopes_nor_on_what_has_happened(
    start: Start, ledger: Ledger
) -> None:
    run = start("jobs.toml")
    run.until_event("runner_started")
    before = scraped(run)
    assert ended(before, "success") == 0
    for scope in SCOPES:
        ledger.trigger("succeeds", scope_kind="tenant", scope_id=scope)
    until("all are counted", lambda: ended(scraped(run), "success") == len(SCOPES))
    after = scraped(run)
    claims = "replica_claim_duration_seconds_count"
    assert after.one(claims) > before.one(claims)
    assert series(after) == series(before)
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


def test_metrics_are_served_while_the_start_waits_for_the_database(
    start: Start, database_url: str
) -> None:
    run = start("jobs.toml", "--wait", "60s", CRONLEDGER_DATABASE_URL=f"{database_url}&port=1")
    run.until_event("database_awaited")
    metrics = scraped(run)
    assert metrics["replica_state"]["starting",] == 1
    assert metrics.one("replica_database_reachable") == 0
    assert {ended(metrics, outcome) for outcome in OUTCOMES} == {0}
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


# -- in a program of one's own -------------------------------------------------------------------


def _counted(collector: Any, outcome: str) -> int:
    number: int = collector.read().measurements.attempts["default", "python"].outcomes[outcome]
    return number


async def test_lateness_is_that_of_the_ledger(ledger: Ledger) -> None:
    app = App("late")

    @app.job("* * * * *", catch_up="all", overlap="wait", grace="1h")
    def job() -> None:
        return

    replica = ledger.replica(app)
    collector = replica.collector()
    async with replica:
        now = ledger.travel(by="3m")
        ledger.travel(to=now.replace(second=42, microsecond=0))
        ledger.trigger("job")  # a manual execution has no lateness
        ran = await replica.step()
    assert len(ran) >= 3
    (row,) = ledger.rows(
        "SELECT count(*) AS number, sum(extract(epoch FROM started_at - due_at))::float8 AS seconds"
        " FROM executions WHERE trigger = 'schedule'"
    )
    seen = collector.read().measurements
    assert sum(seen.lateness["default"].counts) == row["number"] == len(ran) - 1
    assert seen.lateness["default"].sum == pytest.approx(row["seconds"], abs=0.001)
    assert _counted(collector, "success") == len(ran)


async def test_the_skew_is_that_between_host_and_database(ledger: Ledger) -> None:
    replica = ledger.replica(App("skewed"))
    collector = replica.collector()
    assert collector.read().clock_skew is None
    async with replica:
        await replica.step()
        before = collector.read().clock_skew
        ledger.travel(by="1h")
        await replica.step()
        after = collector.read().clock_skew
    assert before is not None
    assert after is not None
    assert round((after - before) / 60) == -60


async def test_an_outcome_that_the_ledger_refuses_is_lost(ledger: Ledger) -> None:
    app = App("refused")

    @app.job()
    async def robbed() -> None:
        await asyncio.to_thread(
            ledger.rows, "UPDATE executions SET lease_token = gen_random_uuid()"
        )

    replica = ledger.replica(app)
    collector = replica.collector()
    async with replica:
        ledger.trigger("robbed")
        await replica.step()
    assert (_counted(collector, "lost"), _counted(collector, "success")) == (1, 0)
    assert collector.read().leases_lost == 1


async def test_a_replica_without_a_collector_counts_nothing(ledger: Ledger) -> None:
    app = App("uncounted")

    @app.job()
    def job() -> None:
        return

    async with ledger.replica(app) as replica:
        ledger.trigger("job")
        assert await replica.step()
        assert replica._runtime.measuring.measurements is None
        collector = replica.collector()
        ledger.trigger("job")
        assert await replica.step()
        assert _counted(collector, "success") == 1
