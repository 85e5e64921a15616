"""Listings: a table for people, JSON for programs."""

from datetime import datetime

from tests.cli.conftest import Cli
from tests.cli.support.results import read, refused


def instant(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


def test_an_empty_ledger(cli: Cli) -> None:
    for arguments in (["jobs", "list"], ["executions", "list"], ["runners"], ["channels", "list"]):
        assert read(cli, *arguments) == []
        said = cli(*arguments)
        assert (said.exit_code, said.stdout) == (0, "")
        assert "there are no" in said.stderr


def test_jobs(filled: Cli) -> None:
    jobs = {job["name"]: job for job in read(filled, "jobs", "list")}
    assert list(jobs) == ["hourly", "manual", "tenants"]
    assert jobs["tenants"]["scopes"] == 2
    hourly = jobs["hourly"]
    assert (hourly["state"], hourly["running"], hourly["last_status"]) == ("active", 1, "RUNNING")
    assert instant(hourly["last_plan_time"])
    assert read(filled, "jobs", "list", "--queue", "other") == []
    table = filled("jobs", "list").stdout.splitlines()
    assert table[0].split()[:3] == ["JOB", "SCHEDULE", "ZONE"]
    assert table[1].startswith("hourly   0 * * * *")
    filled("jobs", "pause", "hourly")
    filled("jobs", "remove", "manual")
    for action, state in (("resume", "active"), ("pause", "queue_paused")):
        assert filled("queues", action, "default").exit_code == 0
        states = {job["name"]: job["state"] for job in read(filled, "jobs", "list", "--all")}
        assert states == {"hourly": "paused", "manual": "retired", "tenants": state}
    assert read(filled, "jobs", "show", "tenants")["state"] == "queue_paused"
    assert [job["name"] for job in read(filled, "jobs", "list")] == ["hourly", "tenants"]


def test_one_job(filled: Cli) -> None:
    job = read(filled, "jobs", "show", "hourly")
    assert (job["schedule"], job["grace"], job["retry_backoff"]) == (
        "0 * * * *", "1m", ["1m", "5m", "15m"],
    )  # fmt: skip
    assert [scope["last_id"] for scope in job["schedules"]] == [3]
    assert [revision["revision"] for revision in job["revisions"]] == [1]
    assert instant(job["revisions"][0]["effective_from"])
    shown = filled("jobs", "show", "tenants").stdout
    assert "tenant/acme" in shown
    assert "tenant/globex" in shown
    for job in ("tenants", "manual"):  # their targets have secrets
        for form in ([], ["--json"]):
            said = filled("jobs", "show", job, *form).output
            assert ("hunter2" in said, "***" in said) == (False, True)


def test_executions(filled: Cli) -> None:
    rows = read(filled, "executions", "list")
    assert [(row["id"], row["status"]) for row in rows] == [
        (3, "RUNNING"), (2, "FAILED"), (1, "SUCCESS"),
    ]  # fmt: skip
    assert instant(rows[0]["plan_time"]) > instant(rows[1]["plan_time"])
    assert "error_code" in rows[1]

    for options, ids in {
        "--status failed": [2], "--status FAILED --status SUCCESS": [2, 1],
        "--job hourly --limit 1": [3], "--job manual": [],
        "--scope global": [3, 2, 1], "--scope acme": [],
        "--since 90m": [3, 2], "--until 90m": [1],
        "--since 2000-01-01 --until 2000-01-02T00:00:00Z": [],
        f"--runner {rows[0]['runner_id']}": [3, 2, 1], "--runner nobody": [],
    }.items():  # fmt: skip
        found = read(filled, "executions", "list", *options.split())
        assert [row["id"] for row in found] == ids, options
    headings = filled("executions", "list").stdout.splitlines()[0].split()
    assert {"RUNNER", "QUEUE", "FINISHED"} <= set(headings)
    for option in ("--since", "--until"):
        for value in ("yesterday", "2026-13-01", "999999999d"):
            refused(filled("executions", "list", option, value), option, value)


def test_one_execution(filled: Cli) -> None:
    row = read(filled, "executions", "show", "2")
    assert (row["status"], row["error_code"], row["attempts"]) == ("FAILED", "exit_code", [])
    assert "exit_code" in filled("executions", "show", "2").stdout
    assert filled("executions", "output", "1").stdout == "line 1\nline 2\n"
    assert read(filled, "executions", "output", "1")["output"] == "line 1\nline 2"
    said = filled("executions", "output", "2")
    assert (said.exit_code, said.stdout) == (0, "")
    assert "no stored output" in said.stderr
    for command in ("show", "output"):
        refused(filled("executions", command, "99"), "execution 99 does not exist")


def test_runners(filled: Cli) -> None:
    rows = read(filled, "runners")
    assert [(row["id"], row["state"]) for row in rows] == [("alive", "running"), ("gone", "dead")]
    assert rows[0]["queues"] == ["default"]
    table = filled("runners").stdout.splitlines()
    assert table[0].split()[-1] == "SEEN"
    assert instant(table[2].split()[-1]) < instant(table[1].split()[-1])
