"""F68 /metrics of live replicas: what each end of an execution adds, and what a fault shows."""

import asyncio
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from cronledger import extras
from cronledger.cli import main
from cronledger.declaring.app import App
from cronledger.engine.running.executor import Executor
from cronledger.metrics.measurements import OUTCOMES
from cronledger.process import daemon
from cronledger.testing import Ledger
from tests.cli.support.daemon import Run
from tests.cluster.support.live import live
from tests.cluster.support.proxy import Proxy
from tests.processes import CRONLEDGER, clean_environ
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
WITHOUT = (
    "import sys; sys.modules['prometheus_client'] = None; from cronledger.cli import main; main()"
)
Start = Callable[..., Run]
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """Start `cronledger run` with metrics, and jobs of each outcome."""
    (tmp_path / "measured.py").write_text(FUNCTIONS)
    (tmp_path / "jobs.toml").write_text(JOBS)
    runs = []

    def begin(*arguments: str, program: tuple[str, ...] = CRONLEDGER, **variables: str) -> Run:
        environ = clean_environ() | {
            "CRONLEDGER_DATABASE_URL": database_url, "CRONLEDGER_HEALTH_PORT": "0",
            "CRONLEDGER_LOG_FORMAT": "json", "CRONLEDGER_METRICS": "true",
            "CRONLEDGER_QUEUES": "default,heavy", **variables,
        }  # fmt: skip
        run = Run(tmp_path, environ, "run", "jobs.toml", *arguments, program=program)
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.process.kill()
        run.process.wait()


class Scraped:
    """What the last scrape of a process has returned."""

    def __init__(self, run: Run) -> None:
        self._url = f"http://127.0.0.1:{run.until_event('health_listening')['port']}/metrics"
        self.text = b""
        self.series: Series = {}

    def again(self) -> "Scraped":
        with urllib.request.urlopen(self._url, timeout=90) as answer:
            self.text = answer.read()
        self.series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text.decode())
            for sample in family.samples
        }
        return self

    def value(self, name: str, **labels: str) -> float:
        return self.series[f"cronledger_replica_{name}", frozenset(labels.items())]

    def ended(self, outcome: str, queue: str = "default", handler: str = "python") -> float:
        return self.value("executions_total", queue=queue, handler=handler, outcome=outcome)

    def all_ended(self) -> float:
        return sum(v for (name, _), v in self.series.items() if name.endswith("executions_total"))


def _run_waiting(ledger: Ledger) -> int:
    """Return the id of an execution of `waits`, once it runs."""
    found = ledger.trigger("waits")
    until("it runs", lambda: ledger.rows(
        "SELECT FROM executions WHERE id = %s AND status = 'RUNNING'", found
    ))  # fmt: skip
    return found


def test_each_end_of_an_execution_is_counted(start: Start, ledger: Ledger) -> None:
    run = start()
    run.until_event("runner_started")
    metrics = Scraped(run).again()
    before, names = dict(metrics.series), set(metrics.series)
    assert metrics.all_ended() == 0
    for scope in SCOPES:
        ledger.trigger("succeeds", scope_kind="tenant", scope_id=scope)
    ledger.trigger("fails")
    ledger.trigger("commands")
    until("all are counted", lambda: metrics.again().all_ended() == len(SCOPES) + 2)
    assert metrics.ended("success", queue="heavy") == len(SCOPES)
    assert metrics.ended("failed") == 1
    assert metrics.ended("success", handler="command") == 1
    durations = metrics.value("execution_duration_seconds_count", queue="heavy", handler="python")
    assert durations == len(SCOPES)
    claims = metrics.value("claim_duration_seconds_count")
    assert claims > before["cronledger_replica_claim_duration_seconds_count", frozenset()]

    found = _run_waiting(ledger)
    # The replica starts it after the COMMIT that the ledger shows.
    until("it is counted as running", lambda: metrics.again().value("running") == 1)
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
    skew = {("cronledger_replica_clock_skew_seconds", frozenset[tuple[str, str]]())}
    assert metrics.series.keys() - skew == names - skew
    assert not [text for text in (b"waits", b"tenant", SCOPES[7].encode()) if text in metrics.text]
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


def test_metrics_are_served_while_the_database_is_away(
    start: Start, ledger: Ledger, database_url: str
) -> None:
    with Proxy(database_url) as proxy:
        run = start(CRONLEDGER_DATABASE_URL=proxy.dsn)
        run.until_event("runner_started")
        metrics = Scraped(run).again()
        assert metrics.value("database_reachable") == 1
        assert metrics.value("state", state="running") == 1
        assert metrics.value("loop_errors_total", loop="check_in") == 0
        assert metrics.value("loop_errors_total", loop="heartbeats") == 0
        _run_waiting(ledger)
        proxy.cut()
        until("it is away", lambda: metrics.again().value("database_reachable") == 0)
        until("errors are counted", lambda: metrics.again().value(
            "loop_errors_total", loop="check_in"
        ))  # fmt: skip
        age = metrics.value("loop_age_seconds", loop="check_in")
        until("the age grows", lambda: metrics.again().value(
            "loop_age_seconds", loop="check_in"
        ) > age)  # fmt: skip
        until("no LISTEN", lambda: metrics.again().value("loop_errors_total", loop="listener"))
        until("no heartbeat", lambda: metrics.again().value(
            "loop_errors_total", loop="heartbeats"
        ))  # fmt: skip
        until("its lease has ended, and the outcome waits", lambda: metrics.again().value(
            "unwritten_outcomes"
        ) == 1)  # fmt: skip
        assert metrics.all_ended() == 0
        age = metrics.value("loop_age_seconds", loop="check_in")
        proxy.heal()
        until("the end is counted", lambda: metrics.again().all_ended() == 1)
        until("it does not wait", lambda: metrics.again().value("unwritten_outcomes") == 0)
        until("it is back", lambda: metrics.again().value("database_reachable") == 1)
        until("the loop steps", lambda: metrics.again().value(
            "loop_age_seconds", loop="check_in"
        ) < age)  # fmt: skip
        assert abs(metrics.value("clock_skew_seconds")) < 60


def test_metrics_are_served_while_the_start_waits_for_the_database(
    start: Start, database_url: str
) -> None:
    run = start("--wait", "60s", CRONLEDGER_DATABASE_URL=f"{database_url}&port=1")
    run.until_event("database_awaited")
    metrics = Scraped(run).again()
    assert metrics.value("state", state="starting") == 1
    assert metrics.value("database_reachable") == 0
    assert {metrics.ended(outcome, queue="heavy") for outcome in OUTCOMES} == {0}
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


def test_without_the_extra_or_a_port_run_refuses_to_start(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "configure", lambda *_: None)  # the logs of this process
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", database_url)
    monkeypatch.setenv("CRONLEDGER_METRICS", "true")
    said = CliRunner().invoke(main, ["run"])
    assert said.exit_code == 2 and "CRONLEDGER_HEALTH_PORT" in said.stderr
    monkeypatch.setenv("CRONLEDGER_HEALTH_PORT", "0")
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    said = CliRunner().invoke(main, ["run"])
    assert said.exit_code == 2 and "CRONLEDGER_METRICS" in said.stderr
    assert "pip install 'cronledger[metrics]'" in said.stderr


def test_without_the_setting_the_path_does_not_exist(start: Start) -> None:
    run = start(program=(sys.executable, "-c", WITHOUT), CRONLEDGER_METRICS="false")
    run.until_event("runner_started")
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        Scraped(run).again()
    assert "cronledger[metrics]" in refused.value.read().decode()


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


async def test_a_release_at_the_drain_is_counted(ledger: Ledger) -> None:
    app, began = App("drained"), asyncio.Event()

    @app.job(allow_stale_reentry=True)
    async def held() -> None:
        began.set()
        await asyncio.Event().wait()

    replica = live(ledger, app, poll_interval="100ms")
    collector = replica.collector()
    await replica.start()
    await asyncio.to_thread(ledger.trigger, "held")
    await began.wait()
    report = await replica.drain(0)
    assert report.released == _counted(collector, "released") == 1
    assert collector.read().state == "stopped"
    assert collector.read().measurements.attempts["default", "python"].durations.sum > 0


async def test_an_outcome_that_the_ledger_refuses_is_lost(ledger: Ledger) -> None:
    app, began, release = App("refused"), asyncio.Event(), asyncio.Event()

    @app.job()
    async def held() -> None:
        began.set()
        await release.wait()

    replica = live(ledger, app, poll_interval="100ms")
    collector = replica.collector()
    async with replica:
        await asyncio.to_thread(ledger.trigger, "held")
        await began.wait()
        await asyncio.to_thread(
            ledger.rows, "UPDATE executions SET lease_token = gen_random_uuid()"
        )
        release.set()
        await eventually("it is counted", lambda: _counted(collector, "lost"))
        assert _counted(collector, "success") == 0
        assert collector.read().leases_lost == 1


async def test_a_handler_that_does_not_end_is_lost_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "GRACE", 0.1)
    app, began, release = App("hanging"), threading.Event(), threading.Event()

    @app.job(allow_stale_reentry=True)
    def hangs() -> None:
        began.set()
        release.wait()

    replica = live(ledger, app, poll_interval="100ms")
    collector = replica.collector()
    try:
        await replica.start()
        await asyncio.to_thread(ledger.trigger, "hangs")
        await asyncio.to_thread(began.wait)
        report = await replica.drain(0)
        assert report.unfinished == _counted(collector, "lost") == 1
    finally:
        release.set()
    counts = collector.read().measurements.attempts["default", "python"]
    assert sum(counts.outcomes.values()) == sum(counts.durations.counts) == 1


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
