"""`cronledger channels`, and how the other commands treat the jobs of channels."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.daemon import Start
from tests.cli.support.results import done, read, refused

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
    found = done(cli, "jobs", "apply", "jobs.toml")
    assert {"added channel ops", "added hourly"} <= {*found.stdout.splitlines()}
    return cli


def listed(cli: Cli) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in read(cli, "channels", "list")}


def test_channels_are_listed_apart_from_jobs_and_without_secrets(declared: Cli) -> None:
    found = listed(declared)
    assert {name: row["kind"] for name, row in found.items()} == {
        "broken": "command", "chat": "slack", "ops": "command"
    }  # fmt: skip
    assert "hunter2" not in str(found) + declared("channels", "list").stdout
    assert [job["name"] for job in read(declared, "jobs", "list")] == ["hourly"]


@pytest.mark.long
def test_a_test_message_is_delivered_or_its_error_is_shown(declared: Cli, start: Start) -> None:
    patient = ("--timeout", "10m")
    replica = start("jobs.toml", "--no-migrate")
    replica.until_event("runner_started")
    assert read(declared, "channels", "test", "ops", *patient)["delivered"] is True
    message = json.loads(Path("message.json").read_text())
    (alert,) = message["alerts"]
    assert (message["channel"], alert["event"], alert["kind"]) == ("ops", "test", "opened")
    assert alert["summary"].startswith("Test of the channel ops, requested by ")
    refused(
        declared("channels", "test", "broken", *patient),
        "the test message was not delivered: delivery_failed: ", "no route", code=1,
    )  # fmt: skip
    replica.signal(signal.SIGTERM)
    replica.end()
    (found,) = read(declared, "channels", "deliveries", "--status", "FAILED")
    assert (found["channel"], found["due_at"]) == ("broken", None)  # it is not retried
    assert "no route" in declared("channels", "deliveries", "broken").stdout
    refused(
        declared("channels", "retry", str(found["id"])),
        "it is a test, and only a FAILED delivery of alerts can be sent again", code=1,
    )  # fmt: skip


def test_a_channel_is_paused_and_resumed(declared: Cli) -> None:
    assert read(declared, "channels", "pause", "ops") == {"channel": "ops", "paused": True}
    assert "ops: was already paused" in declared("channels", "pause", "ops").stdout
    assert listed(declared)["ops"]["paused_at"] is not None
    assert "ops: resumed" in declared("channels", "resume", "ops").stdout
    assert listed(declared)["ops"]["paused_at"] is None
    for command in ("deliveries", "test", "pause"):
        refused(declared("channels", command, "opps"), "channel 'opps' does not exist")


def test_a_failed_delivery_is_listed_and_retried(declared: Cli, ask: Ask) -> None:
    ask(
        "INSERT INTO cronledger.deliveries (channel, status, due_at, attempt)"
        " VALUES ('ops', 'FAILED', NULL, 10)"
    )
    (row,) = read(declared, "channels", "deliveries", "ops")
    assert (row["status"], row["attempt"]) == ("FAILED", 10)
    assert "retried" in declared("channels", "retry", str(row["id"])).stdout
    (row,) = read(declared, "channels", "deliveries", "--status", "PENDING")
    assert (row["status"], row["attempt"]) == ("PENDING", 0)


def test_a_test_without_a_replica_ends(declared: Cli) -> None:
    found = read(declared, "channels", "test", "ops", "--timeout", "50ms", code=1)
    assert "no replica has started the delivery within --timeout" in str(found)
    assert listed(declared)["ops"]["delivery_status"] == "PENDING"


def test_a_diff_names_channels(declared: Cli, surroundings: Path) -> None:
    text = (FILE % surroundings).replace("/hunter2", "/hunter3")
    text = text.replace(
        '[channels.broken]\nkind = "command"\ncommand = "echo no route; exit 3"', ""
    )
    (surroundings / "jobs.toml").write_text(text)
    found = declared("jobs", "diff", "jobs.toml").stdout
    assert {"retired channel broken", "changed channel chat"} <= {*found.splitlines()}
    assert "hunter" not in found
    changes = read(declared, "jobs", "diff", "jobs.toml")["channels"]
    assert [change["channel"] for change in changes] == ["broken", "chat"]


def test_check_counts_channels_apart_from_jobs(bare: Cli, surroundings: Path) -> None:
    (surroundings / "jobs.toml").write_text(FILE % surroundings)
    found = done(bare, "check", "jobs.toml", "--strict", "--queue", "default")
    assert "1 job, 3 channels, 0 errors, 0 warnings" in found.stderr
    assert "alerts." not in found.output
    report = json.loads(bare("check", "jobs.toml", "--format", "json").stdout)
    assert [job["job"] for job in report["jobs"]] == ["hourly"]
    assert report["channels"][0] == {"source": "jobs.toml", "channel": "ops", "kind": "command"}


def test_check_warns_of_a_channel_that_no_checked_source_declares(bare: Cli) -> None:
    job = '[jobs.a]\ncommand = ["true"]\nnotify = "opps"\n'
    Path("jobs.toml").write_text(job)
    # Another source, which is not checked, may declare all channels.
    assert bare("check", "jobs.toml", "--strict").exit_code == 0
    Path("channels.toml").write_text('[channels.ops]\nkind = "python"\npython = "json:dumps"\n')
    found = done(bare, "check", "jobs.toml", "channels.toml")
    assert (
        'Warning: jobs.toml:3: jobs.a.notify = "opps": is a channel that no checked source '
        "declares; did you mean `ops`?" in found.stderr
    )
    Path("jobs.toml").write_text(job.replace("opps", "ops"))
    assert bare("check", "--strict", "jobs.toml", "channels.toml").exit_code == 0


def test_check_imports_the_function_of_a_channel(bare: Cli) -> None:
    text = '[channels.ops]\nkind = "python"\npython = "json:%s"\n'
    Path("jobs.toml").write_text(text % "dumsp")
    refused(bare("check", "jobs.toml"), "jobs.toml:3: channels.ops.python", "has no `dumsp`; did")
    assert bare("check", "--no-import", "jobs.toml").exit_code == 0
    Path("jobs.toml").write_text(text % "dumps")
    assert bare("check", "jobs.toml").exit_code == 0
