"""`cronledger dev` as a process: a database of its own, restarts, a clock that starts elsewhere."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

from cronledger.cli.dev import _variables
from cronledger.embedded.postmaster import private_directory
from cronledger.embedded.server import find_binaries
from cronledger.process.reload import changes
from cronledger.settings import Settings
from tests.cli.conftest import Cli
from tests.cli.support.daemon import Run, Start, starter
from tests.cli.support.results import refused
from tests.database import chosen_binaries, fast_directory, scratch_directory
from tests.processes import alive, children
from tests.waiting import until

APP = """
from cronledger import App
app = App("shop")

@app.job("* * * * * *")
def beat():
    return "first"
"""
LONG = '[jobs.long]\nschedule = "* * * * * *"\ncommand = "exec sleep 600"\n'


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for temporary files; servers that are left in it end with the test."""
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with scratch_directory(parent) as scratch:
        yield scratch


@pytest.fixture
def start(surroundings: Path, scratch: Path) -> Iterator[Start]:
    """Start `cronledger dev` in the working directory."""
    variables = {
        "TMPDIR": str(scratch),
        "CRONLEDGER_EMBEDDED_BINARIES": str(find_binaries(chosen_binaries()).directory),
        "CRONLEDGER_DATABASE_URL": "postgresql://127.0.0.1:1/of_the_reader",
    }
    # Not SIGKILL, so that its replica ends too.
    with starter(surroundings, "dev", signal.SIGTERM, **variables) as start:
        yield start


def rows(run: Run, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement in the database that the first line names."""
    run.until(lambda: "export CRONLEDGER_DATABASE_URL" in run.err)
    url = re.search(r"^export CRONLEDGER_DATABASE_URL='(.+)'$", run.err, re.MULTILINE)
    assert url is not None
    with psycopg.connect(url[1], autocommit=True) as c:
        return c.execute(statement.encode()).fetchall()


def has_result(run: Run, result: str) -> bool:
    found = rows(run, "SELECT to_regclass('cronledger.executions') IS NOT NULL")
    statement = f"SELECT FROM cronledger.executions WHERE result = '\"{result}\"' LIMIT 1"
    return found == [(True,)] and rows(run, statement) != []


@pytest.mark.slow
def test_it_restarts_when_a_file_changes(start: Start, surroundings: Path, scratch: Path) -> None:
    jobs = surroundings / "shop_of_dev.py"
    jobs.write_text(APP.replace("* * * * * *", "61 * * * *"))
    run = start("shop_of_dev:app")
    run.until(lambda: "no replica runs until the next change" in run.err)
    assert "Error: shop_of_dev.py:5: jobs.beat.schedule" in run.err
    jobs.write_text(APP)
    run.until(lambda: has_result(run, "first"))
    assert re.search(r"^beat +\w{3} \d{4}-\d\d-\d\d ", run.out, re.MULTILINE)
    assert "cronledger dev: shop_of_dev.py changed" in run.err

    jobs.write_text(APP.replace("first", "second"))
    run.until(lambda: has_result(run, "second"))
    assert [event["event"] for event in run.events()].count("runner_stopped") == 1
    run.signal(signal.SIGINT)
    assert run.end() == 0, run.err
    assert [event["event"] for event in run.events()].count("runner_stopped") == 2
    assert not list(scratch.glob("cronledger-dev-*"))


@pytest.mark.slow
def test_the_clock_starts_at_a_local_time(start: Start) -> None:
    Path("cronledger.toml").write_text(
        '[jobs.night]\nschedule = "0 2 * * *"\ntimezone = "Europe/Berlin"\ncommand = ["true"]\n'
    )
    run = start("--at", "2027-03-28T01:50:00", "--no-reload")
    run.until(lambda: "night  Sun 2027-03-28 03:00:00+02:00  shifted" in run.out)
    run.until_event("runner_started")
    began = "'2027-03-28T00:50:00Z'::timestamptz"
    since = f"SELECT extract(epoch FROM started_at - {began})::int FROM cronledger.runners"
    ((seconds,),) = rows(run, since)
    assert 0 <= seconds < 580
    # The job exists now, so it is due however long the start took.
    later = f"{began} + interval '580 s' - clock_timestamp()"
    rows(run, f"UPDATE cronledger.time_travel SET ahead = {later} RETURNING ahead")
    ended = "SELECT plan_time::text FROM cronledger.executions WHERE status = 'SUCCESS'"
    run.until(lambda: rows(run, ended))
    assert rows(run, ended) == [("2027-03-28 01:00:00+00",)]
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


def assert_a_kill_leaves_nothing(run: Run, scratch: Path) -> None:
    (file,) = scratch.glob("cronledger-dev-*/postgres-*/postmaster.pid")
    pids = [*children(run.process.pid), int(file.read_text().split()[0])]
    run.signal(signal.SIGKILL)
    run.process.wait()
    until("all processes end", lambda: not any(map(alive, pids)))
    until("the directory is removed", lambda: not list(scratch.glob("cronledger-dev-*")))


@pytest.mark.long
def test_a_kill_leaves_neither_replica_nor_server(
    start: Start, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DRAIN_TIMEOUT", "100ms")  # it is killed after 10 s
    Path("cronledger.toml").write_text(LONG)
    run = start()
    assert run.until_event("execution_started")["job"] == "long"
    assert_a_kill_leaves_nothing(run, scratch)
    assert [e["event"] for e in run.events()].count("runner_stopped") == 1  # it has drained


@pytest.mark.slow
def test_a_kill_ends_a_replica_that_hangs(start: Start, scratch: Path) -> None:
    hangs = "\nimport time\n@app.job('* * * * * *')\nasync def hangs():\n    open('hangs', 'w')\n"
    Path("hangs_of_dev.py").write_text(APP + hangs + "    time.sleep(600)\n")
    run = start("hangs_of_dev:app")
    run.until(Path("hangs").exists)
    assert_a_kill_leaves_nothing(run, scratch)


@pytest.mark.long
def test_a_signal_while_the_replica_starts_is_no_failure(start: Start) -> None:
    text = (
        "\nimport sys, time\nif 'run' in sys.argv:\n    open('starts', 'w')\n    time.sleep(600)\n"
    )
    Path("slow_start_of_dev.py").write_text(APP + text)
    run = start("slow_start_of_dev:app", "--no-reload")
    run.until(Path("starts").exists)
    run.signal(signal.SIGINT)
    assert run.end() == 0, run.err


def test_alerts_are_delivered_only_if_the_environment_has_slots_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings.load({"alert_slots": 9}).alert_slots == 9
    for given, slots in ((None, 0), ("3", 3)):
        if given is not None:
            monkeypatch.setenv("CRONLEDGER_ALERT_SLOTS", given)
        with pytest.MonkeyPatch.context() as child:
            for name, value in _variables("postgresql://host/database").items():
                child.setenv(name, value)
            assert Settings.load({"alert_slots": 9}).alert_slots == slots


def test_changes_of_calendar_files_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = changes(tmp_path / "cronledger.toml", Event())
    assert next(found) == []
    Path("notes.txt").write_text("not a source")
    Path("bank.ics").write_text("BEGIN:VCALENDAR")
    assert next(filter(None, found)) == ["bank.ics"]


def test_a_directory_that_may_not_be_read_is_not_watched() -> None:
    """As another user than root, who may read every directory."""
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        here.chmod(0o755)
        (here / "closed").mkdir(mode=0)
        script = f"""if True:
            import os, watchfiles, platform, logging
            from pathlib import Path
            from threading import Event
            from cronledger.process.reload import changes
            os.chdir({place!r})
            os.seteuid({user})
            print(next(changes(Path("cronledger.toml"), Event())))
        """
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.slow
def test_a_replica_that_ends_is_reported(start: Start, surroundings: Path) -> None:
    file = surroundings / "cronledger.toml"
    file.write_text('[cronledger]\nhealth_host = "256.0.0.1"\nhealth_port = 1\n' + LONG)
    run = start()
    run.until(lambda: "the replica ended with exit code 2; the next change starts" in run.err)
    file.write_text(LONG)
    run.until_event("runner_started")


def test_a_mistyped_name_exits_2(bare: Cli) -> None:
    for source, words in (
        ("app.py", "'app.py' is neither a .toml file nor an App"),
        ("none.toml", "none.toml: cannot be read: there is no such file"),
        ("no_such_package.jobs:app", "there is no module no_such_package in "),
        ("no such:app", "it is not package.module:name"),
    ):
        for options in ([], ["--no-reload"]):
            said = bare("dev", source, *options)
            refused(said, words)
            assert "export CRONLEDGER_DATABASE_URL" not in said.output


def test_without_the_library_the_remedy_is_named(
    bare: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronledger.cli.dev.LIBRARY", "no_such_library")
    refused(bare("dev"), "run `pip install 'cronledger[reload]'`, or add --no-reload")
    refused(bare("dev", "--at", "soon"), "--at")
