"""Bad input ends with a message and exit code 2, whatever it is: never a traceback, never a hang.

`tests/fuzz` finds what nobody thought of; these are the cases that somebody did.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, refused
from tests.processes import CRONLEDGER

EDGES = ["0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31", "9999-12-31T23:59:59-14:00"]


@pytest.mark.long
def test_years_beyond_the_ledger_are_refused(filled: Cli) -> None:
    for arguments in (
        ["why", "hourly"], ["verify", "--from"], ["executions", "list", "--since"],
        ["backfill", "hourly", "--to", "1h", "--from"], ["jobs", "pause", "hourly", "--until"],
        ["next", "* * * * *", "--from"], ["next", "hourly", "--from"],
    ):  # fmt: skip
        for instant in EDGES:
            refused(filled(*arguments, instant), "outside the years 1000 to 9998")
    for arguments in (["why", "hourly"], ["verify", "--to"], ["next", "* * * * *", "--from"]):
        for instant in ("1000-01-01T00:00:00Z", "9998-12-31T23:59:59Z"):
            done(filled, *arguments, instant)


def test_a_duration_beyond_a_century_is_refused(filled: Cli) -> None:
    for length in ("99999w", "36526d", "999999999d"):
        refused(filled("jobs", "pause", "hourly", "--until", length), "longer than 100 years")
        refused(filled("executions", "list", "--since", length), "longer than 100 years")
    refused(filled("jobs", "pause", "hourly", "--until", "9000-01-01"), "more than 100 years ahead")
    assert "active" in filled("jobs", "list").stdout


def test_arguments_that_are_not_utf8_are_refused(filled: Cli) -> None:
    for arguments in (
        ["jobs", "show", "a\udcff"],
        ["jobs", "list", "--queue=a\udcff"],
        ["jobs", "diff", "a\udcff.toml"],
        ["trigger", "hourly", "--payload", '"\udcff"'],
        ["\udcff"],
    ):
        refused(filled(*arguments), "is not UTF-8", r"\udcff")


def test_only_variables_of_cronledger_must_be_utf8(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "a\udcffb")
    assert filled("jobs", "pause", "hourly").exit_code == 0
    monkeypatch.setenv("CRONLEDGER_RUNNER_ID", "a\udcff")
    refused(filled("jobs", "list"), "CRONLEDGER_RUNNER_ID: is not UTF-8; encode it as UTF-8")


def test_a_path_that_is_not_utf8_needs_a_name(filled: Cli, surroundings: Path) -> None:
    odd = surroundings / "b\udcff"
    odd.mkdir()
    (odd / "jobs.toml").write_text("[jobs.x]\nexternal = true\n")
    os.chdir(odd)
    refused(filled("jobs", "diff", "jobs.toml"), "--source: the path of the file is not UTF-8")
    assert filled("jobs", "diff", "jobs.toml", "--source", "here").exit_code == 0


def test_empty_values_are_refused(filled: Cli) -> None:
    for arguments in (
        ["next", "* * * * *", "--tz", ""], ["next", "* * * * *", "--tz="],
        ["jobs", "pause", "hourly", "--until", ""], ["jobs", "list", "--queue="],
        ["trigger", "hourly", "--scope", ""], ["executions", "list", "--since="],
        ["import", "crontab", ""], [""],
    ):  # fmt: skip
        refused(filled(*arguments), "omit it, or give it a value")


def test_numbers_beyond_bigint_are_refused(filled: Cli) -> None:
    for text in (str(2**63), str(-(2**63) - 1), "1" + "0" * 5000):
        refused(filled("enqueue", "hourly", f"--watermark={text}"), "--watermark")
        refused(filled("jobs", "apply", "jobs.toml", f"--deploy={text}"), "--deploy")
        refused(filled("executions", "show", "--", text), "ID")
        refused(filled("backfill", "hourly", "--from=2h", "--to=1h", f"--cap={text}"), "--cap")
    refused(filled("backfill", "hourly", "--from=2h", "--to=1h", f"--cap={2**31}"), "--cap")


def test_payloads_that_cannot_be_stored_are_refused(filled: Cli) -> None:
    for payload, said in (
        ("[" * 5000 + "]" * 5000, "is nested more than 100 levels deep"),
        ("9" * 5000, "is not JSON"),
        ('"\\u0000"', "unsupported Unicode escape sequence"),
    ):
        ended = filled("enqueue", "hourly", "--payload", payload)
        refused(ended, said)
        assert len(ended.stderr) < 500


JOB = "[jobs.x]\nexternal = true\n"
FILES = (
    (f"{JOB}payload = {'[' * 5000}{']' * 5000}", "is nested more than 100"),
    (f"{JOB}payload.{'.'.join('a' * 5000)} = 1", "is nested more than 100"),
    (f"{JOB}payload = {'9' * 5000}", "is not TOML"),
    ("[jobs.x]\ncommand = '\xfc'", "is not UTF-8"),
)


@pytest.mark.long
def test_files_that_cannot_be_read_are_refused(cli: Cli, surroundings: Path) -> None:
    for content, said in FILES:
        for place in ("x.toml", "cronledger.toml"):
            (surroundings / place).write_bytes(content.encode("latin-1"))
        refused(cli("jobs", "diff", "x.toml"), "x.toml: ", said)
        refused(cli("run"), "cronledger.toml: ", said)
        refused(cli("jobs", "list"), "cronledger.toml: ", said)


def test_what_never_ends_is_not_read(cli: Cli, surroundings: Path) -> None:
    os.mkfifo(surroundings / "fifo.toml")
    (surroundings / "endless.toml").symlink_to("/dev/zero")
    with (surroundings / "huge.toml").open("wb") as file:
        file.truncate(17 * 1024**2)
    for name, said in {
        "fifo": "is not a regular file", "endless": "is not a regular file",
        "huge": "is larger than 16 MiB",
    }.items():  # fmt: skip
        refused(cli("jobs", "diff", f"{name}.toml"), f"{name}.toml: {said}")
        refused(cli("import", "crontab", f"{name}.toml"), f"'{name}.toml' {said}")
    os.mkfifo(surroundings / "cronledger.toml")
    refused(cli("jobs", "list"), "cronledger.toml: is not a regular file")


@pytest.mark.long
def test_a_pipe_that_the_shell_names_is_a_crontab(surroundings: Path) -> None:
    said = subprocess.run(
        ["sh", "-c", 'exec 3<&0; "$0" "$@" import crontab /dev/fd/3', *CRONLEDGER],
        input=b"*/5 * * * * true\n", capture_output=True, check=True, cwd=surroundings,
    )  # fmt: skip
    assert b'schedule = "*/5 * * * *"' in said.stdout


def test_a_filter_that_can_match_nothing_is_no_empty_list(filled: Cli, ask: Ask) -> None:
    refused(filled("executions", "list", "--job", "nobody"), "job 'nobody' does not exist")
    assert filled("executions", "list", "--job", "manual").exit_code == 0
    ask("DELETE FROM cronledger.jobs WHERE name = 'manual'")
    assert filled("executions", "list", "--job", "manual").exit_code == 0
    said = filled("executions", "list", "--since", "1h", "--until", "2h")
    refused(said, "is not after --since")


def test_a_job_with_a_zone_that_does_not_exist_is_explained(filled: Cli, ask: Ask) -> None:
    refused(filled("why", "hourly", "03:00Z"), "'03:00Z' is not a time")
    ask("UPDATE cronledger.jobs SET timezone = '../Mars' WHERE name = 'hourly'")
    said = filled("why", "hourly", "03:00")
    assert said.exit_code == 0, said.exception
    assert "'../Mars' of the job does not exist; UTC is used" in said.stderr


def in_a_process(url: str, arguments: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*CRONLEDGER, *arguments], check=False, stderr=subprocess.PIPE,
        env={**os.environ, "CRONLEDGER_DATABASE_URL": url, **more.pop("env", {})}, **more,
    )  # fmt: skip


@pytest.mark.long
def test_a_full_disk_is_an_error_and_no_traceback(filled: Cli, database_url: str) -> None:
    for arguments in (["jobs", "list"], ["--help"], ["migrate", "--sql"]):
        with Path("/dev/full").open("wb") as full:
            said = in_a_process(database_url, arguments, stdout=full)
        assert said.returncode == 1
        assert said.stderr == b"Error: [Errno 28] No space left on device\n"


@pytest.mark.long
def test_text_that_the_locale_lacks_is_escaped(filled: Cli, database_url: str, ask: Ask) -> None:
    ask("UPDATE cronledger.jobs SET description = 'a → b' WHERE name = 'hourly'")
    said = in_a_process(
        database_url, ["jobs", "show", "hourly"], stdout=subprocess.PIPE,
        env={"PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert rb"a \u2192 b" in said.stdout
