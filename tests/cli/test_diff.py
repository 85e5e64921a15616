"""`jobs diff` and `jobs apply --dry-run`: what applying would do, without doing it."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import JOBS, Cli

UTC_JOBS = JOBS.replace("Europe/Berlin", "UTC")  # counts that no clock change moves
CHANGED = """
[jobs.hourly]
schedule = "30 */2 * * *"
grace = "5m"
command = ["true"]

[jobs.manual]
command = "echo $SECRET"
env = { SECRET = "hunter3" }

[jobs.nightly]
schedule = "0 3 * * *"
command = ["true"]
"""


@pytest.fixture
def applied(cli: Cli, surroundings: Path) -> Path:
    """The file whose jobs are in the ledger."""
    file = surroundings / "jobs.toml"
    file.write_text(UTC_JOBS)
    assert cli("jobs", "apply", "jobs.toml").exit_code == 0
    return file


def _everything(url: str) -> list[Any]:
    with psycopg.connect(url) as c:
        return [
            c.execute(f"SELECT t::text FROM cronledger.{table} t ORDER BY 1".encode()).fetchall()
            for table in ("jobs", "job_revisions", "schedules", "sources")
        ]


def test_a_diff_says_what_apply_then_does(cli: Cli, applied: Path, database_url: str) -> None:
    applied.write_text(CHANGED)
    before = _everything(database_url)
    said = cli("jobs", "diff", "jobs.toml", "--json", "--days", "2")
    dry = cli("jobs", "apply", "jobs.toml", "--dry-run", "--json")
    assert (said.exit_code, dry.exit_code) == (0, 0)
    assert _everything(database_url) == before
    found = json.loads(said.stdout)
    changed = {change["job"]: change["change"] for change in found["jobs"]}
    assert changed == {c["job"]: c["change"] for c in json.loads(dry.stdout)["jobs"]}
    changes = {change["job"]: change for change in found["jobs"]}
    shown = cli("jobs", "diff", "jobs.toml")
    lines = shown.stdout.splitlines()
    assert lines[0] == "changed hourly"
    assert "    grace: 1m -> 5m" in lines
    assert "    schedule: 0 * * * * -> 30 */2 * * *" in lines
    assert any(line.startswith("    - 168 in 7 d: ") for line in lines)
    assert "added nightly" in lines
    assert "retired tenants" in lines
    assert lines[-1] == "unchanged: 0"
    assert "hunter" not in shown.output
    did = json.loads(cli("jobs", "apply", "jobs.toml", "--json").stdout)
    for what in ("added", "changed", "retired"):
        assert did[what] == sorted(n for n, c in changes.items() if c["change"] == what)
    assert did["unchanged"] == found["unchanged"] == 0
    assert changes["hourly"]["fields"] == {
        "grace": ["1m", "5m"],
        "schedule": ["0 * * * *", "30 */2 * * *"],
    }
    assert "hunter" not in said.stdout
    assert list(changes["manual"]["fields"]) == ["target"]
    after = json.loads(cli("jobs", "diff", "jobs.toml", "--json").stdout)
    assert (after["jobs"], after["unchanged"]) == ([], 3)


def test_a_diff_hides_the_key_of_a_check(cli: Cli, applied: Path) -> None:
    check = "https://hc-ping.com/hunter2"
    ping = f'[jobs.hourly]\nping = "{check}"'
    applied.write_text(UTC_JOBS.replace("[jobs.hourly]", ping))
    shown = cli("jobs", "diff", "jobs.toml")
    assert "    ping: none -> https://hc-ping.com/***\n" in shown.stdout
    (change,) = json.loads(cli("jobs", "diff", "jobs.toml", "--json").stdout)["jobs"]
    assert change["fields"] == {"ping": [None, "https://hc-ping.com/***"]}
    assert cli("jobs", "apply", "jobs.toml").exit_code == 0
    applied.write_text(UTC_JOBS)
    assert "https://hc-ping.com/*** -> none" in cli("jobs", "diff", "jobs.toml").stdout


def test_a_diff_counts_the_occurrences_that_come_and_go(cli: Cli, applied: Path) -> None:
    applied.write_text(CHANGED)
    found = json.loads(cli("jobs", "diff", "jobs.toml", "--json", "--days", "2").stdout)
    hourly, manual, nightly, tenants = found["jobs"]
    assert (hourly["appear"]["count"], hourly["disappear"]["count"]) == (24, 48)
    assert len(hourly["appear"]["first"]) == 10
    assert {datetime.fromisoformat(at).minute for at in hourly["appear"]["first"]} == {30}
    assert {datetime.fromisoformat(at).minute for at in hourly["disappear"]["first"]} == {0}
    assert [manual[side]["count"] for side in ("appear", "disappear")] == [0, 0]
    assert (nightly["appear"]["count"], nightly["disappear"]["count"]) == (2, 0)
    assert (tenants["change"], tenants["appear"]["count"]) == ("retired", 0)
    assert tenants["disappear"]["count"] == 2
    (next_of_tenants,) = json.loads(
        cli("next", "tenants", "--count", "1", "--from", found["after"], "--json").stdout
    )
    assert tenants["disappear"]["first"][0] == next_of_tenants
    # Only the difference of two schedules is counted.
    applied.write_text(UTC_JOBS.replace('"0 * * * *"', '"0,30 * * * *"'))
    (hourly,) = json.loads(cli("jobs", "diff", "jobs.toml", "--json", "--days", "1").stdout)["jobs"]
    assert (hourly["appear"]["count"], hourly["disappear"]["count"]) == (24, 0)
    # In a pause nothing comes or goes.
    assert cli("jobs", "pause", "hourly").exit_code == 0
    assert cli("jobs", "pause", "tenants", "--until", "1d").exit_code == 0
    applied.write_text('[jobs.hourly]\nschedule = "* * * * *"\ncommand = ["true"]\n')
    found = json.loads(cli("jobs", "diff", "jobs.toml", "--json", "--days", "3").stdout)
    hourly, _, tenants = found["jobs"]
    assert [hourly[side]["count"] for side in ("appear", "disappear")] == [0, 0]
    assert tenants["disappear"]["count"] == 2


def test_a_limit_that_is_taken_away_shows(cli: Cli, applied: Path) -> None:
    applied.write_text(JOBS.replace("[jobs.hourly]", '[jobs.hourly]\nrun_timeout = "none"'))
    said = cli("jobs", "diff", "jobs.toml")
    assert "    run_timeout: 1h -> none" in said.stdout.splitlines()
    assert cli("jobs", "apply", "jobs.toml").exit_code == 0
    assert cli("jobs", "diff", "jobs.toml").stdout.splitlines()[-1] == "unchanged: 3"
    shown = cli("jobs", "show", "hourly").stdout.splitlines()
    assert ["run_timeout", "none"] in [line.split() for line in shown]
    assert json.loads(cli("jobs", "show", "hourly", "--json").stdout)["run_timeout"] is None


def test_a_diff_of_what_would_be_refused(cli: Cli, applied: Path, surroundings: Path) -> None:
    file = "jobs.toml"
    assert cli("jobs", "apply", file, "--deploy", "5").exit_code == 0
    older = cli("jobs", "diff", file, "--deploy", "4")
    assert older.exit_code == 1
    assert "deploy 4 is older, and deploy 5 was applied before" in older.stderr
    assert cli("jobs", "diff", file, "--deploy", "4", "--force").exit_code == 0
    (surroundings / "other.toml").write_text('[jobs.hourly]\ncommand = ["true"]\n')
    foreign = cli("jobs", "diff", "other.toml")
    assert foreign.exit_code == 2
    assert "belongs to the source" in foreign.stderr
    assert cli("jobs", "diff", file, "--days", "0").exit_code == 2


def test_a_diff_shows_a_filter_that_comes_or_goes(cli: Cli, applied: Path) -> None:
    table = "[jobs.hourly]\n"
    filtered = UTC_JOBS.replace(table, table + "max_attempts = 2\nretry_on = [7]\n")
    for text, fields in (
        (filtered, {"max_attempts": [1, 2], "retry_on": [None, ["7"]]}),
        (UTC_JOBS, {"max_attempts": [2, 1], "retry_on": [["7"], None]}),
    ):
        applied.write_text(text)
        (change,) = json.loads(cli("jobs", "diff", "jobs.toml", "--json").stdout)["jobs"]
        assert (change["job"], change["fields"]) == ("hourly", fields)
        assert cli("jobs", "apply", "jobs.toml").exit_code == 0
    assert json.loads(cli("jobs", "diff", "jobs.toml", "--json").stdout)["jobs"] == []
