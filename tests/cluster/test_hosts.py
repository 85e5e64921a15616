"""F99: replica processes on hosts with different labels."""

from pathlib import Path

import pytest

from tests.cluster.support.harness import Cluster, Process, cronledger
from tests.processes import CRONLEDGER
from tests.waiting import until

EVERYWHERE = """
[jobs.everywhere]
schedule = "* * * * * *"
command = ["true"]
every = "role=web"
grace = "2s"
"""


@pytest.mark.slow
def test_a_job_runs_on_each_host_and_records_the_absence_of_one_F99(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two replicas of one host run each plan_time once, and a killed host is absent."""
    file = tmp_path / "cronledger.toml"
    file.write_text(EVERYWHERE)

    def start(host: str, labels: str, name: str) -> Process:
        """Start a replica as if on this host."""
        environ = {
            "CRONLEDGER_DATABASE_URL": cluster.url, "CRONLEDGER_LOG_FORMAT": "json",
            "CRONLEDGER_RUNNER_ID": name, "CRONLEDGER_HOST": host, "CRONLEDGER_LABELS": labels,
        }  # fmt: skip
        process = cluster.begin((*CRONLEDGER, "run", str(file)), environ)
        process.event("runner_started")
        return process

    start("db1", "role=db", "db1")
    start("web1", "role=web", "web1-a")
    start("web1", "role=web", "web1-b")
    gone = start("web2", "role=web", "web2")

    def ran_on() -> set[str]:
        return {row["scope_id"] for row in cluster.executions("SUCCESS")}

    until("both hosts with the label run the job", lambda: ran_on() == {"web1", "web2"})
    gone.kill()
    absences = "SELECT DISTINCT scope_id FROM cronledger.skips WHERE reason = 'host_absent'"
    until("others record that web2 is absent", lambda: cluster.rows(absences) == ["web2"])
    start("web2", "role=web", "web2-again")
    until("web2 runs the job again", lambda: "web2-again" in cluster.runners())
    for row in cluster.executions("SUCCESS"):
        assert row["runner_id"].startswith(row["scope_id"])
    verified = cronledger(cluster.url, tmp_path, "verify")
    assert verified.returncode == 0, verified.stdout
