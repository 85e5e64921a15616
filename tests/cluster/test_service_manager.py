"""F72: what `cronledger run` and `cronledger web` send to systemd, as processes."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cronledger.testing import Ledger
from tests.cli.support.daemon import Run
from tests.cluster.support.proxy import Proxy
from tests.processes import clean_environ
from tests.systemd import Notifications, listening
from tests.waiting import until

JOBS = """
import os
import time
from pathlib import Path
from cronledger import App
app = App("notifying")

@app.job()
async def hogs_the_loop():
    Path("began").touch()
    while not Path("release").exists():
        time.sleep(0.01)

@app.job()
def sleeps():
    Path("began").touch()
    while not Path("release").exists():
        time.sleep(0.01)
"""
FILE = """
[jobs.environment]
command = "env > environment"
"""
Start = Callable[..., Run]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Notifications]:
    """The socket of the unit."""
    with listening(str(tmp_path / "notify")) as made:
        yield made


@pytest.fixture
def start(tmp_path: Path, ledger: Ledger, systemd: Notifications) -> Iterator[Start]:
    """Return a function that starts a command in `tmp_path` as systemd does."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "cronledger.toml").write_text(FILE)
    started: list[Run] = []

    def begin(*arguments: str, **variables: str) -> Run:
        environ = {
            **clean_environ(), "CRONLEDGER_DATABASE_URL": ledger.url,
            "CRONLEDGER_LOG_FORMAT": "json", **systemd.variables(0.2), **variables,
        }  # fmt: skip
        started.append(Run(tmp_path, environ, *arguments))
        return started[-1]

    yield begin
    for run in started:
        run.process.kill()
        run.process.wait()


def test_a_replica_is_ready_after_its_first_check_in(
    start: Start, systemd: Notifications, ledger: Ledger
) -> None:
    with Proxy(ledger.url) as proxy:
        proxy.cut()
        run = start("run", "jobs:app", CRONLEDGER_DATABASE_URL=proxy.dsn)
        run.until_event("database_awaited")
        waits = until("it shows why it waits", lambda: [
            message for message in (systemd.new(), systemd.received)[1]
            if "unreachable" in message.get("STATUS", "")
        ])[0]  # fmt: skip
        assert int(waits["EXTEND_TIMEOUT_USEC"]) > 0
        assert not systemd.has("READY")
        assert ledger.rows("SELECT 1 FROM cronledger.runners") == []
        proxy.heal()
        systemd.until("READY")
        (runner,) = ledger.rows("SELECT state FROM cronledger.runners")
        assert runner["state"] == "running"
    assert sum("READY" in message for message in systemd.received) == 1


def test_no_watchdog_arrives_while_the_event_loop_is_blocked(
    start: Start, systemd: Notifications, ledger: Ledger, tmp_path: Path
) -> None:
    run = start("run", "jobs:app")
    systemd.until("READY")
    ledger.trigger("hogs_the_loop")
    until("the loop is blocked", (tmp_path / "began").exists)
    systemd.new()  # of the time before

    def blocked_for_a_second() -> bool:
        run.signal(signal.SIGUSR1)  # a thread of its own responds
        reports = [e for e in run.events() if e["event"] == "diagnostics_requested"]
        return any(x["age_s"] > 1 for e in reports for x in e["diagnostics"]["executions"])

    run.until(blocked_for_a_second)
    assert systemd.new() == []
    (tmp_path / "release").touch()
    until("it reports again", lambda: any("WATCHDOG" in message for message in systemd.new()))


def test_the_watchdog_of_systemd_leaves_stacks(
    start: Start, systemd: Notifications, ledger: Ledger, tmp_path: Path
) -> None:
    run = start("run", "jobs:app", PYTHONFAULTHANDLER="1")  # as in the unit
    systemd.until("READY")
    ledger.trigger("hogs_the_loop")
    until("the loop is blocked", (tmp_path / "began").exists)
    run.signal(signal.SIGABRT)
    assert run.end() == -signal.SIGABRT
    assert "in hogs_the_loop" in run.err


def test_a_drain_is_announced_before_it_ends(
    start: Start, systemd: Notifications, ledger: Ledger, tmp_path: Path
) -> None:
    run = start("run", "jobs:app", CRONLEDGER_DRAIN_TIMEOUT="10m")
    systemd.until("READY")
    ledger.trigger("sleeps")
    until("it runs", (tmp_path / "began").exists)
    run.signal(signal.SIGTERM)
    stopping = systemd.until("STOPPING")
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 600_000_000
    assert run.process.poll() is None
    until("it says so", lambda: any(
        "draining; 1 of" in message.get("STATUS", "")
        for message in (*systemd.new(), *systemd.received)
    ))  # fmt: skip
    systemd.new()
    until("the watchdog is served meanwhile", systemd.new)
    (tmp_path / "release").touch()
    assert run.end() == 0


def test_commands_do_not_inherit_the_socket(
    start: Start, systemd: Notifications, ledger: Ledger, tmp_path: Path
) -> None:
    start("run", "cronledger.toml")
    systemd.until("READY")
    ledger.trigger("environment")
    until("it ran", lambda: ledger.executions("environment")[0]["status"] == "SUCCESS")
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert "CRONLEDGER_JOB" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}


def test_the_page_is_ready_once_it_serves(start: Start, systemd: Notifications) -> None:
    run = start("web", "--listen", "127.0.0.1:0")
    systemd.until("READY")
    assert not systemd.has("STOPPING")
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert systemd.has("STOPPING")
