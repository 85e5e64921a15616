"""The page Execution: one execution, its attempts, what changed, and what may be done."""

from datetime import timedelta

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import OPERATOR, VIEWER, act, app, client, panel, text
from tests.web.support.logins import Logins

PARTS = {
    "result": "SELECT FROM cronledger.execution_status WHERE result ->> 'rows' = '7'",
    "output": "SELECT FROM cronledger.execution_status WHERE output = 'said so'",
    "payload": "SELECT FROM cronledger.execution_payloads WHERE payload ->> 'user' = 'ada'",
    "target": "SELECT FROM cronledger.job_targets WHERE target ->> 'command' LIKE '%deploy%'",
}
"""What a role may read of an execution and of its job."""
SECRETS = {"user": "ada", "Password": "hunter2", "deep": [{"token": ["hunter2"]}]}


def page(browser: TestClient, execution: int) -> str:
    found = browser.get(f"/execution/{execution}")
    assert found.status_code == 200, text(found.text)
    return found.text


@pytest.mark.long
def test_an_execution_has_its_course(browser: TestClient, db: Db) -> None:
    rows.job(db)
    at = rows.now(db) - timedelta(minutes=9)
    crash = {
        "attempt": 1, "runner_id": "r0", "started_at": at.isoformat(),
        "lease_token": "secret-token", "last_seen": (at + timedelta(seconds=30)).isoformat(),
        "error_code": "runner_crashed",
    }  # fmt: skip
    execution = rows.execution(
        db, "FAILED", attempt=2, plan_time=at, attempts=Jsonb([crash]),
        started_at=at + timedelta(minutes=1), finished_at=at + timedelta(minutes=3),
    )["id"]  # fmt: skip
    shown = page(browser, execution)
    assert "FAILED: boom" in panel(shown, "execution") and "it broke" in panel(shown, "execution")
    attempts = panel(shown, "attempts")
    assert "1 won r0" in attempts and "runner_crashed" in attempts
    assert "2 stolen r1" in attempts
    assert shown.count("<rect") == 2 and "secret-token" not in shown
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    traced = rows.execution(db, trace_id=trace)["id"]
    assert f"Trace {trace}" in panel(page(browser, traced), "execution")
    other = rows.execution(db)["id"]
    assert "Trace" not in panel(page(browser, other), "execution")
    assert "Window" not in panel(page(browser, other), "execution")
    given = rows.execution(db, window_start=at - timedelta(hours=1))["id"]
    assert "Window " in panel(page(browser, given), "execution")
    for attempt, claimed in ((0, "not yet"), (1, "released")):
        waits = rows.execution(db, "PENDING", scope_id=str(attempt), attempt=attempt)["id"]
        assert f"Claimed {claimed} Ended not yet" in panel(page(browser, waits), "execution")


def test_what_changed_since_the_last_success_is_named(browser: TestClient, db: Db) -> None:
    rows.job(db, grace="1 min")
    rows.runner(db, "r1", version="1.0")
    rows.runner(db, "r2", version="2.0")
    at = rows.now(db)
    good = rows.execution(db, "SUCCESS", plan_time=at - timedelta(hours=2))["id"]
    db.execute("UPDATE cronledger.jobs SET grace = '2 min'")
    bad = rows.execution(
        db, "FAILED", plan_time=at - timedelta(hours=1), revision=2, runner_id="r2"
    )["id"]
    changes = panel(page(browser, bad), "changes")
    assert f"execution {good}" in changes and "which took 2.0s" in changes
    assert "revision 1 2" in changes and "runner r1 r2" in changes
    assert "version of the runner 1.0 2.0" in changes
    assert "grace 00:01:00 00:02:00" in changes
    neighbours = panel(page(browser, good), "neighbours")
    assert neighbours.index("FAILED") < neighbours.index("SUCCESS")


@pytest.mark.long
def test_a_person_sees_the_same_on_the_page_and_in_the_database(
    by_token: TestClient, database_url: str, logins: Logins, db: Db
) -> None:
    rows.job(db, target=Jsonb({"command": ["deploy"]}))
    execution = rows.execution(
        db, payload=Jsonb(SECRETS), result=Jsonb({"rows": 7, "secret": "hunter2"}), output="said so"
    )["id"]
    for headers, group in ((OPERATOR, "operator"), (VIEWER, "viewer")):
        shown = by_token.get(f"/execution/{execution}", headers=headers).text
        job = by_token.get("/job/job", headers=headers).text
        on_page = {
            "result": "&#34;rows&#34;: 7" in shown, "output": "said so" in shown,
            "payload": "ada" in shown, "target": "deploy" in text(job),
        }  # fmt: skip
        assert "hunter2" not in shown
        in_database = {}
        with psycopg.connect(logins.url(database_url, group), autocommit=True) as c:
            for name, statement in PARTS.items():
                try:
                    in_database[name] = c.execute(statement.encode()).fetchone() is not None
                except InsufficientPrivilege:
                    in_database[name] = False
        assert on_page == in_database
        hidden = {name for name, sees in on_page.items() if not sees}
        assert hidden == ({"payload", "target"} if group == "viewer" else set())


def test_the_settings_name_what_is_hidden(database_url: str, logins: Logins, db: Db) -> None:
    rows.job(db)
    payload = {"Iban": "DE00", "accounts": [{"iban": "DE11"}], "token": "visible"}
    execution = rows.execution(db, payload=Jsonb(payload))["id"]
    with client(app(database_url, logins, web_redact=["IBAN"])) as browser:
        shown = page(browser, execution)
    assert "DE00" not in shown and "DE11" not in shown and "visible" in shown


def test_an_execution_that_does_not_exist_is_refused(browser: TestClient) -> None:
    for id, status in {"42": 404, "x": 400, "": 400, "9" * 19: 400}.items():
        assert browser.get(f"/execution/{id}").status_code == status


@pytest.mark.long
def test_an_execution_is_retried_and_cancelled(browser: TestClient, db: Db) -> None:
    rows.job(db)
    execution = str(rows.execution(db, "FAILED")["id"])
    assert f"Execution {execution} has one more attempt" in act(
        browser, "/execution/retry", id=execution
    )
    assert value(db, "SELECT next_attempt_at IS NOT NULL FROM cronledger.executions")
    assert f"Execution {execution} was waiting" in act(browser, "/execution/cancel", id=execution)
    assert value(db, "SELECT status FROM cronledger.executions") == "CANCELLED"
    # An unknown end needs a confirmation.
    execution = str(rows.execution(db, "FAILED", error_code="stale_timeout")["id"])
    assert "It has ended, and may run again" in text(page(browser, int(execution)))
    refused = act(browser, "/execution/retry", id=execution)
    assert "the end of attempt 1 is unknown (stale_timeout)" in refused
    assert "has one more attempt" in act(browser, "/execution/retry", id=execution, force="yes")
