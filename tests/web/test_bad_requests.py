"""Requests that end early or ask for nonsense leave nothing in the log."""

import gc
import logging
import socket
import warnings
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.waiting import until
from tests.web.support.browsing import TOKENS, app
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
            assert browser.get(f"/job?name=report&{query}").status_code == 400
        gc.collect()
    assert [str(one.message) for one in caught if "never awaited" in str(one.message)] == []
