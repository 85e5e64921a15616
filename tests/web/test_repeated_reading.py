"""What an open page costs: a page that has not changed is not sent again, and others are short."""

import re

from starlette.testclient import TestClient

from tests.cli.support.clocks import set_ten_past
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import expire, text


def test_a_page_that_has_not_changed_is_not_sent_again(browser: TestClient, db: Db) -> None:
    rows.job(db, "report", schedule=None)
    tags = {}
    for path in ("/", "/jobs", "/audit", "/load"):
        set_ten_past(db)  # Load is another page when a minute begins
        expire(browser)
        first = browser.get(path)
        tags[path] = {"If-None-Match": first.headers["etag"]}
        expire(browser)
        again = browser.get(path, headers=tags[path])
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["database-time"] > first.headers["database-time"]
        assert again.headers["cache-control"] == "no-store"
    db.execute("SELECT cronledger.pause('report', reason => 'incident')")
    expire(browser)
    for path in ("/jobs", "/audit"):
        changed = browser.get(path, headers=tags[path])
        assert changed.status_code == 200 and "incident" in text(changed.text)


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
