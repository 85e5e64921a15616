"""Actions are those of the SQL functions, in the name of the person who signed in."""

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, one
from tests.web.support.browsing import SAME_ORIGIN, act, app, client, text
from tests.web.support.logins import Logins


def test_an_action_bears_the_name_of_its_person(by_token: TestClient, db: Db) -> None:
    rows.job(db)
    execution = rows.execution(db, "RUNNING")["id"]
    by_token.post("/sign-in", data={"token": "alice-secret"}, headers=SAME_ORIGIN)
    assert f"Cancel execution {execution}" in text(by_token.get("/").text)
    after = act(by_token, "/execution/cancel", id=str(execution))
    assert f"Execution {execution} is requested to end. Its runner is notified." in after
    assert "cancel requested by alice" in text(by_token.get("/").text)
    assert "is requested to end" not in text(by_token.get("/").text)
    row = one(db.execute("SELECT cancel_requested_by FROM cronledger.executions"))
    assert row["cancel_requested_by"] == "alice"


def test_a_refusal_of_the_ledger_has_its_remedy(browser: TestClient) -> None:
    refused = browser.post("/execution/cancel", data={"id": "42"}, headers=SAME_ORIGIN)
    assert refused.status_code == 404
    assert "execution 42 does not exist" in text(refused.text)
    assert "Its partition may have been dropped after retention." in text(refused.text)


def test_a_form_that_cannot_be_read_is_refused(browser: TestClient) -> None:
    for data in ({"id": "x"}, {"id": "9" * 30}, {"id": ["1", "2"]}, {}):
        refused = browser.post("/execution/cancel", data=data, headers=SAME_ORIGIN)
        assert refused.status_code == 400, refused.text
    large = browser.post("/execution/cancel", data={"id": "1" * 5_000_000}, headers=SAME_ORIGIN)
    assert large.status_code == 413


def test_an_action_that_the_database_did_not_confirm_is_reported(
    database_url: str, logins: Logins
) -> None:
    away = "host=127.0.0.1 port=1 dbname=none"
    with client(app(database_url, logins, web_act_url=away)) as browser:
        refused = browser.post("/execution/cancel", data={"id": "1"}, headers=SAME_ORIGIN)
        assert refused.status_code == 503
        assert "Whether something was changed is not known." in text(refused.text)
        assert browser.get("/").status_code == 200


def test_a_login_that_may_not_act_gets_the_remedy(database_url: str, logins: Logins) -> None:
    viewer = logins.url(database_url, "viewer")
    with client(app(database_url, logins, web_act_url=viewer)) as browser:
        refused = browser.post("/queues/pause-all", headers=SAME_ORIGIN)
        assert refused.status_code == 409
        assert "permission denied for function pause_all" in text(refused.text)
        assert "grant the right to the current role" in text(refused.text)
