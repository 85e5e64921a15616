"""Commands that change the ledger: apply, pause, resume, remove, trigger, enqueue, retention."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import JOBS, Ask, Cli
from tests.cli.support.results import done, read, refused
from tests.waiting import PATIENCE, until


def names(ask: Ask) -> set[str]:
    return {row[0] for row in ask("SELECT name FROM cronledger.jobs WHERE retired_at IS NULL")}


def test_apply_upserts_and_retires(cli: Cli, surroundings: Path, ask: Ask) -> None:
    file = surroundings / "jobs.toml"
    file.write_text(JOBS)
    said = done(cli, "jobs", "apply", "jobs.toml")
    added = ["added hourly", "added manual", "added tenants", "unchanged: 0"]
    assert sorted(said.stdout.splitlines()) == added
    file.write_text('[jobs.hourly]\nschedule = "5 * * * *"\ncommand = ["true"]\n')
    answer = read(cli, "jobs", "apply", "jobs.toml")
    assert (answer["changed"], answer["added"], answer["unchanged"]) == (["hourly"], [], 0)
    assert answer["retired"] == ["manual", "tenants"]
    assert names(ask) == {"hourly"}
    ((source, by),) = ask("SELECT source, edited_by FROM cronledger.jobs WHERE name = 'hourly'")
    assert (source, "@" in by) == (str(file), True)


def test_the_sample_applies(cli: Cli, ask: Ask) -> None:
    said = cli("jobs", "apply", str(Path(__file__).parents[2] / "examples" / "sample.toml"))
    assert (said.exit_code, said.stderr) == (0, "")
    assert len(names(ask)) == len(said.stdout.splitlines()) - 1


def test_apply_reports_all_problems_and_applies_nothing(cli: Cli, ask: Ask) -> None:
    Path("work_of_this_test.py").write_text("def right(): ...\ndef wrong(x): ...\n")
    python = '[jobs.{0}]\nschedule = "@daily"\npython = "work_of_this_test:{0}"\n'
    bad = (
        '[jobs.bad]\nschedule = "61 * * * *"\ncommand = ["x"]\n'
        '[jobs.worse]\nschedule = "@daily"\noverlap = "maybe"\ncommand = ["x"]\n'
    )
    for wrong, words in (
        (bad, ["jobs.bad.schedule", "jobs.worse.overlap"]),
        (
            "".join(map(python.format, ("right", "wrong", "absent"))),
            ["jobs.wrong.python", "has the parameter `x`", "jobs.absent.python"],
        ),
    ):
        Path("jobs.toml").write_text(JOBS + wrong)
        said = cli("jobs", "apply", "jobs.toml")
        refused(said, *words)
        assert len(said.stderr.splitlines()) == 2
    assert names(ask) == set()


def test_apply_takes_an_app(cli: Cli, ask: Ask) -> None:
    Path("app_of_this_test.py").write_text(
        "from cronledger import App\napp = App(deploy=3)\n@app.job('@daily')\ndef tidy(): ...\n"
    )
    assert cli("jobs", "apply", "app_of_this_test:app").exit_code == 0
    assert ask("SELECT name, source, deploy FROM cronledger.jobs") == [
        ("tidy", "app_of_this_test:app", 3)
    ]
    older = ("jobs", "apply", "app_of_this_test:app", "--deploy", "2")
    refused(cli(*older), "was not applied", code=1)
    assert cli(*older, "--force").exit_code == 0


def test_a_pause_has_a_reason_and_ends_in_the_future(filled: Cli, ask: Ask) -> None:
    for end in ("2001-01-01T00:00:00Z", "soon"):
        refused(filled("jobs", "pause", "hourly", "--until", end), end[:10])
    assert ask("SELECT paused_at FROM cronledger.jobs WHERE name = 'hourly'") == [(None,)]
    done(filled, "jobs", "pause", "hourly", "--reason", "stocktaking", "--until", "90m")
    ((reason, by, minutes),) = ask(
        "SELECT paused_reason, paused_by, round(extract(epoch FROM paused_until - paused_at) / 60)"
        " FROM cronledger.jobs WHERE name = 'hourly'"
    )
    assert (reason, "@" in by, minutes) == ("stocktaking", True, 90)
    assert "already paused" in filled("jobs", "pause", "hourly").stdout
    assert filled("jobs", "resume", "hourly").stdout == "hourly: resumed\n"
    assert filled("jobs", "resume", "hourly").stdout == "hourly: was not paused\n"


def test_remove(filled: Cli, ask: Ask) -> None:
    said = filled("jobs", "remove", "hourly")
    assert (said.exit_code, said.stdout) == (0, "hourly: removed\n")
    assert "jobs.toml' declares this job" in said.stderr
    assert names(ask) == {"tenants", "manual"}
    assert filled("jobs", "remove", "hourly").stdout == "hourly: was already removed\n"
    refused(filled("jobs", "pause", "hourly"), "Hint: ", code=1)


def test_an_unknown_job_exits_2(cli: Cli) -> None:
    """Commands and SQL functions have the same words."""
    commands = [["jobs", command] for command in ("show", "pause", "resume", "remove")]
    for command in (*commands, ["trigger"]):
        refused(cli(*command, "nope"), "job 'nope' does not exist")


def test_trigger(filled: Cli, ask: Ask) -> None:
    said = done(filled, "trigger", "manual", "--payload", '{"day": 1}')
    ((job, trigger, status, payload, by),) = ask(
        "SELECT job_name, trigger, status, payload, requested_by FROM cronledger.executions"
        " WHERE id = %s",
        int(said.stdout),
    )
    assert (job, trigger, status, payload) == ("manual", "manual", "PENDING", {"day": 1})
    assert "@" in by
    row = read(filled, "trigger", "tenants", "--scope", "acme")
    assert (row["scope_kind"], row["scope_id"]) == ("tenant", "acme")


@pytest.mark.long
def test_a_refusal_of_trigger_has_its_exit_code_and_a_hint_with_options(filled: Cli) -> None:
    for code, words, *arguments in (
        (1, "is RUNNING, and overlap is skip", "hourly"),
        (1, "end it with `cronledger executions cancel 3`.", "hourly"),
        (2, "acme, globex", "tenants"),
        (2, "no scope tenant/umbrella", "tenants", "--scope", "umbrella"),
        (2, "run `cronledger jobs show tenants`.", "tenants", "--scope", "umbrella"),
        (2, "--payload", "manual", "--payload", "{day: 1}"),
        (2, "--payload", "manual", "--payload", "NaN"),
    ):
        said = filled("trigger", *map(str, arguments))
        refused(said, str(words), code=int(code))
        assert said.stdout == ""
    filled("jobs", "pause", "manual", "--reason", "why")
    hint = "Hint: Resume it, or trigger it with --force: "
    refused(filled("trigger", "manual"), "it has been paused since", hint, code=1)
    assert filled("trigger", "manual", "--force").exit_code == 0


def test_trigger_waits_no_longer_than_its_timeout(filled: Cli, ask: Ask) -> None:
    said = filled("trigger", "manual", "--wait", "--timeout", "50ms", "--json")
    refused(said, "has not ended within --timeout; it was not cancelled", code=1)
    assert json.loads(said.stdout)["status"] == "PENDING"
    for wrong in (["--timeout", "1s"], ["--wait", "--timeout", "soon"]):
        refused(filled("trigger", "manual", *wrong))
    assert ask("SELECT count(*) FROM cronledger.executions WHERE job_name = 'manual'") == [(1,)]


def test_trigger_waits_for_the_end(filled: Cli, ask: Ask) -> None:
    end = (
        "UPDATE cronledger.executions SET status = %s, error_code = %s, error_msg = %s,"
        " next_attempt_at = NULL, started_at = due_at, finished_at = due_at, duration_ms = 1,"
        " attempt = 1, lease_token = gen_random_uuid()"
        " WHERE job_name = 'manual' AND status = 'PENDING' RETURNING id"
    )
    for code, reason, *ended in (
        (0, "SUCCESS\n", "SUCCESS", None, None),
        (1, "FAILED: exit_code: status 3\n", "FAILED", "exit_code", "status 3\nlast line"),
    ):
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(filled, "trigger", "manual", "--wait", "--timeout", "2m")
            ((execution,),) = until("it is PENDING", partial(ask, end, *ended))
        said = waits.result()
        assert (said.exit_code, said.stdout) == (code, f"{execution}\n")
        assert f"#{execution} {reason}" in said.stderr


def test_a_running_execution_shows_its_progress_and_expected_end(
    filled: Cli, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F86, F87: the first half took 10 minutes."""
    ((execution, token),) = ask(
        "UPDATE cronledger.executions SET started_at = cronledger.db_now() - interval '10 min'"
        " WHERE status = 'RUNNING' RETURNING id, lease_token::text"
    )
    refused(filled("progress", "5"), "CRONLEDGER_EXECUTION_ID or CRONLEDGER_LEASE_TOKEN is not set")
    monkeypatch.setenv("CRONLEDGER_EXECUTION_ID", str(execution))
    monkeypatch.setenv("CRONLEDGER_LEASE_TOKEN", token)
    assert filled("progress", "50", "100", "pages").exit_code == 0
    shown = json.loads(filled("executions", "show", str(execution), "--json").stdout)
    assert shown["progress"] == "50 of 100 (50 %): pages"
    end, start = (datetime.fromisoformat(shown[x]) for x in ("expected_end", "started_at"))
    assert timedelta(minutes=20) <= end - start < timedelta(minutes=20, seconds=2 * PATIENCE)
    assert "50 of 100 (50 %): pages" in filled("executions", "list").stdout
    monkeypatch.setenv("CRONLEDGER_LEASE_TOKEN", str(uuid4()))
    refused(filled("progress", "51"), "is lost; stop the work", code=1)


def test_retention_is_shown_and_set(cli: Cli) -> None:
    assert cli("retention", "show").stdout == "keep    90d\n"
    said = cli("retention", "set", "36h", "--reason", "disk")
    assert said.stdout == "executions are kept for 1d12h (before: 90d)\n"
    shown = read(cli, "retention", "show")
    assert (shown["keep"], shown["set_at"][-1], "@" in shown["set_by"]) == ("1d12h", "Z", True)
    (row,) = read(cli, "audit")
    assert (row["verb"], row["reason"]) == ("set_retention", "disk")


def test_enqueue_makes_one_execution_or_merges(filled: Cli) -> None:
    push = ("enqueue", "manual", "--key", "k", "--payload")
    first = read(filled, *push, '{"n": 1}', "--watermark", "7")
    assert (first["status"], first["trigger"], first["payload"]) == ("PENDING", "enqueue", {"n": 1})
    second = read(filled, *push, '{"n": 2}', "--watermark", "3")
    assert (second["id"], second["payload"], second["watermark"]) == (first["id"], {"n": 2}, 7)
    assert "@" in second["requested_by"]
    assert filled("enqueue", "manual").stdout.strip() != str(first["id"])


def test_enqueue_refuses_what_it_cannot_use(filled: Cli) -> None:
    for arguments in (
        "nothing", "tenants", "tenants --scope x", "manual --payload {",
        "manual --watermark much", "manual --due-at soon", "manual --due-at 1h --key k",
    ):  # fmt: skip
        refused(filled("enqueue", *arguments.split()))


def test_enqueue_takes_the_time_at_which_the_work_is_due(filled: Cli) -> None:
    made = read(filled, "enqueue", "manual", "--due-at", "1h")
    assert made["due_at"] > made["created_at"]
    fixed = read(filled, "enqueue", "manual", "--due-at", "2090-01-01")
    assert fixed["due_at"].startswith("2090-01-01")
