"""F72, F73: a rolling deploy as the units and the manifests do it, on processes."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.cli.support.daemon import Run
from tests.cluster.support.harness import ROOT, Cluster, instant
from tests.cluster.support.marks import VARIABLE
from tests.deploy.support.files import DEPLOY
from tests.processes import CRONLEDGER, clean_environ
from tests.systemd import Notifications
from tests.waiting import until

pytestmark = pytest.mark.slow

JOBS = """
import time
from cronledger import App, Context
from tests.cluster.support.jobs import say
app = App("rolling")

@app.job("* * * * * *", catch_up="all", grace="1h", overlap="allow")
async def short(ctx: Context) -> None:
    say("start", ctx)
    say("end", ctx)

@app.job("@every 1s", catch_up="all", grace="1h", overlap="allow")
def long(ctx: Context) -> None:
    say("start", ctx)
    time.sleep(1.5)
    say("end", ctx)
"""
NAMES = ("short", "long")


@dataclass
class Replica:
    """`cronledger run`, as a unit or a pod runs it."""

    run: Run
    systemd: Notifications
    name: str

    def ready(self) -> bool:
        """Return whether the readiness probe succeeds."""
        port = self.run.until_event("health_listening")["port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=90):
                return True
        except urllib.error.HTTPError as error:
            assert error.code == 503
            return False


class Deployment:
    """Replicas of versions, on one ledger."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._environ = clean_environ() | {
            "CRONLEDGER_DATABASE_URL": cluster.url, "CRONLEDGER_LOG_FORMAT": "json",
            "PYTHONPATH": str(ROOT), VARIABLE: str(directory / "marks"),
            "CRONLEDGER_HEALTH_PORT": "0",
        }  # fmt: skip
        self.replicas: list[Replica] = []
        self._count = 0

    def start(self, version: int) -> Replica:
        """Start a replica of a version in a directory of its own, with the same source."""
        self._count += 1
        name = f"v{version}-{self._count}"
        home = self._directory / name
        home.mkdir()
        (home / "rolling.py").write_text(JOBS)
        systemd = Notifications(str(home / "notify"))
        environ = {
            **self._environ, **systemd.variables(30), "CRONLEDGER_RUNNER_ID": name,
            "CRONLEDGER_DEPLOY": str(version),
        }  # fmt: skip
        run = Run(home, environ, "run", "rolling:app", "--no-migrate")
        self.replicas.append(Replica(run, systemd, name))
        return self.replicas[-1]

    def call(self, *arguments: str) -> str:
        """Run a command to its end, and return its output."""
        done = subprocess.run(
            [*CRONLEDGER, *arguments], env=self._environ, cwd=self._directory, timeout=120,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stop(self, replica: Replica, grace: float) -> None:
        """Send SIGTERM. The replica has to end by itself before SIGKILL would be sent."""
        replica.run.signal(signal.SIGTERM)
        assert replica.run.end(grace) == 0, replica.run.err
        self.replicas.remove(replica)
        replica.systemd.close()

    def worked(self, replica: Replica) -> bool:
        """Return whether the replica has run both jobs to their ends."""
        return set(NAMES) == {
            row["job_name"] for row in self._cluster.executions("SUCCESS")
            if row["runner_id"] == replica.name
        }  # fmt: skip

    def close(self) -> None:
        for replica in self.replicas:
            print(f"--- {replica.name}\n{replica.run.err}")
            replica.run.process.kill()
            replica.run.process.wait()
            replica.systemd.close()


@pytest.fixture
def deployment(cluster: Cluster, tmp_path: Path) -> Iterator[Deployment]:
    """The processes of one test. Those that still run at its end are killed."""
    made = Deployment(cluster, tmp_path)
    yield made
    made.close()


def pods(deployment: Deployment, old: Replica) -> None:
    """Replace a pod: with maxUnavailable 0, the new one is ready before the old one drains."""
    new = deployment.start(2)
    until("the readiness probe succeeds", new.ready)
    deployment.stop(old, grace_of_pods())


def units(deployment: Deployment, old: Replica) -> None:
    """Run `systemctl restart` on one host, which returns once the new process is READY."""
    deployment.stop(old, grace_of_units())
    deployment.start(2).systemd.until("READY")


def grace_of_pods() -> float:
    """Return the seconds between SIGTERM and SIGKILL of the manifests."""
    text = (DEPLOY / "kubernetes" / "base" / "replica.yaml").read_text("utf-8")
    replica, *_ = yaml.safe_load_all(text)
    return float(replica["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def grace_of_units() -> float:
    """Return the seconds between SIGTERM and SIGKILL of the unit."""
    lines = (DEPLOY / "systemd" / "cronledger.service").read_text("utf-8").splitlines()
    (seconds,) = [x.partition("=")[2] for x in lines if x.startswith("TimeoutStopSec=")]
    return float(seconds)


@pytest.mark.parametrize(
    "replace",
    [
        pytest.param(pods, id="f73_kubernetes"),
        pytest.param(units, id="f72_systemd"),
    ],
)
def test_a_rolling_deploy_misses_and_doubles_no_plan_time(
    replace: Callable[[Deployment, Replica], None], deployment: Deployment, cluster: Cluster
) -> None:
    old = [deployment.start(1) for _ in range(2)]
    for replica in old:
        until("version 1 works", partial(deployment.worked, replica))
    deployment.call("migrate", "--pre")
    for replica in old:
        replace(deployment, replica)
    deployment.call("migrate")
    for replica in (*deployment.replicas,):
        until("version 2 works", partial(deployment.worked, replica))
        deployment.stop(replica, 40)
    assert cluster.rows("SELECT deploy FROM cronledger.sources") == [2]
    assert_every_second_ran_once(cluster)
    checked = json.loads(deployment.call("verify", "--json"))
    assert checked["violations"] == []


def assert_every_second_ran_once(cluster: Cluster) -> None:
    """Assert it by the ledger, and by the lines that handlers wrote outside the database."""
    rows = cluster.executions()
    assert {(row["status"], row["attempt"]) for row in rows} == {("SUCCESS", 1)}
    assert cluster.rows("SELECT 1 FROM cronledger.skips") == []
    for what in ("start", "end"):
        lines = Counter((mark.job, instant(mark.plan_time)) for mark in cluster.marks(what))
        assert set(lines.values()) == {1}
        assert lines.keys() == {(row["job_name"], instant(row["plan_time"])) for row in rows}
    for job in NAMES:
        times = sorted(instant(row["plan_time"]) for row in rows if row["job_name"] == job)
        assert all(after - before == 1 for before, after in pairwise(times))
