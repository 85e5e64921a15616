"""`cronledger channels`, and how the other commands treat the jobs of channels."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.support.daemon import Run

FILE = """
[cronledger]
poll_interval = "500ms"

[channels.ops]
kind = "command"
command = "cp $CRONLEDGER_ALERTS_FILE message.json"
cwd = "%s"

[channels.broken]
kind = "command"
command = "echo no route; exit 3"

[channels.chat]
kind = "slack"
url = "https://hooks.example.org/hunter2"

[jobs.hourly]
schedule = "0 * * * *"
command = ["true"]
notify = "ops"
"""


@pytest.fixture
def declared(cli: Cli, surroundings: Path) -> Cli:
    (surroundings / "jobs.toml").write_text(FILE % surroundings)
    found = cli("jobs", "apply", "jobs.toml")
    assert found.exit_code == 0, found.output
    assert "added channel ops\n" in found.stdout
    assert "added hourly\n" in found.stdout
    return cli


def listed(cli: Cli) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(cli("channels", "list", "--json").stdout)}


def test_channels_are_listed_apart_from_jobs_and_without_secrets(declared: Cli) -> None:
    found = declared("channels", "list", "--json")
    assert {name: row["kind"] for name, row in listed(declared).items()} == {
        "broken": "command", "chat": "slack", "ops": "command"
    }  # fmt: skip
    shown = declared("channels", "list").stdout
    shown += declared("jobs", "show", "alerts.chat").stdout
    shown += declared("jobs", "show", "alerts.chat", "--json").stdout
    assert "hooks.example.org/***" in shown
    assert "hunter2" not in found.stdout + shown

    def names(*options: str) -> list[str]:
        return [job["name"] for job in json.loads(declared("jobs", "list", *options).stdout)]

    assert names("--json") == ["hourly"]
    assert names("--json", "--queue", "alerts") == ["alerts.broken", "alerts.chat", "alerts.ops"]


def test_without_channels_the_listing_is_empty(cli: Cli) -> None:
    assert cli("channels", "list", "--json").stdout == "[]\n"
    assert "[channels.NAME]" in cli("channels", "list").stderr


def test_a_test_message_is_delivered_or_its_error_is_shown(
    declared: Cli, surroundings: Path, database_url: str
) -> None:
    replica = Run(
        surroundings, {**os.environ, "CRONLEDGER_DATABASE_URL": database_url},
        "run", "jobs.toml", "--no-migrate",
    )  # fmt: skip
    patient = ("--timeout", "10m")
    try:
        replica.until_event("runner_started")
        sent = declared("channels", "test", "ops", "--json", *patient)
        assert sent.exit_code == 0, sent.output
        assert json.loads(sent.stdout)["delivered"] is True
        message = json.loads((surroundings / "message.json").read_text())
        (alert,) = message["alerts"]
        assert (message["channel"], alert["event"], alert["kind"]) == ("ops", "test", "opened")
        assert alert["summary"].startswith("Test of the channel ops, requested by ")
        failed = declared("channels", "test", "broken", *patient)
        assert failed.exit_code == 1
        assert "the test message was not delivered: delivery_failed: " in failed.stderr
        assert "no route" in failed.stderr
    finally:
        replica.signal(signal.SIGTERM)
        replica.end()
    rows = listed(declared)
    assert rows["ops"]["delivery_status"] == "SUCCESS"
    # It is not retried for hours.
    assert rows["broken"]["delivery_status"] == "CANCELLED"
    assert "delivery_failed" in rows["broken"]["delivery_error"]


def test_a_test_without_a_replica_ends_and_is_cancelled(declared: Cli) -> None:
    found = declared("channels", "test", "ops", "--timeout", "50ms", "--json")
    assert found.exit_code == 1
    assert "no replica has started the delivery within --timeout" in found.stdout
    assert listed(declared)["ops"]["delivery_status"] == "CANCELLED"
    found = declared("channels", "test", "opps")
    assert found.exit_code == 2
    assert "channel 'opps' does not exist" in found.stderr


def test_a_diff_names_channels(declared: Cli, surroundings: Path) -> None:
    text = (FILE % surroundings).replace("/hunter2", "/hunter3")
    text = text.replace(
        '[channels.broken]\nkind = "command"\ncommand = "echo no route; exit 3"', ""
    )
    (surroundings / "jobs.toml").write_text(text)
    found = declared("jobs", "diff", "jobs.toml").stdout
    assert "retired channel broken\n" in found
    assert "changed channel chat\n" in found
    assert "hunter" not in found
    changes = json.loads(declared("jobs", "diff", "jobs.toml", "--json").stdout)["jobs"]
    assert [change["channel"] for change in changes] == ["broken", "chat"]


def test_check_counts_channels_apart_from_jobs(bare: Cli, surroundings: Path) -> None:
    (surroundings / "jobs.toml").write_text(FILE % surroundings)
    found = bare("check", "jobs.toml", "--strict", "--queue", "default")
    assert found.exit_code == 0, found.output
    assert "1 job, 3 channels, 0 errors, 0 warnings" in found.stderr
    assert "alerts." not in found.output
    report = json.loads(bare("check", "jobs.toml", "--format", "json").stdout)
    assert [job["job"] for job in report["jobs"]] == ["hourly"]
    assert report["channels"][0] == {"source": "jobs.toml", "channel": "ops", "kind": "command"}


def test_check_warns_of_a_channel_that_no_checked_source_declares(
    bare: Cli, surroundings: Path
) -> None:
    job = '[jobs.a]\ncommand = ["true"]\nnotify = "opps"\n'
    (surroundings / "jobs.toml").write_text(job)
    # Another source, which is not checked, may declare all channels.
    assert bare("check", "jobs.toml", "--strict").exit_code == 0
    (surroundings / "channels.toml").write_text(
        '[channels.ops]\nkind = "python"\npython = "json:dumps"\n'
    )
    found = bare("check", "jobs.toml", "channels.toml")
    assert found.exit_code == 0
    assert (
        'Warning: jobs.toml:3: jobs.a.notify = "opps": is a channel that no checked source '
        "declares; did you mean `ops`?" in found.stderr
    )
    (surroundings / "jobs.toml").write_text(job.replace("opps", "ops"))
    assert bare("check", "--strict", "jobs.toml", "channels.toml").exit_code == 0


def test_check_finds_the_line_of_a_wrong_channel(bare: Cli, surroundings: Path) -> None:
    (surroundings / "jobs.toml").write_text('[channels.ops]\nkind = "slack"\nurl = "x"\n')
    found = bare("check", "jobs.toml")
    assert found.exit_code == 2
    assert "Error: jobs.toml:3: channels.ops.url: must begin with http" in found.stderr


def test_check_imports_the_function_of_a_channel(bare: Cli, surroundings: Path) -> None:
    text = '[channels.ops]\nkind = "python"\npython = "json:%s"\n'
    (surroundings / "jobs.toml").write_text(text % "dumsp")
    found = bare("check", "jobs.toml")
    assert found.exit_code == 2
    assert "jobs.toml:3: channels.ops.python: json:dumsp: module json has no `dumsp`; did" in (
        found.stderr.replace('"', "")
    )
    assert bare("check", "--no-import", "jobs.toml").exit_code == 0
    (surroundings / "jobs.toml").write_text(text % "dumps")
    assert bare("check", "jobs.toml").exit_code == 0


def test_an_app_is_applied_with_its_channels(cli: Cli, surroundings: Path) -> None:
    (surroundings / "shop_alerts.py").write_text(
        "from cronledger import App\nfrom cronledger.channels import Function\n"
        "app = App('shop', channels={'ops': Function(python='shop_alerts:deliver')})\n"
        "def deliver(message): ...\n"
        "@app.job('@hourly', notify='ops')\ndef report() -> None: ...\n"
    )
    assert cli("check", "--strict", "--queue", "default", "shop_alerts:app").exit_code == 0
    found = cli("jobs", "apply", "shop_alerts:app")
    assert found.stdout.splitlines() == ["added channel ops", "added report", "unchanged: 0"]
