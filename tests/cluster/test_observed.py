"""A replica beside another scheduler, which is then replaced by it."""

import subprocess
import threading
from collections import Counter
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from cronledger.audit.verify import verify
from tests.cluster.support.harness import Cluster
from tests.processes import CRONLEDGER, clean_environ
from tests.waiting import PATIENCE, until

PERIOD = 2  # seconds
PREVENTED, DOUBLED, FIRED = 2, 4, 6


class OtherScheduler(threading.Thread):
    """Starts `cronledger observe` at each plan_time, as a crontab does. One run is prevented, and
    one is doubled."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._command = [
            *CRONLEDGER, "observe", "seen", "--", "sh", "-c", f"echo ran >> {directory / 'lines'}"
        ]  # fmt: skip
        self._environ = {
            **clean_environ(), "CRONLEDGER_DATABASE_URL": cluster.url,
            "CRONLEDGER_SPOOL_DIR": str(directory / "spool"),
        }  # fmt: skip
        self._stopped = threading.Event()
        self.fired = 0
        self.statuses: list[int] = []

    def run(self) -> None:
        processes = []
        while not self._stopped.wait(PERIOD):
            self.fired += 1
            for _ in range({PREVENTED: 0, DOUBLED: 2}.get(self.fired, 1)):
                processes.append(subprocess.Popen(self._command, env=self._environ))
        self.statuses = [process.wait(PATIENCE) for process in processes]

    def stop(self) -> None:
        self._stopped.set()
        self.join(PATIENCE)


@pytest.mark.slow
def test_a_job_is_observed_and_then_moved_while_it_fires(cluster: Cluster, tmp_path: Path) -> None:
    with psycopg.connect(cluster.url) as connection:
        connection.execute("CREATE TABLE public.lines (at timestamptz DEFAULT clock_timestamp())")
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, handler, schedule, grace)"
        " VALUES ('seen', 'observed', '@every 2s', '60 s') RETURNING name"
    )
    cluster.start("control")
    other = OtherScheduler(cluster, tmp_path)
    other.start()
    until("the other scheduler has fired", lambda: other.fired >= FIRED, 10 * PATIENCE)
    other.stop()
    assert set(other.statuses) == {0}
    moved: datetime
    (moved,) = cluster.rows(
        "UPDATE cronledger.jobs SET handler = 'sql', target = jsonb_build_object("
        "'sql', 'INSERT INTO public.lines DEFAULT VALUES') WHERE name = 'seen'"
        " RETURNING clock_timestamp()"
    )
    until("replicas fire it", lambda: len(cluster.rows("SELECT at FROM public.lines")) >= 3)
    cluster.drain()
    runs = len((tmp_path / "lines").read_text().splitlines())
    assert runs == FIRED  # one prevented, one doubled
    triggers = Counter(
        cluster.rows("SELECT trigger FROM cronledger.executions WHERE runner_id = 'observed'")
    )
    assert triggers.total() == runs
    fired = cluster.rows(
        "SELECT plan_time FROM cronledger.executions"
        " WHERE runner_id <> 'observed' AND status = 'SUCCESS'"
    )
    assert all(plan_time > moved for plan_time in fired)
    assert len(fired) == len(cluster.rows("SELECT at FROM public.lines"))
    assert list(verify(cluster.url)) == []
