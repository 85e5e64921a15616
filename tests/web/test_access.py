"""Who may see the page and act on it. Everything that is not permitted is refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from cronledger.settings import Settings
from cronledger.web import create_app
from cronledger.web.access.identity import Identity, Role
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import (
    OPERATOR,
    SAME_ORIGIN,
    VIEWER,
    app,
    assert_refused,
    client,
    expire,
    post,
    text,
)
from tests.web.support.logins import Logins

PROXY: Mapping[str, Any] = {
    "web_auth": "proxy", "web_proxy_peers": ["10.0.0.0/24"], "web_operator_groups": ["ops"],
}  # fmt: skip


@pytest.fixture
def execution(db: Db) -> int:
    rows.job(db)
    found: int = rows.execution(db, "PENDING")["id"]
    return found


def cancel(browser: TestClient, execution: int, **headers: str) -> Any:
    return browser.post("/execution/cancel", data={"id": str(execution)}, headers=headers)


@pytest.mark.long
def test_loopback_serves_this_machine_and_refuses_foreign_names_proxies_and_machines(
    browser: TestClient, database_url: str, logins: Logins
) -> None:
    for host in ("127.0.0.1", "localhost:8642", "[::1]:8642"):
        assert browser.get("/", headers={"Host": host}).status_code == 200
    for name, given in (
        ("Host", "rebound.example"), ("Host", "127.0.0.1.example"),
        ("X-Forwarded-For", "203.0.113.9"), ("Forwarded", "for=203.0.113.9"),
    ):  # fmt: skip
        for path in ("/", "/metrics"):
            assert browser.get(path, headers={name: given}).status_code == 403
    with client(app(database_url, logins), peer="10.0.0.7") as other:
        assert_refused(other.get("/"), "CRONLEDGER_WEB_AUTH=token", 403)
        assert other.get("/static/page.css").status_code == 403


def test_without_a_token_there_is_only_the_form(by_token: TestClient) -> None:
    response = by_token.get("/?a=b c")
    assert response.status_code == 303
    assert response.headers["location"] == "/sign-in?next=%2F%3Fa%3Db%2520c"
    form = by_token.get(response.headers["location"])
    assert form.status_code == 200 and 'value="/?a=b%20c"' in form.text
    assert "Running" not in form.text and "shop" not in form.text
    assert by_token.get("/static/page.css").status_code == 200


def test_a_person_signs_in(by_token: TestClient) -> None:
    wrong = post(by_token, "/sign-in", token="guess")
    assert_refused(wrong, "This token is unknown.", 403)
    assert "set-cookie" not in wrong.headers
    entered = post(by_token, "/sign-in", token="alice-secret", next="/?a=1")
    assert entered.status_code == 303 and entered.headers["location"] == "/?a=1"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie
    page = by_token.get("/")
    assert "alice operator" in text(page.text) and "alice-secret" not in page.text


def test_the_form_leads_to_no_other_site(by_token: TestClient) -> None:
    """Somebody with a session is led there at once."""
    for wanted, location in (
        ("//evil.example", "/"), ("https://evil.example", "/"), ("/\\evil", "/"), ("evil", "/"),
        ("/ledger?job=a%20b", "/ledger?job=a%20b"),
    ):  # fmt: skip
        entered = post(by_token, "/sign-in", token="alice-secret", next=wanted)
        assert entered.headers["location"] == location
        again = by_token.get("/sign-in", params={"next": wanted})
        assert (again.status_code, again.headers["location"]) == (303, location)


def test_a_program_sends_its_token_as_bearer(by_token: TestClient) -> None:
    allowed = by_token.get("/", headers=VIEWER)
    assert "grafana viewer" in text(allowed.text)
    assert "cronledger_up 1" in by_token.get("/metrics", headers=VIEWER).text
    for given in ("Bearer guess", "Basic YWxpY2U6", "Bearer", "alice-secret"):
        refused = by_token.get("/", headers={"Authorization": given})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/ledger.json", "/ledger.csv", "/metrics"):
        refused = by_token.get(path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


def test_a_viewer_acts_on_nothing(by_token: TestClient, db: Db, execution: int) -> None:
    refused = cancel(by_token, execution, **VIEWER)
    assert_refused(refused, "grafana may read this page, but may not act on it.", 403)
    assert value(db, "SELECT status FROM cronledger.executions") == "PENDING"
    assert "Cancel" not in by_token.get("/", headers=VIEWER).text


def seen(
    database_url: str, logins: Logins, peer: str, *headers: tuple[str, str] | tuple[bytes, bytes]
) -> Any:
    given: Any = list(headers)
    with client(app(database_url, logins, **PROXY), peer) as browser:
        return browser.get("/", headers=given)


@pytest.mark.long
def test_the_headers_of_the_proxy_decide_and_only_the_named_groups_may_read(
    database_url: str, logins: Logins
) -> None:
    user = (b"X-Forwarded-User", "zoë@example.com".encode())
    viewer = seen(database_url, logins, "10.0.0.7", user)
    assert "zoë@example.com viewer" in text(viewer.text)
    groups = (b"X-Forwarded-Groups", b"staff, ops")
    operator = seen(database_url, logins, "10.0.0.7", (b"X-Forwarded-User", b"zoe"), groups)
    assert "zoe operator" in text(operator.text)
    page = app(database_url, logins, **PROXY, web_viewer_groups=["staff"])
    with client(page, "10.0.0.7") as browser:
        for given, status in (("staff", 200), ("ops", 200), ("other", 403), ("", 403)):
            headers = {"X-Forwarded-User": "zoe", "X-Forwarded-Groups": given}
            assert browser.get("/", headers=headers).status_code == status


def test_a_forged_or_missing_header_is_refused(database_url: str, logins: Logins) -> None:
    zoe, ops = ("X-Forwarded-User", "zoe"), ("X-Forwarded-Groups", "ops")
    for peer, *headers in (
        ("203.0.113.9", zoe, ops), ("10.0.0.7",), ("10.0.0.7", ("X-Forwarded-User", " ")),
        ("10.0.0.7", zoe, ("X-Forwarded-User", "root")), ("", zoe),
    ):  # fmt: skip
        assert seen(database_url, logins, str(peer), *headers).status_code == 403


def test_the_embedding_program_identifies_people(database_url: str, logins: Logins) -> None:
    async def identify(request: HTTPConnection) -> Identity | None:
        name = request.headers.get("x-session")
        return None if name is None else Identity(name, Role.VIEWER)

    settings = Settings.load({"web_read_url": logins.url(database_url, "viewer")})
    page = create_app(identify=identify, settings=settings, url=database_url)
    with client(page, "203.0.113.9") as browser:
        assert browser.get("/").status_code == 403
        assert "zoe viewer" in text(browser.get("/", headers={"X-Session": "zoe"}).text)


def test_a_foreign_origin_changes_nothing(browser: TestClient, db: Db, execution: int) -> None:
    """The page itself may act."""
    for headers in (
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
        {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:8000"}, {"Origin": "null"},
        {},
    ):  # fmt: skip
        assert cancel(browser, execution, **headers).status_code == 403, headers
        assert value(db, "SELECT status FROM cronledger.executions") == "PENDING"
    for headers in (SAME_ORIGIN, {"Origin": "http://127.0.0.1"}):
        assert cancel(browser, execution, **headers).status_code == 303
    assert value(db, "SELECT status FROM cronledger.executions") == "CANCELLED"


def test_an_action_needs_the_origin_of_the_page_with_its_scheme(
    database_url: str, logins: Logins, execution: int
) -> None:
    public = "https://cron.example.com"
    user = {"X-Forwarded-User": "zoe", "X-Forwarded-Groups": "ops", "Host": "cron.example.com"}
    with client(app(database_url, logins, **PROXY, web_public_url=public), "10.0.0.7") as browser:
        for origin, status in (
            ("http://cron.example.com", 403), ("https://cron.example.com:8443", 403),
            ("https://cron.example.com", 303), ("HTTPS://CRON.example.com", 303),
        ):  # fmt: skip
            assert cancel(browser, execution, **user, Origin=origin).status_code == status


def test_a_bearer_token_needs_no_origin(by_token: TestClient, db: Db, execution: int) -> None:
    assert cancel(by_token, execution, **OPERATOR, Origin="http://evil.example").status_code == 403
    assert cancel(by_token, execution, **OPERATOR).status_code == 303


def test_every_response_has_the_headers_and_no_inline_script_or_style(
    browser: TestClient, db: Db
) -> None:
    for path in ("/", "/nowhere", "/static/page.css", "/static/nowhere"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';") and "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] in ("no-store", "no-cache")
    expire(browser)
    rows.job(db)
    rows.execution(db, "RUNNING")
    page = browser.get("/").text
    assert "style=" not in page and "<style" not in page and " onclick" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
