"""F98, F99: labels and hosts on the command line."""

from pathlib import Path

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


def test_a_selector_with_a_mistake_is_refused_with_its_line_F98(
    cli: Cli, surroundings: Path
) -> None:
    file = surroundings / "jobs.toml"
    file.write_text(JOBS.replace("role=web", "web"))
    refused(cli("jobs", "apply", str(file)), "'web' is not a label; use KEY=VALUE")
    file.write_text(JOBS.replace('every = "role=web"', 'every = "role=web"\nscopes = ["a"]'))
    refused(cli("jobs", "apply", str(file)), "each host is a scope")


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
