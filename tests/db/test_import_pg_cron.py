"""pg_cron itself beside the model of its rules, and the import of its table.

A server with the extension runs at chosen minutes of a faked clock, so that whole days need not
pass. Debian's pg_cron 1.4 has neither `cron.timezone` nor `N seconds`, so these follow its later
C code only.
"""

import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from cronledger.cli.import_pg_cron import import_pg_cron
from cronledger.embedded.binaries import as_ordinary_user
from cronledger.ledger.migrate import migrate
from cronledger.sources import toml
from tests.cluster.support.clocks import library
from tests.unit.support import pg_cron_model
from tests.unit.test_import_pg_cron import schedules
from tests.waiting import PATIENCE, until

BIN = Path("/usr/lib/postgresql/15/bin")
EXTENSION = Path("/usr/share/postgresql/15/extension/pg_cron.control")
needs_pg_cron = pytest.mark.skipif(
    not EXTENSION.exists(),
    reason="there is no pg_cron: on Debian, apt-get install postgresql-15-cron",
)
SPEED = 5
"""Seconds of the faked clock in a second."""
WINDOW = timedelta(minutes=3)
ALL_BEFORE_HAVE_STARTED = """
    SELECT count(*) > 0 AND NOT EXISTS (
        SELECT FROM cron.job_run_details AS earlier
        WHERE earlier.start_time IS NULL AND earlier.runid < min(last.runid))
    FROM cron.job_run_details AS last WHERE last.jobid = %s AND last.start_time > %s
"""
"""Whether a job has started after an instant, and every run that pg_cron recorded before it.

pg_cron writes a run without `start_time` first, and starts it later: on a busy machine, seconds
later.
"""
STARTS = (
    "2027-01-31 23:58", "2028-02-29 23:58", "2027-05-03 05:58", "2027-12-31 23:58",
)  # fmt: skip


@contextmanager
def pg_cron(directory: Path, start: str, settings: str = "") -> Iterator[psycopg.Connection]:
    """A server whose clock begins at `start` in UTC, with the extension and further `settings`."""
    preload = library()
    assert preload is not None, "there is no libfaketime: pip install libfaketime"
    prefix = as_ordinary_user(BIN / "postgres")
    data = directory / "data"
    subprocess.run(
        [*prefix, BIN / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync",
         "--locale=C", "--encoding=UTF8"],
        check=True, capture_output=True,
    )  # fmt: skip
    with (data / "postgresql.conf").open("a") as file:
        file.write(
            f"shared_preload_libraries = 'pg_cron'\ncron.host = '{directory}'\nfsync = off\n"
            f"unix_socket_directories = '{directory}'\nlisten_addresses = ''\n"
            f"max_connections = 500\nlog_timezone = 'UTC'\ntimezone = 'UTC'\n{settings}\n"
        )
    environment = {
        "LD_PRELOAD": str(preload), "FAKETIME": f"@{start}:00 x{SPEED}", "TZ": "UTC",
        "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(
            [*prefix, BIN / "postgres", "-D", data], env=environment, stdout=log, stderr=log
        )
        try:
            with _connected(directory, server) as connection:
                yield connection
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown
            server.wait(PATIENCE)


def _connected(directory: Path, server: subprocess.Popen[bytes]) -> psycopg.Connection:
    def connected() -> psycopg.Connection | None:
        try:
            return psycopg.connect(f"host={directory} user=postgres", autocommit=True)
        except psycopg.OperationalError:
            assert server.poll() is None, (directory / "log").read_text()
            return None

    return until("the server accepts connections", connected)


def near(draw: random.Random, start: datetime) -> str:
    """Return a schedule that probably names a minute soon after `start`."""
    now = start + timedelta(minutes=draw.randint(1, 3))
    fields = []
    for number, value in enumerate(
        (now.minute, now.hour, now.day, now.month, now.isoweekday() % 7)
    ):
        low, high = pg_cron_model.BOUNDS[number]
        other = draw.randint(low, high)
        forms = [
            f"{value}", f"{value}", f"{low}-{value}", f"{value}-{high}", f"{value},{other}",
            f"{low}-{high}/{draw.choice([2, 3])}", f"*/{draw.choice([1, 2, 3])}", f"{other}",
        ]  # fmt: skip
        forms += [pg_cron_model.NAMES[3][value - 1]] if number == 3 else []
        forms += [pg_cron_model.NAMES[4][value].upper()] if number == 4 else []
        fields.append("*" if draw.random() < 0.4 else draw.choice(forms))
    return " ".join(fields)


@needs_pg_cron
@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_pg_cron_starts_jobs_when_the_model_does(start: str, tmp_path: Path) -> None:
    draw = random.Random(start)
    begin = datetime.fromisoformat(f"{start}+00:00")
    wanted = ["* * * * *", *pg_cron_model.MACROS]
    wanted += [near(draw, begin) for _ in range(40)]
    with pg_cron(tmp_path, start) as connection:
        connection.execute("CREATE EXTENSION pg_cron")
        jobs = {_schedule(connection, text): text for text in wanted}
        (ready,) = connection.execute("SELECT now()").fetchone() or ()
        _wait(connection, ALL_BEFORE_HAVE_STARTED, min(jobs), begin + WINDOW)
        runs = connection.execute(
            "SELECT jobid, start_time FROM cron.job_run_details WHERE start_time IS NOT NULL"
        ).fetchall()
    started = {(job, at.astimezone(UTC).replace(second=0, microsecond=0)) for job, at in runs}
    # A minute in which jobs were still being added, and the last one, may lack some.
    minutes = sorted(at for job, at in started if job == min(jobs))
    minutes = [at for at in minutes[:-1] if at > ready]
    assert 0 not in jobs
    assert len(minutes) > 1
    expected = {
        (job, minute)
        for job, text in jobs.items()
        for minute in minutes
        if pg_cron_model.Entry(text).runs_at(minute, "UTC")
    }
    assert {one for one in started if one[1] in minutes} == expected
    assert len(expected) > 2 * len(minutes)


@needs_pg_cron
@pytest.mark.slow
def test_the_import_reads_the_table_and_pg_cron_accepts_what_the_model_does(tmp_path: Path) -> None:
    with pg_cron(tmp_path, STARTS[0]) as connection:
        connection.execute("CREATE EXTENSION pg_cron")
        for text in schedules(8, 250):
            if "$" not in text:  # of later versions
                assert bool(_schedule(connection, text)) is _accepted(text), text
        connection.execute("DELETE FROM cron.job")
        connection.execute("SELECT cron.schedule('tidy', '0 3 * * *', 'VACUUM')")
        connection.execute("SELECT cron.schedule('0 4 * * mon', 'SELECT 1')")
        connection.execute("CREATE DATABASE other")
        url, output = f"host={tmp_path} user=postgres", tmp_path / "c.toml"
        ended = CliRunner().invoke(import_pg_cron, ["--from", url, "--as-user", "-o", str(output)])
        elsewhere = CliRunner().invoke(import_pg_cron, ["--from", f"{url} dbname=other"])
    assert ended.exit_code == 1  # psql needs a connection of its own
    assert ended.stderr.endswith("cron.job of postgres: 2 jobs\n")
    tidy, other = toml.load(output).jobs
    assert (tidy.name, tidy.target["command"][0], tidy.timezone) == ("tidy", "psql", "UTC")
    assert other.target["sql"] == 'SET LOCAL ROLE "postgres";\nSELECT 1'
    assert elsewhere.exit_code == 2
    assert 'relation "cron.job" does not exist' in elsewhere.stderr


@needs_pg_cron
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["off", "on"])
def test_the_commands_of_an_observed_import_report_what_pg_cron_runs_F121(
    tmp_path: Path, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transaction locks the schedule of the last job for ever."""
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "watch")
    commands = {
        "works": "INSERT INTO kept VALUES ('works')", "fails": "SELECT 1 / 0",
        "locked": "INSERT INTO kept VALUES ('locked')",
    }  # fmt: skip
    url = f"host={tmp_path} user=postgres"
    setting = f"cron.use_background_workers = {workers}"
    with pg_cron(tmp_path, STARTS[0], setting) as connection, ExitStack() as stack:
        connection.execute("CREATE EXTENSION pg_cron")
        connection.execute("CREATE TABLE kept (job text)")
        migrate(url, "watch")
        for name, command in commands.items():
            connection.execute(
                "INSERT INTO watch.jobs (name, handler) VALUES (%s, 'observed')", [name]
            )
            connection.execute("SELECT cron.schedule(%s, '* * * * *', %s)", (name, command))
        ended = CliRunner().invoke(import_pg_cron, ["--from", url, "--observe"])
        text = re.sub(r"(?m)^# ?", "", ended.stdout)
        altered = re.findall(r"SELECT cron\.alter_job\(.*?\$command\$\);", text, re.DOTALL)
        assert len(altered) == 3
        other = stack.enter_context(psycopg.connect(url))
        other.execute("SELECT FROM watch.schedules WHERE job_name = 'locked' FOR UPDATE")
        for statement in altered:
            connection.execute(statement.encode())
        _wait(
            connection,
            "SELECT count(DISTINCT jobid) = 3 FROM cron.job_run_details"
            " WHERE command LIKE 'DO %%' AND status IN ('succeeded', 'failed')",
        )
        runs = connection.execute(
            "SELECT DISTINCT jobname, status, return_message LIKE '%%division by zero%%'"
            " FROM cron.job_run_details JOIN cron.job USING (jobid)"
            " WHERE job_run_details.command LIKE 'DO %%' AND status IN ('succeeded', 'failed')"
        ).fetchall()
        reports = connection.execute(
            "SELECT DISTINCT job_name, error FROM watch.reports WHERE ended_at IS NOT NULL"
        ).fetchall()
        kept = connection.execute("SELECT DISTINCT job FROM kept ORDER BY job").fetchall()
    assert sorted(runs) == [
        ("fails", "failed", True), ("locked", "succeeded", False), ("works", "succeeded", False),
    ]  # fmt: skip
    assert sorted(reports) == [("fails", "division by zero"), ("works", None)]
    assert kept == [("locked",), ("works",)]


def _schedule(connection: psycopg.Connection, text: str) -> int:
    """Add a job, and return its id; 0 if pg_cron refuses the schedule."""
    try:
        row = connection.execute("SELECT cron.schedule(%s, 'SELECT 1')", (text,)).fetchone()
    except psycopg.errors.InvalidParameterValue:
        return 0
    assert row is not None
    return int(row[0])


def _accepted(text: str) -> bool:
    try:
        pg_cron_model.Entry(text)
    except pg_cron_model.Refused:
        return False
    return True


def _wait(connection: psycopg.Connection, query: str, *values: object) -> None:
    until("the runs", lambda: (connection.execute(query, values).fetchone() or (False,))[0])
