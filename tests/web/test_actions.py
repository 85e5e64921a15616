"""Actions are those of the SQL functions, in the name of the person who signed in."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.db.test_names import questionable
from tests.web.support.browsing import act, app, assert_refused, client, post, sign_in, text
from tests.web.support.logins import Logins


def audited(db: Db) -> list[tuple[Any, ...]]:
    found = db.execute(
        "SELECT requested_by, verb, object, outcome, error FROM cronledger.audit"
        " WHERE verb NOT IN ('add', 'edit') ORDER BY id"
    )
    return [tuple(row.values()) for row in found]


def test_an_action_and_a_refusal_bear_the_name_of_their_person_and_are_audited(
    by_token: TestClient, db: Db
) -> None:
    rows.job(db)
    execution = str(rows.execution(db, "RUNNING")["id"])
    sign_in(by_token)
    assert f"Cancel execution {execution}" in text(by_token.get("/").text)
    after = act(by_token, "/execution/cancel", id=execution)
    assert f"Execution {execution} is requested to end. Its runner is notified." in after
    shown = text(by_token.get("/").text)
    assert "cancel requested by alice" in shown and "is requested to end" not in shown
    assert value(db, "SELECT cancel_requested_by FROM cronledger.executions") == "alice"
    refused = post(by_token, "/execution/cancel", id="42")
    assert_refused(refused, "execution 42 does not exist", 404)
    assert "Its partition may have been dropped after retention." in text(refused.text)
    assert audited(db) == [
        ("alice", "cancel", execution, "requested", None),
        ("alice", "cancel", "42", "refused", "execution 42 does not exist"),
    ]


def test_a_refused_action_on_several_jobs_is_one_row_for_each(browser: TestClient, db: Db) -> None:
    for name in ("a", "b"):
        rows.job(db, name)
    chosen = {"job": ["a", "b"], "confirmed": "yes", "reason": "moving", "until": "2020-01-01"}
    post(browser, "/jobs/pause", **chosen)
    assert [row[1:4] for row in audited(db)] == [
        ("pause", "a", "refused"), ("pause", "b", "refused"),
    ]  # fmt: skip
    transactions = "SELECT count(DISTINCT xmin::text) FROM cronledger.operator_actions"
    assert value(db, transactions + " WHERE outcome = 'refused'") == 1


def test_a_form_that_cannot_be_read_is_refused(browser: TestClient, db: Db) -> None:
    for data in ({"id": "x"}, {"id": "9" * 30}, {"id": ["1", "2"]}, {}):
        assert post(browser, "/execution/cancel", **data).status_code == 400, data
    assert post(browser, "/execution/cancel", id="1" * 5_000_000).status_code == 413
    chosen = {"job": [f"j{n}" for n in range(10_001)], "confirmed": "yes", "reason": "moving"}
    refused = post(browser, "/jobs/pause", **chosen)
    assert_refused(refused, "10,001 jobs are chosen: choose at most 10,000 at once.")
    assert audited(db) == []


def test_an_action_that_the_database_did_not_confirm_is_reported(
    database_url: str, logins: Logins
) -> None:
    away = "host=127.0.0.1 port=1 dbname=none"
    with client(app(database_url, logins, web_act_url=away)) as browser:
        refused = post(browser, "/execution/cancel", id="1")
        assert_refused(refused, "It is not known whether anything was changed.", 503)
        assert browser.get("/").status_code == 200


def test_a_login_that_may_not_act_gets_the_remedy_and_saves_views(
    database_url: str, logins: Logins
) -> None:
    viewer = logins.url(database_url, "viewer")
    with client(app(database_url, logins, web_act_url=viewer)) as browser:
        refused = post(browser, "/queues/pause-all")
        assert_refused(refused, "permission denied for function pause_all", 409)
        assert "grant the right to the current role" in text(refused.text)
        assert "is saved" in act(browser, "/ledger/views/save?job=a", name="mine")


@pytest.mark.long
def test_an_action_on_a_job_whose_name_ends_with_a_blank_is_not_one_on_another_job(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "pay")
    questionable(db, "pay ", description="the other one")
    assert "the other one" in text(browser.get("/job/pay%20").text)
    assert "the other one" not in text(browser.get("/job/pay").text)
    assert post(browser, "/job-pause", name="pay ", reason=" incident ").status_code == 303
    paused = "SELECT array_agg(name || ':' || paused_reason) FROM cronledger.jobs"
    assert value(db, paused + " WHERE paused_at IS NOT NULL") == ["pay :incident"]
