"""F98, F99, F100, F120: labels and hosts on the command line."""

from pathlib import Path

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import read, refused

JOBS = """
[defaults]
on = "dc=fra"

[jobs.rotate]
schedule = "@hourly"
command = ["true"]
every = "role=web"

[jobs.report]
schedule = "@hourly"
command = ["true"]
"""


def test_a_file_that_is_applied_again_changes_nothing_F98(cli: Cli, surroundings: Path) -> None:
    file = surroundings / "jobs.toml"
    file.write_text(JOBS)
    assert cli("jobs", "apply", str(file)).exit_code == 0
    assert read(cli, "jobs", "apply", str(file))["unchanged"] == 2
    assert read(cli, "jobs", "show", "report")["on"] == ["dc=fra"]
    rotate = read(cli, "jobs", "show", "rotate")
    assert (rotate["every"], rotate["on"]) == (["role=web"], ["role=web"])
    file.write_text(JOBS.replace("dc=fra", "dc=ams"))
    changed = read(cli, "jobs", "apply", str(file))
    assert changed["changed"] == ["report"]


def test_hosts_are_listed_and_retired_F99(cli: Cli, ask: Ask) -> None:
    ask(
        "INSERT INTO cronledger.hosts (name, labels, present_from, present_through)"
        " VALUES ('web1', '{host=web1,role=web}', '2020-01-01', '2020-01-02')"
    )
    (row,) = read(cli, "hosts", "list")
    assert (row["name"], row["state"], row["runners"]) == ("web1", "absent", 0)
    assert cli("hosts", "retire", "web1").stdout == "web1 is retired\n"
    assert cli("hosts", "retire", "web1").stdout == "web1 was retired already\n"
    refused(cli("hosts", "retire", "web9"), "`cronledger hosts list`")
    verbs = [(x["verb"], x["object_kind"], x["outcome"]) for x in read(cli, "audit")]
    assert verbs.count(("retire_host", "host", "done")) == 1
    assert ("retire_host", "host", "refused") in verbs


@pytest.fixture
def on_hosts(cli: Cli, ask: Ask) -> Cli:
    """The cli with `rotate` on web1 and web2, and once on web3, which is retired."""
    Path("jobs.toml").write_text(JOBS)
    assert cli("jobs", "apply", "jobs.toml").exit_code == 0
    for host in ("web1", "web2", "web3"):
        ask(
            "INSERT INTO cronledger.schedules (job_name, scope_kind, scope_id, queue,"
            " planned_through, planned_revision, parked, retired_at)"
            " SELECT j.name, 'host', %s, j.queue, cronledger.db_now(), j.revision, 'unscheduled',"
            " CASE %s WHEN 'web3' THEN cronledger.db_now() END"
            " FROM cronledger.jobs j WHERE j.name = 'rotate'",
            host, host,
        )  # fmt: skip
    return cli


def test_a_backfill_runs_on_each_host_of_the_job_F120(on_hosts: Cli, ask: Ask) -> None:
    backfill = ("backfill", "rotate", "--from", "2h", "--to", "0s")
    planned = read(on_hosts, *backfill, "--dry-run")
    assert [(row["host"], row["action"]) for row in planned] == (
        [("web1", "make")] * 2 + [("web2", "make")] * 2
    )
    assert on_hosts(*backfill, "--dry-run").stdout.split()[0] == "HOST"
    made = read(on_hosts, *backfill, "--cap", "1")
    assert (made["hosts"], made["made"], made["remaining"]) == (["web1", "web2"], 2, 2)
    said = on_hosts(*backfill)
    assert said.stdout.startswith("hosts: web1, web2\nmade: 2\n"), said.output
    found = ask("SELECT scope_kind, scope_id, count(*) FROM cronledger.executions GROUP BY 1, 2")
    assert sorted(found) == [("host", "web1", 2), ("host", "web2", 2)]


def test_a_backfill_of_one_host_names_it_F120(on_hosts: Cli, ask: Ask) -> None:
    backfill = ("backfill", "rotate", "--from", "2h", "--to", "0s")
    assert read(on_hosts, *backfill, "--host", "web2")["hosts"] == ["web2"]
    assert ask("SELECT DISTINCT scope_id FROM cronledger.executions") == [("web2",)]
    assert read(on_hosts, *backfill, "--scope", "web2")["left_alone"] == 2
    for unknown in ("web3", "web9"):
        message = f"--host '{unknown}': job 'rotate' does not run on this host; use one of web1,"
        refused(on_hosts(*backfill, "--host", unknown), message)
    refused(on_hosts(*backfill, "--host", "web1", "--scope", "web1"), "--host excludes --scope")
    report = ("backfill", "report", "--from", "2h", "--to", "1h", "--host", "web1")
    refused(on_hosts(*report), "job 'report' has no hosts; omit --host")


def test_a_job_that_runs_at_boot_has_no_next_time_F100(on_hosts: Cli, ask: Ask) -> None:
    ask("UPDATE cronledger.jobs SET schedule = '@reboot' WHERE name = 'rotate'")
    ask(  # as a replica does that has planned it
        "UPDATE cronledger.schedules SET parked = 'boot', next_plan_time = NULL, next_due_at = NULL"
        " WHERE job_name = 'rotate'"
    )
    assert on_hosts("next", "rotate", "--scope", "web1").stdout == "at the next boot of web1\n"
    assert "It runs at the next boot of web2." in on_hosts("why", "rotate").stdout
