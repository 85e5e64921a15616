"""F112: an upgrade of a filled ledger, under live replicas of an older wheel and of this tree."""

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.support.harness import Cluster, Process
from tests.cluster.support.outside_record import assert_every_plan_time_ran_once
from tests.cluster.support.versions_of_upgrade import Version, newer, older
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FILL = 300
JOBS = {"brief", "lasting"}


@pytest.fixture
def old(tmp_path: Path) -> Version:
    return older(tmp_path)


@pytest.fixture
def new(tmp_path: Path) -> Version:
    return newer(tmp_path)


@pytest.fixture
def cluster(old: Version, empty_database_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """Replicas on a ledger that the older version has created and filled."""
    done = old.call(empty_database_url, "migrate")
    assert done.returncode == 0, done.stderr
    with closing(Cluster(empty_database_url, tmp_path)) as made:
        made.rows(
            "INSERT INTO cronledger.jobs (name, handler, target)"
            """ VALUES ('filler', 'sql', '{"sql": "SELECT 1"}') RETURNING 1"""
        )
        enqueue(made)
        yield made


def enqueue(cluster: Cluster) -> None:
    cluster.rows("SELECT cronledger.enqueue('filler') FROM generate_series(1, %s)", FILL)


def start(cluster: Cluster, version: Version, name: str, deploy: int) -> Process:
    """Start a replica of a version, which does not migrate."""
    app = "tests.cluster.support.upgraded_app:upgraded"
    environ = {
        **version.variables, "CRONLEDGER_DATABASE_URL": cluster.url, "CRONLEDGER_RUNNER_ID": name,
        "CRONLEDGER_LOG_FORMAT": "json", "CRONLEDGER_DEPLOY": str(deploy),
    }  # fmt: skip
    replica = cluster.begin([*version.command, "run", app, "--no-migrate"], environ)
    replica.event("runner_started")
    return replica


def stop(replica: Process) -> None:
    replica.signal(signal.SIGTERM)
    assert replica.wait() == 0, replica.text()


def succeed_after(cluster: Cluster, name: str, version: str) -> None:
    """Wait until a replica has run all jobs to their ends, with plan_times from now on."""
    since = str(cluster.rows("SELECT clock_timestamp()::text")[0])

    def succeeded() -> bool:
        ran = cluster.rows(
            "SELECT DISTINCT job_name FROM cronledger.executions WHERE runner_id = %s"
            " AND status = 'SUCCESS' AND trigger = 'schedule' AND plan_time > %s::timestamptz",
            name, since,
        )  # fmt: skip
        return set(ran) == JOBS

    until(f"{name} of {version} works", succeeded)


def test_f112_an_upgrade_beside_live_replicas_misses_and_doubles_no_plan_time(
    cluster: Cluster, old: Version, new: Version
) -> None:
    def migrate(*arguments: str) -> None:
        done = new.call(cluster.url, "migrate", *arguments)
        assert done.returncode == 0, done.stderr

    olds = {name: start(cluster, old, name, 1) for name in ("old-1", "old-2")}
    for name in olds:
        succeed_after(cluster, name, "the older version")

    migrate("--pre")
    assert "upgraded" in cluster.rows("SELECT table_name FROM information_schema.views")
    enqueue(cluster)
    for name in olds:
        succeed_after(cluster, name, "the older version, on the newer schema")

    news = {name: start(cluster, new, name, 2) for name in ("new-1", "new-2")}
    for name in {**olds, **news}:
        succeed_after(cluster, name, "both versions")
    for replica in olds.values():
        stop(replica)

    migrate()
    refused = old.call(cluster.url, "migrate")
    assert (refused.returncode, "9999_post_upgrade" in refused.stderr) == (4, True)
    for name in news:
        succeed_after(cluster, name, "the newer version")
    until("the newer version ran the rest", lambda: filled(cluster) == {"SUCCESS": 2 * FILL})
    for replica in news.values():
        stop(replica)
    assert cluster.rows("SELECT 1 FROM cronledger.skips") == []
    assert_every_plan_time_ran_once(cluster)
    report = new.call(cluster.url, "verify", "--json")
    assert json.loads(report.stdout)["violations"] == []


def filled(cluster: Cluster) -> dict[str, int]:
    """Return how many executions of the ledger's filler have each status."""
    return dict(
        cluster.rows(
            "SELECT status, count(*) FROM cronledger.executions"
            " WHERE job_name = 'filler' GROUP BY status"
        )
    )
