"""Requests: those that end early or ask for nonsense, and those that cost little."""

import gc
import logging
import re
import socket
import warnings
from datetime import datetime
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.cli.support.clocks import set_ten_past
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.waiting import until
from tests.web.support.browsing import TOKENS, app, expire, known_parts, text
from tests.web.support.logins import Logins
from tests.web.support.serving import served


class Counting:
    """Counts the requests that have ended."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner
        self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._inner(scope, receive, send)
        finally:
            self.ended += scope["type"] == "http"


def test_a_request_that_disconnects_in_its_body_is_not_logged(
    database_url: str, logins: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(app(database_url, logins, web_auth="token", web_tokens=TOKENS))
    head = (
        "POST /sign-in HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: same-origin\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken="
    )
    with caplog.at_level(logging.INFO), served(counting) as address:
        with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0)) as c:
            c.sendall(head.encode())
        until("the request has ended", lambda: counting.ended)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_invalid_field_of_an_address_is_refused_before_anything_is_read(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "report")
    gc.collect()  # what earlier tests left
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for query in ("before=x", "after_kind=%00", "after_scope=%00&before=1"):
            assert browser.get(f"/job/report?{query}").status_code == 400
        gc.collect()
    assert [str(one.message) for one in caught if "never awaited" in str(one.message)] == []


@pytest.mark.long
def test_a_page_that_has_not_changed_is_not_sent_again(browser: TestClient, db: Db) -> None:
    rows.job(db, "report", schedule=None)
    known = {}
    for path in ("/", "/jobs", "/audit", "/forecast"):
        set_ten_past(db)  # Forecast is another page when a minute begins
        expire(browser)
        known[path] = known_parts(browser.get(path).text)
        set_ten_past(db, second=2)
        expire(browser)
        again = browser.get(path, headers=known[path])
        assert (again.status_code, again.content) == (204, b""), path
        assert datetime.fromisoformat(again.headers["database-time"]).tzinfo is not None
        assert again.headers["cache-control"] == "no-store"
    db.execute("SELECT cronledger.pause('report', reason => 'incident')")
    expire(browser)
    for path in ("/jobs", "/audit"):
        changed = browser.get(path, headers=known[path])
        assert changed.status_code == 200 and changed.headers["sent-parts"] == "changed"
        assert "incident" in text(changed.text)
        assert re.findall('data-part="', changed.text) == ['data-part="']  # one part of the page


def test_a_page_with_other_parts_than_before_is_sent_whole(browser: TestClient, db: Db) -> None:
    rows.job(db, "report")
    known = known_parts(browser.get("/job/report").text)
    db.execute(
        "SELECT cronledger.skip('report', date_trunc('hour', cronledger.db_now(), 'UTC')"
        " + interval '2 hours', 'the database moves')"
    )
    expire(browser)
    found = browser.get("/job/report", headers=known)
    assert found.headers["sent-parts"] == "all" and 'id="skips"' in found.text
    assert "<footer" in found.text


def test_a_response_that_another_site_asked_for_is_not_compressed(browser: TestClient) -> None:
    for site, encoding in (("same-origin", "gzip"), ("cross-site", None), ("same-site", None)):
        found = browser.get("/", headers={"Sec-Fetch-Site": site, "Accept-Encoding": "gzip"})
        assert found.headers.get("content-encoding") == encoding, site


def test_pages_are_compressed_and_events_are_not(browser: TestClient, db: Db) -> None:
    for number in range(50):
        rows.job(db, f"job-{number}")
    sent = browser.get("/jobs", headers={"Accept-Encoding": "gzip"})
    assert sent.headers["content-encoding"] == "gzip"
    assert int(sent.headers["content-length"]) * 5 < len(sent.content)
    plain = browser.get("/jobs", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert len(re.findall("job-", plain.text)) == len(re.findall("job-", sent.text))
    browser.app.state.site.refresh.stop()  # type: ignore[attr-defined]
    with browser.stream("GET", "/events", headers={"Accept-Encoding": "gzip"}) as events:
        assert "content-encoding" not in events.headers
