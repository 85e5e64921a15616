"""`cronledger observe`: the command runs as if it were alone, and the ledger gets each run once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from psycopg.conninfo import make_conninfo

from cronledger.observing import delivery
from cronledger.observing.spool import Run, Spool, boot_id, wall_clock
from tests.cli.conftest import Ask, Cli
from tests.db.support import rows
from tests.db.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.marks import first_short
from tests.waiting import PATIENCE, until

NOWHERE = "postgresql://127.0.0.1:1/none"
PROGRAM = f"""
import sys
from importlib import import_module
from cronledger.cli import main
from cronledger.observing import delivery
# No limit passes before its condition, however busy the machine is.
command = import_module("cronledger.cli.observe")
command.ASK_SECONDS = command.LAST_SECONDS = delivery.CONNECT_SECONDS = {PATIENCE:.0f}
delivery.LIMITS = delivery.LIMITS.replace("'3000'", "'{PATIENCE:.0f}000'")
main(sys.argv[1:], prog_name="cronledger")
"""

Observe = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def observe(spool: Path, database_url: str) -> Iterator[Observe]:
    """Start the wrapper as a scheduler does. `url`: of the database. `options`: of the program."""
    started = []

    def start(
        *arguments: str, url: str = database_url, options: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        environ = dict(os.environ, CRONLEDGER_DATABASE_URL=url, CRONLEDGER_SPOOL_DIR=str(spool))
        started.append(process := subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *options, "observe", *arguments],
            env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ))  # fmt: skip
        return process

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture
def deliver(bare: Cli, spool: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Deliver the spool to the database of an address, in this process."""
    monkeypatch.setenv("CRONLEDGER_SPOOL_DIR", str(spool))

    def call(*options: str, url: str = database_url) -> Result:
        monkeypatch.setenv("CRONLEDGER_DATABASE_URL", url)
        return bare("observe", "--deliver", *options)

    return call


def ended(process: subprocess.Popen[str], given: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(given, timeout=PATIENCE)
    return process.returncode, out, err


def files(spool: Path) -> list[str]:
    return sorted(path.suffix for path in spool.iterdir() if path.name != ".lock")


@pytest.fixture
def seen(ask: Ask) -> Ask:
    """An observed job `seen`."""
    ask("INSERT INTO cronledger.jobs (name, handler) VALUES ('seen', 'observed')")
    return ask


def a_run(exit_status: int | None = None, **values: Any) -> Run:
    """Return a run of `seen` that begins now, and that has ended if it has an exit status."""
    now = wall_clock()
    end = None if exit_status is None else now
    run = Run("seen", "global", "global", "a", "h", now, os.getpid(), boot_id(), end, exit_status)
    return replace(run, **values)


REPORTS = "SELECT exit_status, ended_at >= started_at, source FROM cronledger.reports"


def test_streams_and_exit_status_are_those_of_the_command_and_the_host_that_of_the_setting(
    *, observe: Observe, seen: Ask, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_HOST", "node-7")
    script = 'cat; echo "<$1>"; echo wrong >&2; exit 3'
    ran = observe("seen", "--", "sh", "-c", script, "sh", "")
    assert ended(ran, "given") == (3, "given<>\n", "wrong\n")
    assert seen(REPORTS) == [(3, True, "command")]
    assert seen("SELECT host FROM cronledger.reports") == [("node-7",)]
    assert files(spool) == []


def test_the_start_is_reported_while_the_command_runs_and_signals_reach_it(
    observe: Observe, seen: Ask
) -> None:
    script = "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    ran = observe("seen", "--", "sh", "-c", script)
    assert ran.stdout is not None
    assert ran.stdout.readline() == "ready\n"
    until("the start", lambda: seen("SELECT ended_at FROM cronledger.reports") == [(None,)])
    ran.send_signal(signal.SIGTERM)
    assert ended(ran)[:2] == (7, "got\n")
    killed = observe("seen", "--", "sh", "-c", "kill -9 $$")
    assert ended(killed)[0] == 128 + 9
    assert seen(f"{REPORTS} ORDER BY id") == [(7, True, "command"), (137, True, "command")]


def test_a_caller_may_ignore_the_end_of_its_children(observe: Observe, seen: Ask) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ran = observe("seen", "--", "sh", "-c", "exit 5")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert ended(ran) == (5, "", "")
    assert seen(REPORTS) == [(5, True, "command")]


def test_a_command_that_cannot_start_is_a_failed_run(observe: Observe, seen: Ask) -> None:
    statuses = {"/nothing/here": 127, "/etc/passwd": 126}
    for word, status in statuses.items():
        code, _, err = ended(observe("seen", "--", word))
        assert (code, word in err) == (status, True)
    assert seen(f"{REPORTS} ORDER BY id") == [(x, True, "command") for x in statuses.values()]


@pytest.mark.long
def test_reports_wait_in_the_spool_while_the_database_is_away(
    observe: Observe, deliver: Cli, seen: Ask, spool: Path
) -> None:
    for status in (0, 4):
        code, _, err = ended(observe("seen", "--", "sh", "-c", f"exit {status}", url=NOWHERE))
        assert (code, "kept in the spool" in err) == (status, True)
    assert files(spool) == [".json", ".json"]
    kept = [json.loads(path.read_text()) for path in sorted(spool.glob("*.json"))]
    assert deliver().exit_code == 0
    assert files(spool) == []
    assert seen(f"{REPORTS} ORDER BY id") == [(0, True, "command"), (4, True, "command")]
    # The original times, by the clock of the database.
    seconds = "SELECT extract(epoch FROM max(started_at) - min(started_at)) FROM cronledger.reports"
    assert abs(float(seen(seconds)[0][0]) - (kept[1]["started"] - kept[0]["started"])) < 1


def test_the_options_of_the_connection_string_hold(
    observe: Observe, seen: Ask, database_url: str
) -> None:
    url = make_conninfo(database_url, options="-cdefault_transaction_read_only=on")
    assert "read-only transaction" in ended(observe("seen", "--", "true", url=url))[2]


@needs_pgbouncer
def test_reports_pass_a_pooler_that_ignores_no_parameter(
    observe: Observe, seen: Ask, database_url: str, tmp_path: Path
) -> None:
    with pgbouncer(database_url, tmp_path, ignored="") as url:
        assert ended(observe("seen", "--", "true", url=url)) == (0, "", "")
    assert seen(REPORTS) == [(0, True, "command")]


def test_a_report_does_not_wait_for_a_lock_without_limit(
    seen: Ask, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(delivery, "LIMITS", delivery.LIMITS.replace("'3000'", "'50'"))
    run = a_run(0)
    with rows.connected(database_url) as other, other.transaction():
        other.execute("SELECT FROM cronledger.schedules FOR UPDATE")
        target = delivery.Target(database_url, "cronledger", said.append)
        assert not delivery.deliver_own(target, run, None)
    assert "timeout" in said[0]
    assert "the report is lost" in said[0]


@pytest.mark.long
def test_the_next_run_of_any_job_delivers_the_spool(
    observe: Observe, deliver: Cli, seen: Ask, spool: Path
) -> None:
    ended(observe("seen", "--", "true", url=NOWHERE))
    kept = next(spool.glob("*.json")).read_text()
    ended(observe("seen", "--", "true"))
    assert seen("SELECT count(*) FROM cronledger.reports") == [(2,)]
    assert files(spool) == []
    # A file that a crash after its delivery has left is delivered again, and changes nothing.
    (spool / "again.json").write_text(kept)
    deliver()
    assert seen("SELECT count(*) FROM cronledger.reports") == [(2,)]


@pytest.mark.long
def test_a_report_is_kept_after_an_error_that_may_pass(
    observe: Observe, deliver: Cli, ask: Ask, spool: Path, database_url: str
) -> None:
    ask("INSERT INTO cronledger.jobs (name, handler) VALUES ('own', 'external')")
    read_only = make_conninfo(database_url, options="-cdefault_transaction_read_only=on")
    runs = (("own", read_only), ("own", database_url), ("later", database_url))
    said = [ended(observe(job, "--", "true", url=url)) for job, url in runs]
    assert [code for code, *_ in said] == [0, 0, 0]
    assert "read-only" in said[0][2]
    assert "its handler is external" in said[1][2]
    assert said[2][2].count("job 'later' does not exist; the report is kept in the spool") == 1
    assert said[2][2].count("job 'later'") == 1
    assert files(spool) == [".json", ".json", ".json"]
    # The end that is not accepted says so once for each job.
    left = deliver()
    said_again = [left.stderr.count(words) for words in ("its handler", "observe: job later")]
    assert (left.exit_code, said_again) == (1, [1, 1])
    ask("UPDATE cronledger.jobs SET handler = 'observed'")
    ask("INSERT INTO cronledger.jobs (name, handler) VALUES ('later', 'observed')")
    assert deliver().exit_code == 0
    assert ask("SELECT count(*) FROM cronledger.reports") == [(3,)]


@pytest.mark.long
def test_what_can_never_be_right_is_set_aside(deliver: Cli, seen: Ask, spool: Path) -> None:
    run = a_run(0)
    wrong = replace(run, key="k" * 201)
    for one in (run, wrong):
        Spool(spool).write(one)
    assert deliver().exit_code == 0
    assert files(spool) == [".refused"]
    seen("DELETE FROM cronledger.reports")
    Spool(spool).write(run)
    Spool(spool).refuse(run)
    assert deliver().exit_code == 0
    assert seen("SELECT count(*) FROM cronledger.reports") == [(0,)]
    assert deliver("--refused").exit_code == 0
    assert seen("SELECT run_key FROM cronledger.reports") == [("a",)]
    assert files(spool) == [".refused"]


def test_a_report_is_kept_for_a_week(
    deliver: Cli, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "missing")
    run = a_run(0)
    Spool(spool).write(run)
    Spool(spool).write(replace(run, key="b", started=run.started - 8 * 86_400))
    assert deliver().exit_code == 1
    assert {path.suffix: path.stem[-1] for path in spool.glob("*-*")} == {
        ".json": "a", ".refused": "b",
    }  # fmt: skip


def test_a_run_whose_wrapper_was_killed_is_a_start_without_an_end(
    observe: Observe, deliver: Cli, seen: Ask, spool: Path
) -> None:
    ran = observe("seen", "--", "cat", url=NOWHERE)
    until("a file", lambda: spool.exists() and files(spool) == [".json"])
    ran.kill()
    ended(ran)
    deliver()
    assert seen("SELECT ended_at FROM cronledger.reports") == [(None,)]
    assert files(spool) == []


def test_a_spool_that_cannot_be_written_does_not_stop_the_command(
    observe: Observe, spool: Path
) -> None:
    spool.write_text("a file")
    code, out, err = ended(observe("seen", "--", "echo", "ran", url=NOWHERE))
    assert (code, out) == (0, "ran\n")
    assert "cannot be written" in err


def test_a_full_spool_takes_no_further_run(
    observe: Observe, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronledger.observing.spool.MOST_FILES", 1)
    kept, run = Spool(spool), a_run()
    kept.write(run)
    kept.refuse(run)
    kept.write(run)
    with pytest.raises(OSError, match="deliver or delete"):
        kept.write(replace(run, key="b"))
    assert [found.key for found in kept.runs()] == ["a"]


def test_what_a_crash_left_in_the_spool_is_removed(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    kept, run = Spool(spool), a_run()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                kept.write(run)
    old, new = spool.glob("*.tmp")  # no two writes share one
    os.utime(old, (0, 0))
    assert delivery.deliver_all(lambda _: None, kept) == 0
    assert list(spool.glob("*.tmp")) == [new]


def test_a_wrong_call_is_refused(bare: Cli) -> None:
    for arguments in (
        [], ["seen"], ["--deliver", "seen"], ["--refused", "seen", "--", "true"],
        ["--scope", "x", "seen", "--", "true"], ["seen", "--scope", "tenant/x", "--", "true"],
    ):  # fmt: skip
        assert bare("observe", *arguments).exit_code == 2, arguments


def test_a_missing_connection_string_is_reported(deliver: Cli) -> None:
    told = {"": "is not set", "embedded": "is `embedded`, which `observe` does not"}
    for url, words in told.items():
        left = deliver(url=url)
        assert (left.exit_code, words in left.stderr) == (2, True), url


@pytest.fixture
def ledgers(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the ledgers `shop`, which has the job `seen`, and `away`."""
    monkeypatch.setenv("SHOP_URL", database_url)
    file = tmp_path / "ledgers.toml"
    file.write_text(f'[ledgers]\naway = "{NOWHERE}"\n[ledgers.shop]\nurl_env = "SHOP_URL"\n')
    monkeypatch.setenv("CRONLEDGER_LEDGERS_FILE", str(file))
    return file


def to_ledger(observe: Observe, ledger: str) -> tuple[int, str, str]:
    words = ("seen", "--", "sh", "-c", "exit 3")
    return ended(observe(*words, url=NOWHERE, options=["--ledger", ledger]))


def test_each_report_of_the_spool_is_delivered_to_its_ledger_F122(
    *, observe: Observe, deliver: Cli, seen: Ask, spool: Path, ledgers: Path, database_url: str
) -> None:
    ended(observe("seen", "--", "true", url=NOWHERE))
    code, _, err = to_ledger(observe, "away")
    assert (code, err.count("kept in the spool")) == (3, 1)
    assert to_ledger(observe, "shop")[0] == 3, "the other ledgers cannot be reached"
    assert seen(REPORTS) == [(3, True, "command")]
    assert [run.ledger for run in Spool(spool).runs()] == ["", "away"]
    ledgers.write_text(ledgers.read_text().replace(NOWHERE, database_url))
    assert deliver(url=NOWHERE).exit_code == 3
    assert [run.ledger for run in Spool(spool).runs()] == [""]
    assert deliver().exit_code == 0
    assert seen("SELECT count(*) FROM cronledger.reports") == [(3,)]


@pytest.mark.parametrize(
    "text", first_short(["[ledgers]\nother = 'postgresql://h/d'\n", "wrong", None])
)
def test_a_ledger_that_is_not_in_the_file_does_not_stop_the_command_F122(
    *, observe: Observe, deliver: Cli, seen: Ask, spool: Path, ledgers: Path, text: str | None
) -> None:
    known = ledgers.read_text()
    ledgers.unlink()
    if text is not None:
        ledgers.write_text(text)
    code, _, err = to_ledger(observe, "shop")
    assert code == 3
    assert "reports of the ledger shop stay in the spool" in err
    assert files(spool) == [".json"]
    left = deliver(url=NOWHERE)
    assert (left.exit_code, "ledger shop stay in the spool" in left.stderr) == (1, True)
    ledgers.write_text(known)
    assert deliver(url=NOWHERE).exit_code == 0
    assert seen(REPORTS) == [(3, True, "command")]


def test_reports_of_an_unknown_ledger_are_kept_for_a_week_F122(spool: Path) -> None:
    run = a_run(0, ledger="gone")
    for one in (run, replace(run, key="b", started=run.started - 8 * 86_400)):
        Spool(spool).write(one)
    assert delivery.deliver_all(lambda name: None, Spool(spool)) == 1
    assert files(spool) == [".json", ".refused"]


def test_the_wrapper_imports_little() -> None:
    heavy = ("psycopg", "pydantic", "asyncio", "cronledger.settings", "cronledger.ledger")
    program = (
        "import sys, cronledger.cli.observe\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
