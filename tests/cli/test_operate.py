"""Commands that change the ledger: apply, pause, resume, remove, trigger."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from cronledger.client import waiting
from cronledger.ledger import ends
from tests.cli.conftest import JOBS, Ask, Cli
from tests.waiting import PATIENCE


def names(ask: Ask) -> set[str]:
    return {row[0] for row in ask("SELECT name FROM cronledger.jobs WHERE retired_at IS NULL")}


def test_apply_upserts_and_retires(cli: Cli, surroundings: Path, ask: Ask) -> None:
    file = surroundings / "jobs.toml"
    file.write_text(JOBS)
    said = cli("jobs", "apply", "jobs.toml")
    assert said.exit_code == 0
    added = ["added hourly", "added manual", "added tenants", "unchanged: 0"]
    assert sorted(said.stdout.splitlines()) == added
    file.write_text('[jobs.hourly]\nschedule = "5 * * * *"\ncommand = ["true"]\n')
    said = cli("jobs", "apply", "jobs.toml", "--json")
    answer = json.loads(said.stdout)
    assert (answer["changed"], answer["added"], answer["unchanged"]) == (["hourly"], [], 0)
    assert answer["retired"] == ["manual", "tenants"]
    assert names(ask) == {"hourly"}
    (row,) = ask("SELECT source, edited_by FROM cronledger.jobs WHERE name = 'hourly'")
    assert row[0] == str(file)
    assert "@" in row[1]


def test_the_sample_applies(cli: Cli, ask: Ask) -> None:
    said = cli("jobs", "apply", str(Path(__file__).parents[2] / "examples" / "sample.toml"))
    assert said.exit_code == 0, said.stderr
    assert said.stderr == ""
    assert len(names(ask)) == len(said.stdout.splitlines()) - 1


def test_apply_refuses_the_whole(cli: Cli, surroundings: Path, ask: Ask) -> None:
    (surroundings / "jobs.toml").write_text(
        JOBS
        + '[jobs.bad]\nschedule = "61 * * * *"\ncommand = ["x"]\n'
        + '[jobs.worse]\nschedule = "@daily"\noverlap = "maybe"\ncommand = ["x"]\n'
    )
    said = cli("jobs", "apply", "jobs.toml")
    assert said.exit_code == 2
    assert "jobs.bad.schedule" in said.stderr
    assert "jobs.worse.overlap" in said.stderr
    assert names(ask) == set()


def test_apply_refuses_functions_that_are_not_there(cli: Cli, surroundings: Path, ask: Ask) -> None:
    (surroundings / "work_of_this_test.py").write_text("def right(): ...\ndef wrong(x): ...\n")
    (surroundings / "jobs.toml").write_text(
        "".join(
            f'[jobs.{name}]\nschedule = "@daily"\npython = "work_of_this_test:{name}"\n'
            for name in ("right", "wrong", "absent")
        )
    )
    said = cli("jobs", "apply", "jobs.toml")
    assert said.exit_code == 2
    lines = said.stderr.splitlines()
    assert len(lines) == 2
    assert "jobs.wrong.python" in lines[0]
    assert "has the parameter `x`" in lines[0]
    assert "jobs.absent.python" in lines[1]
    assert names(ask) == set()


def test_apply_takes_an_app(cli: Cli, surroundings: Path, ask: Ask) -> None:
    (surroundings / "app_of_this_test.py").write_text(
        "from cronledger import App\napp = App(deploy=3)\n@app.job('@daily')\ndef tidy(): ...\n"
    )
    assert cli("jobs", "apply", "app_of_this_test:app").exit_code == 0
    assert ask("SELECT name, source, deploy FROM cronledger.jobs") == [
        ("tidy", "app_of_this_test:app", 3)
    ]
    older = cli("jobs", "apply", "app_of_this_test:app", "--deploy", "2")
    assert older.exit_code == 1
    assert "was not applied" in older.stderr
    assert cli("jobs", "apply", "app_of_this_test:app", "--deploy", "2", "--force").exit_code == 0


def test_apply_refuses_a_source_that_does_not_exist(bare: Cli) -> None:
    for source, expected in (
        ("absent.toml", "absent.toml: cannot be read"),
        ("absent:app", "there is no module absent"),
        ("nonsense", "neither a .toml file"),
    ):
        said = bare("jobs", "apply", source)
        assert said.exit_code == 2
        assert expected in said.stderr


def test_apply_leaves_jobs_of_another_source(filled: Cli, surroundings: Path, ask: Ask) -> None:
    (surroundings / "other.toml").write_text('[jobs.hourly]\ncommand = ["false"]\n')
    said = filled("jobs", "apply", "other.toml")
    assert said.exit_code == 2
    assert "jobs.hourly" in said.stderr
    # The same source at another place.
    said = filled("jobs", "apply", "other.toml", "--source", str(surroundings / "jobs.toml"))
    assert said.exit_code == 0
    assert names(ask) == {"hourly"}


def test_pause_and_resume(filled: Cli, ask: Ask) -> None:
    said = filled("jobs", "pause", "hourly", "--reason", "stocktaking", "--until", "90m")
    assert said.exit_code == 0
    ((reason, by, minutes),) = ask(
        "SELECT paused_reason, paused_by, round(extract(epoch FROM paused_until - paused_at) / 60)"
        " FROM cronledger.jobs WHERE name = 'hourly'"
    )
    assert (reason, minutes) == ("stocktaking", 90)
    assert "@" in by
    assert "already paused" in filled("jobs", "pause", "hourly").stdout
    assert filled("jobs", "resume", "hourly").stdout == "hourly: resumed\n"
    assert filled("jobs", "resume", "hourly").stdout == "hourly: was not paused\n"


def test_a_pause_ends_in_the_future(filled: Cli, ask: Ask) -> None:
    for until in ("2001-01-01T00:00:00Z", "soon"):
        said = filled("jobs", "pause", "hourly", "--until", until)
        assert said.exit_code == 2
        assert until[:10] in said.stderr
    assert ask("SELECT paused_at FROM cronledger.jobs WHERE name = 'hourly'") == [(None,)]


def test_remove(filled: Cli, ask: Ask) -> None:
    said = filled("jobs", "remove", "hourly")
    assert (said.exit_code, said.stdout) == (0, "hourly: removed\n")
    assert "jobs.toml' declares this job" in said.stderr
    assert names(ask) == {"tenants", "manual"}
    assert filled("jobs", "remove", "hourly").stdout == "hourly: was already removed\n"
    refused = filled("jobs", "pause", "hourly")
    assert refused.exit_code == 1
    assert "Hint: " in refused.stderr


def test_an_unknown_job_exits_2(cli: Cli) -> None:
    """Commands and SQL functions have the same words."""
    commands = [["jobs", command] for command in ("show", "pause", "resume", "remove")]
    for command in (*commands, ["trigger"]):
        said = cli(*command, "nope")
        assert said.exit_code == 2, command
        assert "job 'nope' does not exist" in said.stderr


def test_trigger(filled: Cli, ask: Ask) -> None:
    said = filled("trigger", "manual", "--payload", '{"day": 1}')
    assert said.exit_code == 0
    execution = int(said.stdout)
    ((job, trigger, status, payload, by),) = ask(
        "SELECT job_name, trigger, status, payload, requested_by FROM cronledger.executions"
        " WHERE id = %s",
        execution,
    )
    assert (job, trigger, status, payload) == ("manual", "manual", "PENDING", {"day": 1})
    assert "@" in by
    row = json.loads(filled("trigger", "tenants", "--scope", "acme", "--json").stdout)
    assert (row["scope_kind"], row["scope_id"]) == ("tenant", "acme")


def test_trigger_refuses(filled: Cli) -> None:
    for *arguments, code, expected in (
        ("hourly", 1, "is RUNNING, and overlap is skip"),
        ("tenants", 2, "acme, globex"),
        ("tenants", "--scope", "umbrella", 2, "no scope tenant/umbrella"),
        ("manual", "--payload", "{day: 1}", 2, "--payload"),
        ("manual", "--payload", "NaN", 2, "--payload"),
    ):
        said = filled("trigger", *map(str, arguments))
        assert (said.exit_code, said.stdout) == (code, "")
        assert str(expected) in said.stderr


def test_a_paused_job_is_triggered_with_force(filled: Cli) -> None:
    filled("jobs", "pause", "manual", "--reason", "why")
    refused = filled("trigger", "manual")
    assert refused.exit_code == 1
    assert "it is paused since" in refused.stderr
    assert "Hint: Resume it, or trigger it with --force: " in refused.stderr
    assert filled("trigger", "manual", "--force").exit_code == 0
    filled("jobs", "resume", "manual")
    filled("queues", "pause", "default")
    assert "Hint: Resume the queue, or use --force: " in filled("trigger", "manual").stderr


def test_trigger_waits_no_longer_than_its_timeout(filled: Cli, ask: Ask) -> None:
    said = filled("trigger", "manual", "--wait", "--timeout", "50ms", "--json")
    assert said.exit_code == 1
    assert "has not ended within --timeout; it keeps running" in said.stderr
    assert json.loads(said.stdout)["status"] == "PENDING"
    for wrong in (["--timeout", "1s"], ["--wait", "--timeout", "soon"]):
        assert filled("trigger", "manual", *wrong).exit_code == 2
    assert ask("SELECT count(*) FROM cronledger.executions WHERE job_name = 'manual'") == [(1,)]


def test_trigger_waits_for_the_end(filled: Cli, database_url: str) -> None:
    ended = threading.Event()
    statuses = {
        "SUCCESS": (0, "\n"),
        "FAILED": (1, ": exit_code: status 3\n"),
        "CANCELLED": (1, "\n"),
    }
    end = (
        "UPDATE cronledger.executions SET status = %(status)s, next_attempt_at = NULL,"
        " started_at = due_at, finished_at = due_at, duration_ms = 1, attempt = 1,"
        " lease_token = gen_random_uuid(),"
        " error_code = CASE WHEN %(status)s = 'FAILED' THEN 'exit_code' END,"
        " error_msg = CASE WHEN %(status)s = 'FAILED' THEN E'status 3\\nlast line' END"
        " WHERE job_name = 'manual' AND status = 'PENDING'"
    )

    def work() -> None:
        with psycopg.connect(database_url, autocommit=True) as c:
            for status in statuses:
                while not ended.is_set() and not c.execute(end, {"status": status}).rowcount:
                    ended.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for status, (code, reason) in statuses.items():
            said = filled("trigger", "manual", "--wait")
            assert said.exit_code == code
            assert f"#{said.stdout.strip()} {status}{reason}" in said.stderr
    finally:
        ended.set()
        thread.join()


def test_trigger_is_notified_of_the_end(
    filled: Cli, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "LISTEN_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 2 * PATIENCE)
    monkeypatch.setattr(waiting, "LONGEST_SECONDS", 2 * PATIENCE)
    with psycopg.connect(database_url, autocommit=True) as c, ThreadPoolExecutor(1) as threads:
        c.execute("LISTEN cronledger")
        said = threads.submit(filled, "trigger", "manual", "--wait", "--timeout", "2m")
        notes = c.notifies(timeout=PATIENCE)
        _, execution = next(n.payload for n in notes if n.payload.startswith("wait ")).split()
        notes.close()  # it holds the connection
        c.execute("SELECT cronledger.cancel(%s)", [execution])
    assert said.result().exit_code == 1
    assert f"#{execution} CANCELLED" in said.result().stderr


@pytest.mark.slow
def test_embedded(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "embedded")
    monkeypatch.setenv("CRONLEDGER_EMBEDDED_DIR", str(tmp_path / "embedded"))
    assert bare("jobs", "list").exit_code == 4
    assert bare("migrate").exit_code == 0
    assert bare("runners", "--json").stdout == "[]\n"
    assert not list((tmp_path / "embedded").glob("*/postmaster.pid"))


def test_a_refusal_names_commands_and_options(filled: Cli) -> None:
    for command, hint in (
        ("trigger hourly", "end it with `cronledger executions cancel 3`."),
        ("executions retry 1", "`cronledger trigger` creates another execution."),
        ("executions cancel 99", "To list executions, run `cronledger executions list`."),
        ("trigger tenants --scope no", "run `cronledger jobs show tenants`."),
        ("queues resume no", "To list the queues, run `cronledger queues list`."),
    ):
        refused = filled(*command.split())
        assert refused.exit_code != 0
        assert hint in refused.stderr
