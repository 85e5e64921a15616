"""The page Verify: recorded runs, a run that people start, and the checks of doctor."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from html import unescape

import psycopg
import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from cronledger.explain.findings import DoctorContext, Finding
from cronledger.web import examining, reading
from cronledger.web.examining import UNDER_WAY
from tests.cli.support.clocks import set_ten_past
from tests.db.support import rows
from tests.db.support.rows import Db, connected, one, value
from tests.waiting import until
from tests.web.support.browsing import (
    VIEWER,
    app,
    assert_refused,
    client,
    expire,
    panel,
    post,
    sign_in,
    text,
)
from tests.web.support.history import planned
from tests.web.support.logins import Logins

HOUR = timedelta(hours=1)
TURN = "cronledger web verifies cronledger"
"""The name of the session that has the turn to verify."""


def spoil(db: Db) -> None:
    """A job whose cursor went over three plan_times without a row."""
    set_ten_past(db)
    rows.job(db, "hourly", schedule="0 * * * *")
    now = rows.now(db)
    planned(db, now.replace(minute=0, second=0, microsecond=0) - timedelta(minutes=150), now)


def start(browser: TestClient, **data: str) -> str:
    """Start a run, and return what the page says afterwards."""
    done = post(browser, "/verify", **{"window": "all", **data})
    assert done.status_code == 303, text(done.text)
    return text(browser.get(done.headers["location"]).text)


def ended(browser: TestClient) -> str:
    """The page once no run is under way in its process.

    The first page that says so may have read the runs before the end: it waits for the checks.
    """
    until("the run has ended", lambda: "Run verify" in browser.get("/verify").text)
    expire(browser)
    return browser.get("/verify").text


def checked(browser: TestClient) -> str:
    """The panel of doctor once its checks are made."""

    def doctor() -> str:
        found = panel(browser.get("/verify").text, "doctor")
        return "" if UNDER_WAY in found else found

    return until("the checks are made", doctor)


def wait_until_the_turn_is_free(db: Db) -> None:
    """Return once no session has the turn: the server ends one after its client has closed it."""
    sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        " AND datname = current_database()"
    )
    until("the older run has ended", lambda: value(db, sessions, TURN) == 0)


@contextmanager
def held(database_url: str) -> Iterator[None]:
    """Every run of verify waits for a lock within the block."""
    with connected(database_url) as c, c.transaction():
        c.execute("ALTER VIEW cronledger.verify_executions ALTER COLUMN id SET DEFAULT 0")
        try:
            yield
        finally:
            c.execute("ALTER VIEW cronledger.verify_executions ALTER COLUMN id DROP DEFAULT")


@pytest.mark.long
def test_recorded_runs_have_their_state_and_their_result(browser: TestClient, db: Db) -> None:
    page = browser.get("/verify").text
    assert re.findall(r'<option value="(\w+)">', page) == ["all", "7d", "1d"]
    assert "Nobody knows whether this ledger keeps its promises" in panel(page, "last")
    expire(browser)
    at = rows.now(db)
    rows.verification(
        db, plan_times=96, executions=90, skips=6, checked_after=at - 24 * HOUR, checked_through=at
    )
    rows.verification(
        db, job_name="report", violations=3, kinds=Jsonb({"missing": 2, "extra": 1}), accepted=1
    )
    stale = Jsonb({"stale": 1})
    rows.verification(
        db, outcome="interrupted", error="KeyboardInterrupt", violations=1, kinds=stale
    )
    rows.insert(
        db, "verification_runs", requested_by="alice", version="1", started_at=at,
        from_plan_time=at - HOUR,
    )  # fmt: skip
    page = browser.get("/verify").text
    last = panel(page, "last")
    assert "no violation" in last and "nightly" in last
    assert "96" in last and "90 executions, 6 skips" in last
    runs = panel(page, "runs")
    assert "unfinished (runs elsewhere, or was killed)" in runs
    assert "interrupted KeyboardInterrupt 1 violation 1 stale until then" in runs
    assert "finished 3 violations 1 extra, 2 missing and 1 accepted report" in runs
    order = [runs.index(word) for word in ("unfinished", "interrupted", "3 violations", "96")]
    assert order == sorted(order)
    violating = panel(page, "violating")
    assert "Run 3: 1 violation 1 stale" in violating
    assert "Run 2 of report: 3 violations 1 extra, 2 missing" in violating
    rows.verification(db)
    expire(browser)
    assert 'id="violating"' not in browser.get("/verify").text


@pytest.mark.long
def test_a_run_of_an_operator_is_made_in_the_background_and_recorded(
    by_token: TestClient, db: Db
) -> None:
    spoil(db)
    db.execute("UPDATE cronledger.jobs SET timezone = 'Asia/Kolkata'")
    assert "Operators run it here" in text(by_token.get("/verify", headers=VIEWER).text)
    assert by_token.post("/verify", data={"window": "1d"}, headers=VIEWER).status_code == 403
    sign_in(by_token)
    assert "Run 1 checks all kept history of all jobs." in start(by_token)
    page = ended(by_token)
    assert "1 violation 1 missing" in panel(page, "last")
    assert "missing hourly" in panel(page, "found")
    # In the zone of the job, as is the time in the detail.
    assert re.search(r"IST 3 .* plan_times up to [\w :]+ IST", panel(page, "found"))
    rows.job(db, "other")
    wait_until_the_turn_is_free(db)
    assert "Run 2 checks the last day of other" in start(by_token, window="1d", job="other")
    assert "1 violation 1 missing" in panel(ended(by_token), "last")  # of all jobs
    first, second = db.execute("SELECT * FROM cronledger.verifications ORDER BY id").fetchall()
    assert (first["outcome"], first["violations"]) == ("finished", 1)
    assert (first["from_plan_time"], first["requested_by"]) == (None, "alice")
    assert (second["job_name"], second["violations"]) == ("other", 0)
    assert second["started_at"] - second["from_plan_time"] < timedelta(days=1, minutes=5)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("cancel", "interrupted QueryCanceled"),
        ("terminate", "unfinished (ended here, but its end could not be recorded)"),
    ],
)
@pytest.mark.long
def test_one_run_at_a_time_and_the_page_shows_it_and_why_it_failed(
    browser: TestClient, database_url: str, db: Db, end: str, state: str
) -> None:
    spoil(db)
    sessions = (
        "FROM pg_stat_activity WHERE application_name LIKE 'cronledger web verifies%%'"
        " AND datname = current_database()"
    )
    with held(database_url):
        start(browser)
        page = browser.get("/verify").text
        assert "run 1 checks" in panel(page, "run") and "Run verify" not in page
        assert "running here" in panel(page, "runs")
        second = post(browser, "/verify", window="all")
        assert_refused(second, "This process runs verify already.", 409)
        waiting = f"SELECT count(*) {sessions} AND wait_event_type = 'Lock'"
        until("the run waits", lambda: value(db, waiting))
        db.execute(f"SELECT pg_{end}_backend(pid) {sessions}", [])
        page = ended(browser)
    assert "Run 1 failed" in panel(page, "run")
    assert state in panel(page, "runs") and "running here" not in panel(page, "runs")


@pytest.mark.long
def test_one_run_at_a_time_over_all_processes_of_the_page(
    browser: TestClient, db: Db, database_url: str, logins: Logins
) -> None:
    login = logins.url(database_url, "operator")
    stranger = psycopg.connect(database_url, application_name=TURN)  # of another role
    with stranger, psycopg.connect(login, application_name=TURN):  # an older run
        refused = post(browser, "/verify", window="all")
        assert_refused(refused, "Another process of the page runs verify already.", 409)
        assert value(db, "SELECT count(*) FROM cronledger.verifications") == 0
    wait_until_the_turn_is_free(db)
    start(browser)
    ended(browser)


@pytest.mark.long
def test_a_stop_of_the_server_interrupts_the_run(database_url: str, logins: Logins, db: Db) -> None:
    spoil(db)
    with held(database_url), client(app(database_url, logins)) as browser:
        start(browser)
        rows_waiting = (
            "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        until("the run waits", lambda: value(db, rows_waiting))
        browser.__exit__(None, None, None)
        made = one(db.execute("SELECT * FROM cronledger.verifications"))
        browser.__enter__()
    assert made["outcome"] == "interrupted"
    assert made["error"] == "StoppedError: the server of the web page was stopped"


def test_an_invalid_form_of_a_run_is_refused(browser: TestClient, db: Db) -> None:
    cases: tuple[tuple[dict[str, str], int, str], ...] = (
        ({"window": "3d"}, 400, "window is one of all, 7d, 1d, not '3d'."),
        ({}, 400, "window is one of"),
        ({"window": "1d", "job": "none"}, 404, "The job none does not exist."),
    )
    for data, status, message in cases:
        assert_refused(post(browser, "/verify", **data), message, status)
    assert value(db, "SELECT count(*) FROM cronledger.verifications") == 0


def test_a_login_that_may_not_record_a_run_gets_the_remedy(
    database_url: str, logins: Logins, db: Db
) -> None:
    viewer = logins.url(database_url, "viewer")
    with client(app(database_url, logins, web_act_url=viewer)) as browser:
        for _ in range(2):  # the refused one does not count as a run
            wait_until_the_turn_is_free(db)
            refused = post(browser, "/verify", window="all")
            assert_refused(refused, "permission denied for function begin_verification", 409)
            assert "grant the right to the current role" in text(refused.text)
        assert "Run verify" in browser.get("/verify").text


def test_doctor_has_a_remedy_for_each_finding(browser: TestClient, db: Db) -> None:
    rows.job(db, "alone")
    doctor = checked(browser)
    assert "runners problem no replica is alive start one with cronledger run" in doctor
    assert "jobs problem no live runner can run alone (queue default) start a replica" in doctor
    assert "autovacuum ok" in doctor
    for check in ("pooler", "listening", "roles"):
        assert f"{check} not checked depends on the connection string" in doctor


def test_only_the_commands_of_a_remedy_are_code(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What people wrote keeps its backquotes: a finding quotes it, and a remedy a quoted name."""
    found = "it is invalid: `<b>`"
    remedy = "run `cronledger queues resume 'a `b`'`, or apply 'c `<d>`' again"
    findings = [Finding("queues", "problem", found, remedy)]
    monkeypatch.setattr(examining, "examine", lambda *_, **__: findings)
    checked(browser)
    shown = browser.get("/verify").text
    assert found in unescape(shown) and "<b>" not in shown and "<d>" not in shown
    command = "<code>cronledger queues resume 'a `b`'</code>"
    assert f"run {command}, or apply 'c `<d>`' again" in unescape(shown)


def test_checks_are_made_read_only_with_the_patience_of_the_page(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def look(context: DoctorContext, **_: object) -> list[Finding]:
        for setting in ("transaction_read_only", "statement_timeout"):
            with context.transaction():
                row = context.connection.execute(f"SHOW {setting}".encode()).fetchone()
                assert row is not None
                seen.append(row[0])
        return [Finding("look", "ok", "looked")]

    monkeypatch.setattr(examining, "STATEMENT_SECONDS", reading.STATEMENT_SECONDS)
    monkeypatch.setattr(examining, "examine", look)
    assert "look" in checked(browser)
    assert seen == ["on", "3s"]


def test_without_its_database_the_page_states_it(database_url: str, logins: Logins) -> None:
    away = "host=127.0.0.1 port=1 dbname=none"
    with client(app(database_url, logins, web_read_url=away)) as browser:
        assert "the database is unreachable" in checked(browser)
        page = browser.get("/verify")
        assert page.status_code == 200 and 'class="away"' in page.text
