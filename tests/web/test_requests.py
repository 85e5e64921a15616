"""Requests that cost little: parts of a page that have changed, compression, and ages."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from jinja2 import Environment
from starlette.testclient import TestClient

from cronledger.web import formats
from cronledger.web.parts import Part, part
from tests.cli.support.clocks import set_ten_past
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import expire, known_parts, text

SINCE = datetime(2026, 11, 22, 3, tzinfo=UTC)


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


def digest(inside: str, element: str = '<p id="one">') -> str:
    """The digest of an element with this content."""
    environment = Environment(autoescape=True)
    environment.filters["part"] = part
    template = environment.from_string(
        f"{{% filter part %}}\n{element}{inside}</p>{{% endfilter %}}"
    )
    parts: dict[str, Part] = {}
    rendered = template.render(parts=parts)
    assert f'id="one" data-part="{parts["one"].digest}"' in rendered
    return parts["one"].digest


def test_an_age_that_grows_does_not_change_a_part() -> None:
    young, old = (formats.age(SINCE, SINCE + timedelta(minutes=m)) for m in (3, 4))
    assert "3 min ago" in young and "4 min ago" in old
    assert digest(young) == digest(old)
    assert digest(young) != digest(formats.age(SINCE + timedelta(seconds=1), SINCE))
    assert digest("running") != digest("ended")


def test_a_part_needs_an_id() -> None:
    assert digest("", '<p class="a" id="one" hidden>')
    with pytest.raises(ValueError, match="A part is one element with an id"):
        digest("", '<p data-id="one">')


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (-90_000, "1 d 1 h")],
)
def test_an_age_has_its_greatest_units(seconds: float, words: str) -> None:
    shown = formats.age(SINCE, SINCE + timedelta(seconds=seconds))
    assert (f">{words} ago<" if seconds >= 0 else f">in {words}<") in shown
