"""F72: what `cronledger run` and `cronledger web` send to systemd, as processes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronledger.testing import Ledger
from tests.cli.support.daemon import Start, starter
from tests.cluster.support.proxy import Proxy
from tests.systemd import Notifications, listening
from tests.waiting import until

pytestmark = pytest.mark.long

JOBS = """
import os
import time
from pathlib import Path
from cronledger import App
app = App("notifying")


@app.job()
def sleeps():
    Path("began").touch()
    while not Path("release").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Notifications]:
    """The socket of the unit."""
    with listening(str(tmp_path / "notify")) as made:
        yield made


@pytest.fixture
def start(tmp_path: Path, ledger: Ledger, systemd: Notifications) -> Iterator[Start]:
    """Return a function that starts a replica in `tmp_path` as systemd does."""
    (tmp_path / "jobs.py").write_text(JOBS)
    variables = {"CRONLEDGER_DATABASE_URL": ledger.url, "CRONLEDGER_LOG_FORMAT": "json"}
    variables |= systemd.variables(0.2)
    with starter(tmp_path, "run", signal.SIGKILL, **variables) as started:
        yield started


def test_a_replica_is_ready_after_its_first_check_in_and_announces_its_drain(
    start: Start, systemd: Notifications, ledger: Ledger, tmp_path: Path
) -> None:
    with Proxy(ledger.url) as proxy:
        proxy.cut()
        run = start("jobs:app", CRONLEDGER_DATABASE_URL=proxy.dsn, CRONLEDGER_DRAIN_TIMEOUT="10m")
        run.until_event("database_awaited")
        waits = until("it shows why it waits", lambda: _with_status(systemd, "unreachable"))[0]
        assert int(waits["EXTEND_TIMEOUT_USEC"]) > 0
        assert not systemd.has("READY")
        assert ledger.rows("SELECT 1 FROM cronledger.runners") == []
        proxy.heal()
        systemd.until("READY")
        assert ledger.rows("SELECT state FROM cronledger.runners") == [{"state": "running"}]
        ledger.trigger("sleeps")
        until("it runs", (tmp_path / "began").exists)
        run.signal(signal.SIGTERM)
        stopping = systemd.until("STOPPING")
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 600_000_000
        assert run.process.poll() is None
        until("it shows what runs", lambda: _with_status(systemd, "draining; 1 of"))
        systemd.new()
        until("the watchdog is served meanwhile", systemd.new)
        (tmp_path / "release").touch()
        assert run.end() == 0
    assert sum("READY" in message for message in systemd.received) == 1


def _with_status(systemd: Notifications, text: str) -> list[dict[str, str]]:
    """Return the messages so far whose status has this text."""
    systemd.new()
    return [message for message in systemd.received if text in message.get("STATUS", "")]


def test_the_page_is_ready_once_it_serves(
    tmp_path: Path, database_url: str, systemd: Notifications
) -> None:
    variables = {"CRONLEDGER_DATABASE_URL": database_url, **systemd.variables(0.2)}
    with starter(tmp_path, "web", signal.SIGKILL, **variables) as start:
        run = start("--listen", "127.0.0.1:0")
        systemd.until("READY")
        assert not systemd.has("STOPPING")
        run.signal(signal.SIGTERM)
        assert run.end() == 0
    assert systemd.has("STOPPING")
