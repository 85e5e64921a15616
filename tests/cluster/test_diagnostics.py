"""F14 a live replica tells how it is: /diagnostics, `runners`, SIGUSR1. F23 `run --queue`."""

import asyncio
import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronledger.declaring.app import App
from cronledger.testing import Ledger
from tests.cli.support.daemon import Run, starter
from tests.cluster.support.live import live
from tests.waiting import eventually, until

pytestmark = pytest.mark.long

JOBS = """
import time
from pathlib import Path
from cronledger import App
app = App("blocking")

@app.job(queue="heavy", stale_timeout="6s")
async def hogs_the_loop():
    Path("began").touch()
    while not Path("release").exists():
        time.sleep(0.02)

@app.job()
def light():
    return
"""


@pytest.fixture
def run(tmp_path: Path, database_url: str) -> Iterator[Run]:
    (tmp_path / "jobs.py").write_text(JOBS)
    with starter(
        tmp_path, "run",
        CRONLEDGER_DATABASE_URL=database_url, CRONLEDGER_HEALTH_PORT="0",
        CRONLEDGER_LOG_FORMAT="json",
    ) as start:  # fmt: skip
        yield start("jobs:app", "--queue", "heavy", "--slots", "4")


async def test_what_a_replica_knows_of_itself(ledger: Ledger) -> None:
    app, release = App("seen"), asyncio.Event()

    @app.job(scope_kind="tenant", scopes=["acme"], stale_timeout="1h")
    async def held() -> None:
        await release.wait()

    async with live(ledger, app, poll_interval="100ms", slots=3) as replica:
        await asyncio.to_thread(ledger.trigger, "held", scope_kind="tenant", scope_id="acme")
        await eventually("it runs", lambda: replica.health().running)
        seen = replica.diagnostics()
        (active,) = seen.executions
        assert (active.job, active.scope_id, active.attempt) == ("held", "acme", 1)
        assert active.age_s >= 0
        assert 3000 < active.lease_left_s < 3600
        assert (seen.state, seen.database, seen.running, seen.slots) == ("running", "ok", 1, 3)
        assert seen.ticks > 0
        assert seen.won == 1
        assert (seen.lost_leases, seen.database_errors) == (0, 0)
        assert {"dispatcher", "finisher", "check_in", "sweeper"} <= seen.loops.keys()
        kept = await eventually("in runners", lambda: ledger.rows(
            "SELECT diagnostics AS d FROM runner_status WHERE diagnostics @> '{\"running\": 1}'"
        ))  # fmt: skip
        assert kept[0]["d"]["executions"][0]["execution_id"] == active.execution_id
        assert kept[0]["d"]["ticks"] > 0


async def test_the_lag_of_the_last_claim(ledger: Ledger) -> None:
    app = App("lagging")

    @app.job("* * * * *", catch_up="latest", grace="1h")
    def job() -> None:
        return

    async with ledger.replica(app) as replica:
        assert replica.diagnostics().lag_s is None
        now = ledger.travel(by="1m")
        ledger.travel(to=now.replace(second=42, microsecond=0))
        (ran,) = await replica.step()
        lag = replica.diagnostics().lag_s
        assert lag is not None
        assert ran.plan_time.second == 0
        assert 42 <= lag < 59


def test_diagnostics_by_signal_and_heartbeats_while_the_loop_is_blocked(
    run: Run, ledger: Ledger, tmp_path: Path
) -> None:
    """The replica serves one queue."""
    port = run.until_event("health_listening")["port"]
    run.until_event("runner_started")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/diagnostics", timeout=90) as answer:
        body = json.load(answer)
    assert (body["state"], body["slots"], body["executions"]) == ("running", 4, [])
    assert ledger.rows("SELECT queues, slots FROM runners") == [{"queues": ["heavy"], "slots": 4}]
    ledger.trigger("light")
    ledger.trigger("hogs_the_loop")
    until("the loop is blocked", (tmp_path / "began").exists)
    run.signal(signal.SIGUSR1)
    said = run.until_event("diagnostics_requested")
    (active,) = said["diagnostics"]["executions"]
    assert active["job"] == "hogs_the_loop"
    (main,) = [x for x in said["threads"] if x["thread"] == "MainThread"]
    assert any("hogs_the_loop" in place for place in main["stack"])
    assert {"cronledger dispatcher", "cronledger check_in"} <= {x["task"] for x in said["tasks"]}
    (dispatcher,) = [x for x in said["tasks"] if x["task"] == "cronledger dispatcher"]
    assert any("loops.py" in place for place in dispatcher["stack"])
    renewed = "SELECT FROM executions WHERE stale_after > started_at + interval '7 s'"
    until("its lease is renewed", lambda: ledger.rows(renewed))
    (tmp_path / "release").touch()
    until("heavy ran", lambda: ledger.executions("hogs_the_loop")[0]["status"] == "SUCCESS")
    assert ledger.executions("hogs_the_loop")[0]["attempt"] == 1
    assert ledger.executions("light")[0]["status"] == "PENDING"
    run.signal(signal.SIGTERM)
    assert run.end() == 0
