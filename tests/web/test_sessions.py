"""Sessions of people who signed in with a token: who knows them, what ends them, their cookie."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger.web.access import sessions
from tests.db.support.rows import Db
from tests.web.support.browsing import SAME_ORIGIN, TOKENS, app, client, sign_in, text
from tests.web.support.logins import Logins
from tests.web.support.outages import away

PEER = "203.0.113.9"
PUBLIC = {"web_public_url": "https://cron.example.com"}
HTTPS = {"X-Forwarded-Proto": "https"}


def process(database_url: str, logins: Logins, **settings: Any) -> TestClient:
    given = {"web_auth": "token", "web_tokens": TOKENS} | settings
    return client(app(database_url, logins, **given), PEER)


@pytest.fixture
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "FRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("read_each_time")
@pytest.mark.long
def test_a_sign_out_ends_the_session_in_every_process_and_that_of_a_copied_cookie(
    database_url: str, logins: Logins, db: Db
) -> None:
    with process(database_url, logins) as first:
        cookie = sign_in(first).partition(";")[0]
    copied = {"Cookie": cookie}
    stored = str(db.execute("SELECT * FROM cronledger.page_sessions").fetchall())
    for secret in ("alice-secret", sessions.hashed("alice-secret"), cookie.partition("=")[2]):
        assert secret not in stored
    assert "alice-secret" not in cookie
    assert sessions.hashed("alice-secret") not in cookie
    with process(database_url, logins, web_tokens=TOKENS[1:]) as without_her_token:
        assert without_her_token.get("/", headers=copied).status_code == 303
    with process(database_url, logins) as restarted, process(database_url, logins) as other:
        for one in (restarted, other):
            assert "alice operator" in text(one.get("/", headers=copied).text)
        assert other.post("/sign-out", headers=SAME_ORIGIN | copied).status_code == 303
        for one in (restarted, other):
            assert one.get("/", headers=copied).status_code == 303


def test_a_page_without_a_login_that_may_act_has_sessions(
    database_url: str, logins: Logins
) -> None:
    viewer = logins.url(database_url, "viewer")
    with process(database_url, logins, web_act_url=viewer) as browser:
        sign_in(browser)
        assert browser.get("/").status_code == 200
        browser.post("/sign-out", headers=SAME_ORIGIN)
        assert browser.get("/").status_code == 303


def test_a_session_ends_by_itself_and_a_token_has_a_hundred_at_most(
    database_url: str, logins: Logins, db: Db
) -> None:
    begin = "SELECT cronledger.begin_page_session(%s, %s, interval '1 day')"
    token = sessions.hashed(sessions.hashed("alice-secret"))
    with process(database_url, logins) as browser:
        sign_in(browser)
        db.execute("UPDATE cronledger.page_sessions SET expires_at = cronledger.db_now()")
        browser.app.state.site.access._sessions._known.clear()  # type: ignore[attr-defined]
        assert browser.get("/").status_code == 303
    for number in range(101):
        db.execute(begin, [sessions.hashed(str(number)), token])
    rows = db.execute("SELECT id FROM cronledger.page_sessions").fetchall()
    assert {row["id"] for row in rows} == {sessions.hashed(str(n)) for n in range(1, 101)}


@pytest.mark.usefixtures("read_each_time")
def test_a_known_session_continues_while_the_database_is_away(
    database_url: str, logins: Logins
) -> None:
    with process(database_url, logins) as browser:
        name = sign_in(browser).partition("=")[0]
        assert browser.get("/").status_code == 200
        with away(database_url):
            assert browser.get("/").status_code == 200
            browser.cookies.clear()
            unknown = browser.get("/", headers={"Cookie": f"{name}=x"})
            assert unknown.status_code == 503
            assert "confirm the session" in text(unknown.text)


@pytest.mark.long
def test_the_cookie_is_secure_if_the_browser_uses_https(database_url: str, logins: Logins) -> None:
    proxied = {"web_proxy_peers": [PEER]}
    cases: tuple[tuple[Any, dict[str, str], bool], ...] = (
        ({}, HTTPS, False), (proxied, HTTPS, True),
        (proxied, {"X-Forwarded-Proto": "http"}, False), (proxied, {}, False),
        (PUBLIC, {"Host": "cron.example.com"}, True), (PUBLIC, {"Host": "127.0.0.1"}, False),
        ({"web_public_url": "http://cron.example.com"}, {"Host": "cron.example.com"}, False),
    )  # fmt: skip
    for settings, headers, secure in cases:
        with process(database_url, logins, **settings) as browser:
            cookie = sign_in(browser, **headers)
            assert cookie.startswith("__Host-cronledger_session=") is secure
            assert ("; Secure" in cookie) is secure
            assert "; Path=/;" in cookie
            assert "Domain" not in cookie
            shown = browser.get("/", headers={"Cookie": cookie.partition(";")[0], **headers})
            assert shown.status_code == 200
