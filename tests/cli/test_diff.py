"""`jobs diff` and `jobs apply --dry-run`: what applying would do, without doing it."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import JOBS, Ask, Cli
from tests.cli.support.results import read, refused

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


def _everything(ask: Ask) -> list[Any]:
    return [
        ask(f"SELECT t::text FROM cronledger.{table} t ORDER BY 1")
        for table in ("jobs", "job_revisions", "schedules", "sources")
    ]


def test_a_diff_says_what_apply_then_does(cli: Cli, applied: Path, ask: Ask) -> None:
    applied.write_text(CHANGED)
    before = _everything(ask)
    found = read(cli, "jobs", "diff", "jobs.toml")
    dry = read(cli, "jobs", "apply", "jobs.toml", "--dry-run")
    changes = {change["job"]: change for change in found["jobs"]}
    would = {change["job"]: change["change"] for change in dry["jobs"]}
    assert would == {job: change["change"] for job, change in changes.items()}
    shown = cli("jobs", "diff", "jobs.toml")
    lines = shown.stdout.splitlines()
    assert lines[0] == "changed hourly"
    assert {
        "    grace: 1m -> 5m", "    schedule: 0 * * * * -> 30 */2 * * *", "added nightly",
        "retired tenants",
    } <= {*lines}  # fmt: skip
    assert any(line.startswith("    - 168 in 7 d: ") for line in lines)
    assert lines[-1] == "unchanged: 0"
    assert "hunter" not in shown.output + str(found)
    assert _everything(ask) == before
    did = read(cli, "jobs", "apply", "jobs.toml")
    for what in ("added", "changed", "retired"):
        assert did[what] == sorted(n for n, c in changes.items() if c["change"] == what)
    assert did["unchanged"] == found["unchanged"] == 0
    assert changes["hourly"]["fields"] == {
        "grace": ["1m", "5m"],
        "schedule": ["0 * * * *", "30 */2 * * *"],
    }
    assert list(changes["manual"]["fields"]) == ["target"]
    after = read(cli, "jobs", "diff", "jobs.toml")
    assert (after["jobs"], after["unchanged"]) == ([], 3)


def test_a_diff_counts_the_occurrences_that_come_and_go(cli: Cli, applied: Path) -> None:
    applied.write_text(CHANGED)
    found = read(cli, "jobs", "diff", "jobs.toml", "--days", "2")
    hourly, manual, nightly, tenants = found["jobs"]
    assert (hourly["appear"]["count"], hourly["disappear"]["count"]) == (24, 48)
    assert len(hourly["appear"]["first"]) == 10
    assert {datetime.fromisoformat(at).minute for at in hourly["appear"]["first"]} == {30}
    assert [manual[side]["count"] for side in ("appear", "disappear")] == [0, 0]
    assert (nightly["appear"]["count"], nightly["disappear"]["count"]) == (2, 0)
    assert (tenants["change"], tenants["appear"]["count"]) == ("retired", 0)
    assert tenants["disappear"]["count"] == 2
    (first,) = read(cli, "next", "tenants", "--count", "1", "--from", found["after"])
    assert tenants["disappear"]["first"][0] == first["plan_time"]
    # Only the difference of two schedules is counted, and in a pause nothing comes or goes.
    assert cli("jobs", "pause", "tenants", "--until", "1d").exit_code == 0
    applied.write_text('[jobs.hourly]\nschedule = "0,30 * * * *"\ncommand = ["true"]\n')
    hourly, _, tenants = read(cli, "jobs", "diff", "jobs.toml", "--days", "3")["jobs"]
    assert (hourly["appear"]["count"], hourly["disappear"]["count"]) == (72, 0)
    assert tenants["disappear"]["count"] == 2


def test_a_diff_of_what_would_be_refused(cli: Cli, applied: Path) -> None:
    file = "jobs.toml"
    assert cli("jobs", "apply", file, "--deploy", "5").exit_code == 0
    words = "deploy 4 is older, and deploy 5 was applied before"
    refused(cli("jobs", "diff", file, "--deploy", "4"), words, code=1)
    assert cli("jobs", "diff", file, "--deploy", "4", "--force").exit_code == 0
    Path("other.toml").write_text('[jobs.hourly]\ncommand = ["true"]\n')
    refused(cli("jobs", "diff", "other.toml"), "belongs to the source")
    refused(cli("jobs", "diff", file, "--days", "0"))


POLICIES: dict[str, tuple[str, str, Any]] = {
    'run_timeout = "none"': ("run_timeout", "    run_timeout: 1h -> none", ["1h", None]),
    "max_attempts = 2\nretry_on = [7]": ("retry_on", "    retry_on: none -> 7", [None, ["7"]]),
    'ping = "https://hc-ping.com/hunter2"': (
        "ping", "    ping: none -> https://hc-ping.com/***", [None, "https://hc-ping.com/***"],
    ),
}  # fmt: skip
"""Policies of `hourly`, and what a diff shows of them: a line, and a field in its JSON."""


@pytest.mark.long
def test_a_policy_that_comes_or_goes_is_shown_without_its_secret(cli: Cli, applied: Path) -> None:
    for policy, (name, line, values) in POLICIES.items():
        text = UTC_JOBS.replace("[jobs.hourly]", f"[jobs.hourly]\n{policy}")
        applied.write_text(text)
        assert line in cli("jobs", "diff", "jobs.toml").stdout.splitlines()
        for written, pair in ((text, values), (UTC_JOBS, values[::-1])):
            applied.write_text(written)
            (change,) = read(cli, "jobs", "diff", "jobs.toml")["jobs"]
            assert (change["job"], change["fields"][name]) == ("hourly", pair)
            assert cli("jobs", "apply", "jobs.toml").exit_code == 0
            assert read(cli, "jobs", "diff", "jobs.toml")["jobs"] == []
            shown = read(cli, "jobs", "show", "hourly")
            assert name == "ping" or shown[name] == pair[1]
