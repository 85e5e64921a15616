"""`cronledger run` as a process: signals, exit codes, the summary, a database that is away."""

import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from tests.cli.conftest import Ask, Cli
from tests.cli.support.daemon import Start
from tests.cli.support.results import refused

JOBS = """
[cronledger]
drain_timeout = "10m"
[jobs.tick]
schedule = "* * * * * *"
command = ["true"]
[jobs.long]
schedule = "* * * * * *"
command = "echo began; exec sleep 600"
"""
HANGING = """
import threading, time
from cronledger import App
app = App()
@app.job()
def hang():
    open("hangs", "w").close()
    while True:
        time.sleep(0.05)
"""


@pytest.mark.long
def test_it_runs_drains_and_sums_up(start: Start, ask: Ask) -> None:
    Path("cronledger.toml").write_text(JOBS.partition("[jobs.long]")[0])
    run = start("--summary")  # ./cronledger.toml
    run.until(lambda: ask("SELECT FROM cronledger.executions WHERE status = 'SUCCESS' LIMIT 1"))
    ask("SELECT cronledger.pause('tick')")  # a drain cuts off a claim that takes two seconds
    run.signal(signal.SIGINT)
    assert run.end() == 0, run.err
    ((status, count),) = ask("SELECT status, count(*) FROM cronledger.executions GROUP BY 1")
    assert status == "SUCCESS"
    heading, row = run.out.strip().splitlines()[1:]
    assert heading.split() == ["job", "SUCCESS", "attempts", "skipped"]
    assert row.split()[:2] == ["tick", str(count)]
    done = next(event for event in run.events() if event["event"] == "execution_succeeded")
    assert {"job", "scope", "execution_id", "plan_time", "attempt"} <= set(done)
    assert ask("SELECT DISTINCT state FROM cronledger.runners") == [("stopped",)]


@pytest.mark.long
def test_a_drain_waits_and_a_second_signal_does_not(start: Start, ask: Ask) -> None:
    Path("long.toml").write_text(JOBS)
    run = start("long.toml", "--slots", "2")
    started = ("execution_started", "long")  # a drain would release what was only claimed
    run.until(lambda: any((x["event"], x.get("job")) == started for x in run.events()))
    run.signal(signal.SIGTERM)
    run.until_event("runner_draining")
    assert run.process.poll() is None
    run.signal(signal.SIGINT)
    assert run.end() == 1, run.err
    assert [event["event"] for event in run.events()].count("abort_requested") == 1
    ended = ask("SELECT status, error_code FROM cronledger.executions WHERE job_name = 'long'")
    assert ended == [("FAILED", "shutdown")]


@pytest.mark.long
def test_a_thread_that_hangs_does_not_keep_the_process(start: Start, ask: Ask) -> None:
    Path("hanging_of_this_test.py").write_text(HANGING)
    run = start("hanging_of_this_test:app", CRONLEDGER_DRAIN_TIMEOUT="100ms")
    run.until_event("runner_started")
    ask("SELECT cronledger.trigger('hang')")
    run.until(Path("hangs").exists)  # a drain would release what was only claimed
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err
    assert ask("SELECT status, error_code FROM cronledger.executions") == [("FAILED", "shutdown")]


@pytest.mark.long
def test_it_waits_for_its_database_as_long_as_it_is_told(start: Start, database_url: str) -> None:
    away = f"{database_url}&port=1"
    run = start("--wait", "300ms", CRONLEDGER_DATABASE_URL=away)
    assert run.end() == 3
    assert [event["event"] for event in run.events()].count("database_awaited") == 1
    assert "Error: the database is unreachable" in run.err


def test_an_invalid_source_is_refused_before_the_database_is_asked(
    bare: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "postgresql://127.0.0.1:1/x")
    Path("bad.toml").write_text(
        '[jobs.a]\nschedule = "61 * * * *"\ncommand = ["x"]\n[jobs.b]\npython = "absent:f"\n'
        'schedule = "@daily"\noverlap = "maybe"\n'
    )
    refused(bare("run", "bad.toml"), "jobs.a.schedule", "jobs.b.overlap")
    words = "a replica has one source, and 2 are given (a.toml, b.toml)"
    refused(bare("run", "a.toml", "b.toml"), words, "cronledger jobs apply FILE")


@pytest.mark.long
def test_a_schema_that_lacks_exits_4(start: Start, empty_database_url: str) -> None:
    run = start("--no-migrate", CRONLEDGER_DATABASE_URL=empty_database_url)
    assert run.end() == 4
    assert "cronledger migrate" in run.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = start(CRONLEDGER_HEALTH_PORT=str(taken.getsockname()[1]))
        assert run.end() == 2
    assert "CRONLEDGER_HEALTH_PORT" in run.err


@pytest.mark.long
def test_health_and_an_older_deploy(start: Start, surroundings: Path, ask: Ask) -> None:
    (surroundings / "a.toml").write_text('[jobs.a]\ncommand = ["true"]\n')
    ask(
        "INSERT INTO cronledger.sources (name, deploy)"
        f" VALUES ('{surroundings / 'a.toml'}', 5) RETURNING 1"
    )
    run = start("a.toml", "--deploy", "4", CRONLEDGER_HEALTH_PORT="0", CRONLEDGER_SLOT="1")
    port = run.until_event("health_listening")["port"]
    run.until_event("runner_started")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=90) as answer:
        body = json.loads(answer.read())
    assert (answer.status, body["state"], body["database"]) == (200, "running", "ok")
    assert run.until_event("source_refused")
    assert "CRONLEDGER_SLOTS" in run.until_event("setting_unknown")["problem"]
    assert ask("SELECT FROM cronledger.jobs") == []
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err


@pytest.mark.long
def test_nothing_is_applied_where_the_replica_could_not_run(
    start: Start, database_url: str, ask: Ask
) -> None:
    Path("a.toml").write_text('[jobs.a]\ncommand = ["true"]\n')
    ((pid,),) = ask("SELECT pg_backend_pid()")
    role = f"applies_only_{pid}"
    ask(
        f"CREATE ROLE {role} LOGIN;"
        f"GRANT USAGE ON SCHEMA cronledger, cronledger_internal TO {role};"
        f"GRANT ALL ON ALL TABLES IN SCHEMA cronledger TO {role};"
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA cronledger, cronledger_internal TO {role};"
        f"REVOKE ALL ON cronledger.runners FROM {role}"
    )
    try:
        url = make_conninfo(database_url, user=role)
        run = start("a.toml", "--no-migrate", CRONLEDGER_DATABASE_URL=url)
        assert run.end() == 2, run.err
        assert "permission denied for table runners" in run.err
        assert ask("SELECT name FROM cronledger.jobs") == []
    finally:
        ask(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_exception_at_import_prints_its_traceback(bare: Cli, surroundings: Path) -> None:
    package = surroundings / "breaks_at_import"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "jobs.py").write_text("def prepare():\n    return {}['missing']\n\nprepare()\n")
    (package / "typo.py").write_text("def f(:\n")
    (surroundings / "a.toml").write_text(
        '[jobs.a]\npython = "breaks_at_import.jobs:f"\n'
        '[jobs.b]\npython = "breaks_at_import.jobs:g"\n'
        '[jobs.c]\npython = "breaks_at_import.typo:f"\n'
    )
    for source, shown in (
        ("breaks_at_import.jobs:app", ["return {}['missing']", "KeyError: 'missing'"]),
        ("a.toml", ["return {}['missing']", "def f(:", "jobs.b.python", "jobs.c.python"]),
    ):
        said = bare("jobs", "apply", source)
        refused(said, *shown)
        assert said.stderr.count("Traceback (most recent call last)") <= 1
        assert "importlib" not in said.stderr
        assert "sources/python.py" not in said.stderr


LIFESPAN = """
from contextlib import asynccontextmanager
from cronledger import App

@asynccontextmanager
async def lifespan(app):
    raise ConnectionRefusedError("redis://me:hunter2@cache is away")
    yield

app = App("shop", lifespan=lifespan)
app.job("* * * * * *")(print)
"""


@pytest.mark.long
def test_a_lifespan_that_raises_exits_1_before_anything_is_applied(start: Start, ask: Ask) -> None:
    Path("broken_lifespan.py").write_text(LIFESPAN)
    run = start("broken_lifespan:app")
    assert run.end() == 1
    raised = "Error: the lifespan broken_lifespan:lifespan of the App 'shop' raised"
    assert run.err.splitlines()[-1].startswith(f"{raised} ConnectionRefusedError: redis://me:")
    assert "in lifespan" in run.err  # the traceback
    assert "hunter2" not in run.err
    assert ask("SELECT name FROM cronledger.jobs") == []
