"""What `import … --observe` writes into other schedulers reports the runs of their jobs."""

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from celery import Celery, signals

from cronledger.contrib import apscheduler as of_apscheduler
from cronledger.contrib import celery as of_celery
from cronledger.contrib import reporting
from cronledger.sources import pg_cron
from tests.db.support.engine import Ledger
from tests.unreachable import CLOSED
from tests.waiting import PATIENCE, until

REPORTS = """
    SELECT source, ended_at IS NOT NULL, coalesce(error, '') FROM reports ORDER BY started_at, id"""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "FLUSH_SECONDS", PATIENCE)


@pytest.fixture
def tidy(ledger: Ledger) -> Ledger:
    """A ledger with the observed job `tidy`."""
    ledger.job("tidy", handler="observed")
    return ledger


def wrapped(command: str) -> str:
    """Return what pg_cron runs once its job has been altered, with a short wait for locks."""
    row = pg_cron.Row(1, "tidy", "0 3 * * *", command, "", "shop", "jo", True)
    imported = pg_cron.convert([row], pg_cron.Options("shop", observe=True))
    wrapper = imported.sources[0].entries[0].wrapper
    _, delimiter, rest = wrapper.partition("$command$")
    return rest.removesuffix(f"{delimiter});").replace("'2s'", "'20ms'")


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("CREATE TABLE kept (a int); INSERT INTO kept VALUES (1)", None),
        ("SELECT 1 / 0", "division by zero"),
        ("DO 'BEGIN RAISE query_canceled USING MESSAGE = ''stop''; END'", "stop"),
        ("DO 'BEGIN ASSERT false, ''too few''; END'", "too few"),
        (
            "CREATE TABLE t (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
            " INSERT INTO t VALUES (1), (1)",
            'duplicate key value violates unique constraint "t_a_key"',
        ),
    ],
)
def test_a_wrapped_command_of_pg_cron_reports_its_end_also_if_it_fails_F121(
    tidy: Ledger, command: str, error: str | None
) -> None:
    with psycopg.connect(tidy.url, autocommit=True) as connection:
        if error is None:
            connection.execute(wrapped(command))
            assert connection.execute("SELECT * FROM kept").fetchall() == [(1,)]
        else:
            with pytest.raises(psycopg.Error, match=error):
                connection.execute(wrapped(command))
    assert tidy.values(REPORTS) == [("pg_cron", True, error or "")]


@pytest.mark.parametrize("is_gone", [False, True], ids=["locked", "unknown"])
def test_a_wrapped_command_of_pg_cron_runs_without_its_reports_F121(
    tidy: Ledger, is_gone: bool
) -> None:
    """Its settings are those of its session, and its own error is that of the statement."""
    limit = "current_setting('lock_timeout') AS waits"
    with (
        psycopg.connect(tidy.url, autocommit=True) as connection,
        psycopg.connect(tidy.url) as other,
    ):
        told: list[str] = []
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        connection.execute("SET lock_timeout = '7min'")
        other.execute("DELETE FROM cronledger.jobs")
        other.execute("DELETE FROM cronledger.schedules")
        if is_gone:
            other.commit()
        connection.execute(wrapped(f"CREATE TABLE kept AS SELECT {limit}"))
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(wrapped("SELECT 1 / 0"))
        kept = connection.execute(f"SELECT waits, {limit} FROM kept").fetchall()
    assert kept == [("7min", "7min")]
    assert [line.partition(":")[0] for line in told] == [
        f"cronledger has no report of the {which}" for which in ("start", "end")
    ] * 2
    assert tidy.values(REPORTS) == []


def test_the_start_of_a_wrapped_command_is_visible_while_it_runs_F121(tidy: Ledger) -> None:
    with psycopg.connect(tidy.url, autocommit=True) as connection:
        seen = "SELECT count(*) FROM cronledger.reports WHERE ended_at IS NULL"
        command = f"CREATE TABLE seen AS {seen}"
        connection.execute(wrapped(command))
        assert connection.execute("SELECT * FROM seen").fetchall() == [(1,)]
        ended = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE relation = 'cronledger.schedules'::regclass"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert ended.fetchall() == [(0,)]


@pytest.fixture
def app(tidy: Ledger) -> Iterator[Celery]:
    """An app whose workers report."""
    made = Celery("observed", broker="memory://", set_as_current=False)
    used = (
        signals.task_prerun, signals.task_postrun, signals.worker_shutdown,
        signals.worker_process_shutdown,
    )  # fmt: skip
    before = {signal: [*signal.receivers] for signal in used}
    of_celery.observe(tidy.url)
    yield made
    for signal, receivers in before.items():
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()


def test_workers_of_celery_report_the_tasks_whose_message_names_a_job_F121(
    tidy: Ledger, app: Celery
) -> None:
    def work(what: str) -> None:
        if what:
            raise ValueError(what)

    task = app.task(work)
    task.apply([""])
    for what in ("", "no disk"):
        task.apply([what], headers={"cronledger_job": "tidy"})
    ended = [("celery", True, ""), ("celery", True, "FAILURE: ValueError('no disk')")]
    signals.worker_process_shutdown.send(sender=None, pid=1, exitcode=0)
    assert sorted(tidy.values(REPORTS)) == ended, "the process of a worker ends after its reports"


def test_a_scheduler_of_apscheduler_reports_its_jobs_F121(tidy: Ledger) -> None:
    def fail() -> None:
        raise ValueError("no disk")

    scheduler = BackgroundScheduler(timezone="UTC")
    of_apscheduler.observe(scheduler, tidy.url, {"a": "tidy", "b": "tidy"})
    scheduler.start()
    try:
        for number, function in (("a", int), ("b", fail), ("c", int)):
            scheduler.add_job(function, id=number, misfire_grace_time=None)
        errors = ["", "ValueError('no disk')"]
        until("both reports", lambda: sorted(
            error for _, ended, error in tidy.values(REPORTS) if ended
        ) == errors)  # fmt: skip
    finally:
        scheduler.shutdown()


def test_reports_wait_until_the_database_can_be_reached_F121(
    tidy: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "_PAUSE_SECONDS", 0.01)
    reachable = False

    def connect(*args: Any, **settings: Any) -> Any:
        if not reachable:
            raise psycopg.OperationalError("unreachable")
        return psycopg.Connection.connect(*args, **settings)

    monkeypatch.setattr(psycopg, "connect", connect)
    reporter = reporting.Reporter(tidy.url, "cronledger", "program")
    begun = time.monotonic()
    reporter.started("tidy", "1")
    reporter.ended("tidy", "1", None)
    assert tidy.values(REPORTS) == []
    reachable = True
    until("the end", lambda: tidy.values(REPORTS) == [("program", True, "")])
    waited = tidy.one("SELECT extract(epoch FROM received_at - started_at) FROM reports")
    assert 0 <= float(waited) <= time.monotonic() - begun


def test_a_report_that_cannot_be_right_does_not_hold_up_the_others_F121(
    tidy: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = reporting.Reporter(tidy.url, "cronledger", "program")
    for job, run_key in (("absent", "1"), ("tidy", "k" * 201), ("\ud800", "1"), ("tidy", "1")):
        reporter.ended(job, run_key, None)
    reporter.flush()
    assert tidy.values(REPORTS) == [("program", True, "")]
    assert [line.levelname for line in caplog.records] == ["ERROR"] * 3
    assert "job 'absent' does not exist" in caplog.messages[0]


def test_a_report_does_not_wait_for_ever_F121(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "_PAUSE_SECONDS", 0.01)
    reporter = reporting.Reporter(CLOSED, "cronledger", "program")
    reporter.started("tidy", "1")
    until("the warning", lambda: caplog.records)
    monkeypatch.setattr(reporting, "KEPT_SECONDS", 0.0)
    reporter.flush()
    assert [line.levelname for line in caplog.records] == ["WARNING", "ERROR"]
