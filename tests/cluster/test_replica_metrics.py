"""F68 /metrics of live replicas: what each end of an execution adds, and what a fault shows."""

import asyncio
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cronledger.declaring.app import App
from cronledger.engine.running.executor import Executor
from cronledger.metrics.measurements import OUTCOMES
from cronledger.testing import Ledger
from tests.cli.support.daemon import Run, Start, starter
from tests.cluster.support.live import live
from tests.cluster.support.proxy import Proxy
from tests.db.support.scrapes import Scrape
from tests.promtool import PROGRAM, complaints
from tests.waiting import eventually, until

SCOPES = [f"s{number}" for number in range(30)]
FUNCTIONS = """
import asyncio

async def succeeds():
    return

def fails():
    raise ValueError("no")

async def waits():
    await asyncio.Event().wait()
"""
JOBS = f"""
[jobs.succeeds]
python = "measured:succeeds"
queue = "heavy"
scope_kind = "tenant"
scopes = {SCOPES}

[jobs.fails]
python = "measured:fails"

[jobs.waits]
python = "measured:waits"
stale_timeout = "12s"

[jobs.commands]
command = ["true"]
"""


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """Start `cronledger run` with metrics, and jobs of each outcome."""
    (tmp_path / "measured.py").write_text(FUNCTIONS)
    (tmp_path / "jobs.toml").write_text(JOBS)
    with starter(
        tmp_path, "run",
        CRONLEDGER_DATABASE_URL=database_url, CRONLEDGER_HEALTH_PORT="0", CRONLEDGER_METRICS="true",
        CRONLEDGER_LOG_FORMAT="json", CRONLEDGER_QUEUES="default,heavy",
    ) as started:  # fmt: skip
        yield started


class Scraped:
    """What the last scrape of a process has returned."""

    def __init__(self, run: Run) -> None:
        self._url = f"http://127.0.0.1:{run.until_event('health_listening')['port']}/metrics"
        self.again()

    def again(self) -> "Scraped":
        with urllib.request.urlopen(self._url, timeout=90) as answer:
            self.text = answer.read()
        self.values = Scrape(self.text.decode())
        return self

    def series(self) -> set[tuple[str, ...]]:
        return {(name, *labels) for name, values in self.values.items() for labels in values}

    def value(self, name: str, *labels: str) -> float:
        """Return the value with these labels, in the order of their names."""
        return self.values[f"replica_{name}"][labels]

    def wait(self, name: str, *labels: str, look: Callable[[float], bool] = bool) -> None:
        """Scrape until `look` returns true for the value."""
        until(f"{name} {labels}", lambda: look(self.again().value(name, *labels)))

    def ended(self, outcome: str, queue: str = "default", handler: str = "python") -> float:
        return self.value("executions_total", handler, outcome, queue)

    def all_ended(self) -> float:
        return sum(self.values["replica_executions_total"].values())


def _run_waiting(ledger: Ledger) -> int:
    """Return the id of an execution of `waits`, once it runs."""
    found = ledger.trigger("waits")
    until("it runs", lambda: ledger.rows(
        "SELECT FROM executions WHERE id = %s AND status = 'RUNNING'", found
    ))  # fmt: skip
    return found


@pytest.mark.long
def test_each_end_of_an_execution_is_counted(start: Start, ledger: Ledger) -> None:
    run = start("jobs.toml")
    run.until_event("runner_started")
    metrics = Scraped(run)
    claims, series = metrics.value("claim_duration_seconds_count"), metrics.series()
    assert metrics.all_ended() == 0
    for scope in SCOPES:
        ledger.trigger("succeeds", scope_kind="tenant", scope_id=scope)
    ledger.trigger("fails")
    ledger.trigger("commands")
    until("all are counted", lambda: metrics.again().all_ended() == len(SCOPES) + 2)
    assert metrics.ended("success", queue="heavy") == len(SCOPES)
    assert metrics.ended("failed") == 1
    assert metrics.ended("success", handler="command") == 1
    durations = metrics.value("execution_duration_seconds_count", "python", "heavy")
    assert durations == len(SCOPES)
    assert metrics.value("claim_duration_seconds_count") > claims

    found = _run_waiting(ledger)
    # The replica starts it after the COMMIT that the ledger shows.
    metrics.wait("running", look=lambda x: x == 1)
    # A cancel is refused while a heartbeat has the row locked.
    until("its cancel is requested", lambda: ledger.rows(
        "SELECT cancel(%s) AS said", found
    ) == [{"said": "requested"}])  # fmt: skip
    until("the end by a cancel is counted", lambda: metrics.again().ended("cancelled") == 1)

    found = _run_waiting(ledger)
    ledger.rows("UPDATE executions SET lease_token = gen_random_uuid() WHERE id = %s", found)
    until("the lost lease is counted", lambda: metrics.again().ended("lost") == 1)
    assert metrics.value("leases_lost_total") == 1
    assert metrics.value("running") == 0

    if PROGRAM is not None:
        assert complaints(metrics.text) == ""
    # The number of series depends neither on jobs and scopes nor on what has happened. The skew of
    # the clock is known from the first check-in or claim on.
    skew = {("replica_clock_skew_seconds",)}
    assert metrics.series() - skew == series - skew
    assert not [text for text in (b"waits", b"tenant", SCOPES[7].encode()) if text in metrics.text]
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


@pytest.mark.long
def test_metrics_are_served_while_the_database_is_away(
    start: Start, ledger: Ledger, database_url: str
) -> None:
    with Proxy(database_url) as proxy:
        run = start("jobs.toml", CRONLEDGER_DATABASE_URL=proxy.dsn)
        run.until_event("runner_started")
        metrics = Scraped(run)
        assert metrics.value("database_reachable") == 1
        assert metrics.value("state", "running") == 1
        assert metrics.value("loop_errors_total", "check_in") == 0
        assert metrics.value("loop_errors_total", "heartbeats") == 0
        ledger.rows("UPDATE jobs SET stale_timeout = '6 s' WHERE name = 'waits'")
        _run_waiting(ledger)
        proxy.cut()
        metrics.wait("database_reachable", look=lambda x: x == 0)
        metrics.wait("loop_errors_total", "check_in")
        age = metrics.value("loop_age_seconds", "check_in")
        metrics.wait("loop_age_seconds", "check_in", look=lambda x: x > age)
        metrics.wait("loop_errors_total", "listener")
        metrics.wait("loop_errors_total", "heartbeats")
        metrics.wait("unwritten_outcomes", look=lambda x: x == 1)  # its lease has ended
        assert metrics.all_ended() == 0
        age = metrics.value("loop_age_seconds", "check_in")
        proxy.heal()
        until("the end is counted", lambda: metrics.again().all_ended() == 1)
        metrics.wait("unwritten_outcomes", look=lambda x: x == 0)
        metrics.wait("database_reachable")
        metrics.wait("loop_age_seconds", "check_in", look=lambda x: x < age)
        assert abs(metrics.value("clock_skew_seconds")) < 60


@pytest.mark.long
def test_metrics_are_served_while_the_start_waits_for_the_database(
    start: Start, database_url: str
) -> None:
    run = start("jobs.toml", "--wait", "60s", CRONLEDGER_DATABASE_URL=f"{database_url}&port=1")
    run.until_event("database_awaited")
    metrics = Scraped(run)
    assert metrics.value("state", "starting") == 1
    assert metrics.value("database_reachable") == 0
    assert {metrics.ended(outcome, queue="heavy") for outcome in OUTCOMES} == {0}
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


# -- in a program of one's own -------------------------------------------------------------------


def _counted(collector: Any, outcome: str) -> int:
    number: int = collector.read().measurements.attempts["default", "python"].outcomes[outcome]
    return number


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
async def test_an_execution_that_a_drain_releases_or_cannot_stop_is_counted_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "GRACE", 0.1)
    app, began, release = App("drained"), set[str](), threading.Event()

    @app.job(allow_stale_reentry=True)
    async def held() -> None:
        began.add("held")
        await asyncio.Event().wait()

    @app.job(allow_stale_reentry=True)
    def hangs() -> None:
        began.add("hangs")
        release.wait()

    replica = live(ledger, app)
    collector = replica.collector()
    try:
        await replica.start()
        for job in app.jobs:
            await asyncio.to_thread(ledger.trigger, job)
        await eventually("both run", lambda: began == {"held", "hangs"})
        report = await replica.drain(0)
        assert report.released == _counted(collector, "released") == 1
        assert report.unfinished == _counted(collector, "lost") == 1
    finally:
        release.set()
    counts = collector.read().measurements.attempts["default", "python"]
    assert sum(counts.outcomes.values()) == sum(counts.durations.counts) == 2
    assert counts.durations.sum > 0
    assert collector.read().state == "stopped"


@pytest.mark.long
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


@pytest.mark.long
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
