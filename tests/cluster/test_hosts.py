"""F98: replica processes on hosts with different labels."""

from pathlib import Path

import pytest

from tests.cluster.support.harness import Cluster, Process, cronledger
from tests.processes import CRONLEDGER
from tests.waiting import until

pytestmark = pytest.mark.long

JOBS = """
[jobs.anywhere]
schedule = "* * * * * *"
command = ["true"]

[jobs.on-web]
schedule = "* * * * * *"
command = ["true"]
on = "role=web"

[jobs.on-db1]
schedule = "* * * * * *"
command = ["true"]
on = "host=db1,role=db"

[jobs.nowhere]
schedule = "* * * * * *"
command = ["true"]
on = "role=cache"
"""


class Hosts:
    """Replicas that run one file, each as if on a host of its own."""

    def __init__(self, cluster: Cluster, file: Path) -> None:
        self._cluster = cluster
        self._file = file

    def start(self, host: str, labels: str, name: str | None = None, **more: str) -> Process:
        environ = {
            "CRONLEDGER_DATABASE_URL": self._cluster.url, "CRONLEDGER_LOG_FORMAT": "json",
            "CRONLEDGER_RUNNER_ID": name or host, "CRONLEDGER_HOST": host,
            "CRONLEDGER_LABELS": labels, **more,
        }  # fmt: skip
        process = self._cluster.begin((*CRONLEDGER, "run", str(self._file)), environ)
        process.event("runner_started")
        return process

    def ran(self) -> dict[str, set[str]]:
        """The runners of the executions of each job."""
        found: dict[str, set[str]] = {}
        for row in self._cluster.executions("SUCCESS"):
            found.setdefault(row["job_name"], set()).add(row["runner_id"])
        return found


def test_jobs_run_only_on_hosts_with_their_labels_F98(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "cronledger.toml"
    file.write_text(JOBS)
    hosts = Hosts(cluster, file)
    hosts.start("web1", "role=web")
    hosts.start("db1", "role=db")
    until("each job that has a host ran", lambda: len(hosts.ran()) == 3)
    until("db1 has a part in the job that runs anywhere", lambda: "db1" in hosts.ran()["anywhere"])
    ran = hosts.ran()
    assert ran["on-web"] == {"web1"}
    assert ran["on-db1"] == {"db1"}
    detail = until("the job that has no host is overdue", lambda: cluster.rows(
        "SELECT detail FROM cronledger.overdue WHERE job_name = 'nowhere'"))  # fmt: skip
    assert detail == [
        "no live runner has queue default and the labels role=cache;"
        " those with the queue have the labels host=db1,role=db; host=web1,role=web"
    ]
    hosts.start("cache1", "role=cache")
    until("the job runs on the new host", lambda: hosts.ran().get("nowhere") == {"cache1"})
    verified = cronledger(cluster.url, tmp_path, "verify")
    assert verified.returncode == 0, verified.stdout


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
    hosts = Hosts(cluster, file)
    hosts.start("db1", "role=db")
    hosts.start("web1", "role=web", "web1-a")
    hosts.start("web1", "role=web", "web1-b")
    gone = hosts.start("web2", "role=web")

    def ran_on() -> set[str]:
        return {row["scope_id"] for row in cluster.executions("SUCCESS")}

    until("both hosts with the label run the job", lambda: ran_on() == {"web1", "web2"})
    gone.kill()
    absences = "SELECT DISTINCT scope_id FROM cronledger.skips WHERE reason = 'host_absent'"
    until("others record that web2 is absent", lambda: cluster.rows(absences) == ["web2"])
    hosts.start("web2", "role=web", "web2-again")
    until("web2 runs the job again", lambda: "web2-again" in cluster.runners())
    for row in cluster.executions("SUCCESS"):
        assert row["runner_id"].startswith(row["scope_id"])
    verified = cronledger(cluster.url, tmp_path, "verify")
    assert verified.returncode == 0, verified.stdout


AT_BOOT = """
[jobs.warm]
schedule = "@reboot"
command = ["true"]
every = "role=web"
overlap = "allow"
"""


def test_each_boot_of_a_host_runs_a_job_once_F100(cluster: Cluster, tmp_path: Path) -> None:
    """Another replica of the same boot runs nothing."""
    file = tmp_path / "cronledger.toml"
    file.write_text(AT_BOOT)
    hosts = Hosts(cluster, file)

    def boot(host: str, name: str, id: str) -> Process:
        more = {"CRONLEDGER_BOOT_ID": id, "CRONLEDGER_POLL_INTERVAL": "1s"}
        return hosts.start(host, "role=web", name, **more)

    def ran() -> list[str]:
        return sorted(row["scope_id"] for row in cluster.executions("SUCCESS"))

    hosts.start("db1", "role=db")  # a boot before the job would not count
    first = boot("web1", "web1-a", "1")
    boot("web2", "web2", "1")
    until("both hosts run the job", lambda: ran() == ["web1", "web2"])
    boot("web1", "web1-b", "1")
    first.kill()
    boot("web1", "web1-c", "2")
    until("web1 runs the job again", lambda: ran() == ["web1", "web1", "web2"])
    said = {
        words: cronledger(cluster.url, tmp_path, *words.split())
        for words in ("verify", "why warm", "next warm --scope web1", "check cronledger.toml",
                      "forecast", "jobs list", "jobs show warm")
    }  # fmt: skip
    assert {words: one.stdout for words, one in said.items() if one.returncode} == {}
    assert "It runs at the next boot of web2." in said["why warm"].stdout
    assert said["next warm --scope web1"].stdout == "at the next boot of web1\n"
