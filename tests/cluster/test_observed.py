"""A replica beside another scheduler: it takes a job over, and gives it back."""

import subprocess
import threading
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from cronledger.audit.verify import verify
from cronledger.observing.spool import wall_clock
from tests.cluster.support.harness import Cluster
from tests.processes import CRONLEDGER, clean_environ
from tests.waiting import PATIENCE, until

PERIOD = 10  # seconds


class OtherScheduler(threading.Thread):
    """Starts `cronledger observe` at each plan_time, as a crontab does."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        super().__init__(daemon=True)
        self._command = [
            *CRONLEDGER, "observe", "seen", "--", "sh", "-c", f"echo ran >> {directory / 'lines'}"
        ]  # fmt: skip
        self._environ = {
            **clean_environ(), "CRONLEDGER_DATABASE_URL": cluster.url,
            "CRONLEDGER_SPOOL_DIR": str(directory / "spool"),
        }  # fmt: skip
        self._stopped = threading.Event()
        self.statuses: list[int] = []

    def run(self) -> None:
        processes = []
        at = wall_clock() // PERIOD * PERIOD + PERIOD
        while not self._stopped.wait(at - wall_clock()):
            processes.append(subprocess.Popen(self._command, env=self._environ))
            at += PERIOD
        self.statuses = [process.wait(PATIENCE) for process in processes]

    def stop(self) -> None:
        self._stopped.set()
        self.join(PATIENCE)


@pytest.mark.slow
def test_a_job_moves_to_replicas_and_back_while_both_schedulers_fire(
    cluster: Cluster, tmp_path: Path
) -> None:
    with psycopg.connect(cluster.url) as connection:
        connection.execute("CREATE TABLE public.lines (at timestamptz DEFAULT clock_timestamp())")
    (begun,) = cluster.rows(
        "INSERT INTO cronledger.jobs (name, handler, target, observed, schedule, grace)"
        " VALUES ('seen', 'sql', jsonb_build_object("
        "'sql', 'INSERT INTO public.lines DEFAULT VALUES'), true, '@every 10s', '9 s')"
        " RETURNING clock_timestamp()"
    )
    cluster.start("control")
    other = OtherScheduler(cluster, tmp_path)
    other.start()

    def lines() -> int:
        path = tmp_path / "lines"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def own() -> int:
        return len(cluster.rows("SELECT at FROM public.lines"))

    def switch(*options: str) -> None:
        (at,) = cluster.rows("SELECT (clock_timestamp() + interval '15 s')::text")
        command = [*CRONLEDGER, "adopt", "seen", "--at", at.replace(" ", "T"), *options]
        environ = {**clean_environ(), "CRONLEDGER_DATABASE_URL": cluster.url}
        subprocess.run(command, env=environ, check=True, timeout=PATIENCE)

    until("the other scheduler has run it", lambda: lines() >= 1, 10 * PATIENCE)
    switch()
    until("replicas have run it", lambda: own() >= 2, 10 * PATIENCE)
    before = lines()
    switch("--back")
    until("the other scheduler runs it again", lambda: lines() >= before + 2, 10 * PATIENCE)
    other.stop()
    assert set(other.statuses) == {0}
    cluster.drain()
    ran = cluster.rows(
        "SELECT plan_time, runner_id = 'observed' FROM cronledger.executions"
        " WHERE trigger = 'schedule' ORDER BY plan_time"
    )
    sides = [observed for _, observed in ran]
    assert (sides.count(True), sides.count(False)) == (lines(), own())
    assert len(cluster.executions()) == len(ran)
    # One run of each plan_time, on one side: the other scheduler, replicas, the other scheduler.
    plan_times = [plan_time for plan_time, _ in ran]
    assert {(b - a).seconds for a, b in pairwise(plan_times)} == {10}
    assert plan_times[0] > begun
    assert sum(a != b for a, b in pairwise(sides)) == 2
    # Before its first run and after its end, the other scheduler did not run what was due.
    between = "SELECT reason FROM cronledger.skips WHERE from_plan_time BETWEEN %s AND %s"
    assert cluster.rows(between, plan_times[0], plan_times[-1]) == []
    assert list(verify(cluster.url)) == []
