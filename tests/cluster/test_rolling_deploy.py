"""F72, F73: a rolling deploy as the units and the manifests do it, on processes."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.cluster.support.harness import Cluster, cronledger
from tests.cluster.support.jobs import rolling
from tests.cluster.support.outside_record import assert_every_plan_time_ran_once
from tests.deploy.support.files import DEPLOY
from tests.processes import CRONLEDGER
from tests.systemd import Notifications
from tests.waiting import until

pytestmark = pytest.mark.slow


class Replica:
    """`cronledger run` of a version, as a unit or a pod runs it."""

    def __init__(self, cluster: Cluster, directory: Path, version: int, name: str) -> None:
        self.systemd = Notifications(str(directory / name))
        self._cluster = cluster
        self._name = name
        environ = {
            **self.systemd.variables(30), "CRONLEDGER_DATABASE_URL": cluster.url,
            "CRONLEDGER_LOG_FORMAT": "json", "CRONLEDGER_HEALTH_PORT": "0",
            "CRONLEDGER_RUNNER_ID": name, "CRONLEDGER_DEPLOY": str(version),
        }  # fmt: skip
        run = (*CRONLEDGER, "run", "tests.cluster.support.jobs:rolling", "--no-migrate")
        self._process = cluster.begin(run, environ)

    def ready(self) -> bool:
        """Return whether the readiness probe succeeds."""
        port = self._process.event("health_listening")["port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=90):
                return True
        except urllib.error.HTTPError as error:
            assert error.code == 503
            return False

    def stop(self, grace: float) -> None:
        """Send SIGTERM. The replica has to end by itself before SIGKILL would be sent."""
        self._process.signal(signal.SIGTERM)
        assert self._process.wait(grace) == 0, self._process.text()

    def worked(self) -> bool:
        """Return whether the replica has run all jobs to their ends."""
        ran = [x for x in self._cluster.executions("SUCCESS") if x["runner_id"] == self._name]
        return {row["job_name"] for row in ran} == rolling.jobs.keys()


Start = Callable[[int], Replica]


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Start a replica of a version."""
    replicas: list[Replica] = []

    def started(version: int) -> Replica:
        name = f"v{version}-{len(replicas)}"
        replicas.append(Replica(cluster, tmp_path, version, name))
        return replicas[-1]

    yield started
    for replica in replicas:
        replica.systemd.close()


def pods(start: Start, old: Replica) -> Replica:
    """Replace a pod: with maxUnavailable 0, the new one is ready before the old one drains."""
    new = start(2)
    until("the readiness probe succeeds", new.ready)
    old.stop(grace_of_pods())
    return new


def units(start: Start, old: Replica) -> Replica:
    """Run `systemctl restart` on one host, which returns once the new process is READY."""
    old.stop(grace_of_units())
    new = start(2)
    new.systemd.until("READY")
    return new


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
    "replace", [pytest.param(pods, id="f73_kubernetes"), pytest.param(units, id="f72_systemd")]
)
def test_a_rolling_deploy_misses_and_doubles_no_plan_time(
    replace: Callable[[Start, Replica], Replica], start: Start, cluster: Cluster, tmp_path: Path
) -> None:
    call = partial(cronledger, cluster.url, tmp_path)
    old = [start(1) for _ in range(2)]
    for replica in old:
        until("version 1 works", replica.worked)
    assert call("migrate", "--pre").returncode == 0
    new = [replace(start, replica) for replica in old]
    assert call("migrate").returncode == 0
    for replica in new:
        until("version 2 works", replica.worked)
        replica.stop(40)
    assert cluster.rows("SELECT deploy FROM cronledger.sources") == [2]
    assert cluster.rows("SELECT 1 FROM cronledger.skips") == []
    assert_every_plan_time_ran_once(cluster)
    assert json.loads(call("verify", "--json").stdout)["violations"] == []
