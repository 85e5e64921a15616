"""The page Audit: its filters, its links, and a search that is bounded."""

import re

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import audit
from tests.db.support import rows
from tests.db.support.rows import Db, one, value
from tests.web.support.browsing import assert_refused, next_page, panel, text


def test_the_page_lists_and_filters_the_audit_trail(browser: TestClient, db: Db) -> None:
    rows.job(db)
    db.execute("SELECT cronledger.pause('job', 'stock count', requested_by => 'ann')")
    db.execute(
        "SELECT cronledger.record_refusal('retry', '{\"execution_id\": 42}', 'no such', 'bob')"
    )
    shown = text(browser.get("/audit").text)
    assert "ann pause job done stock count" in shown
    assert "bob retry 42 refused no such" in shown
    by_ann = text(browser.get("/audit", params={"by": "ann"}).text)
    assert ("stock count" in by_ann, "no such" in by_ann) == (True, False)
    oldest = one(
        db.execute(
            "SELECT id AS before, at::text AS before_at FROM cronledger.audit"
            " ORDER BY at, id LIMIT 1"
        )
    )
    for nothing in ({"job": "gone"}, oldest):
        assert "No action matches." in text(browser.get("/audit", params=nothing).text)
    refused = browser.get("/audit?before=x&before_at=2026-11-22")
    assert_refused(refused, "before is not a whole number")


def test_the_audit_trail_leads_to_the_executions_of_an_action(browser: TestClient, db: Db) -> None:
    rows.job(db)
    number = value(db, "SELECT cronledger.trigger('job')")
    assert f'<a href="/execution/{number}">{number}</a>' in browser.get("/audit").text
    for page in ("/job/job", f"/execution/{number}"):
        assert '"/audit?job=job"' in browser.get(page).text


def test_a_search_of_the_audit_trail_is_bounded_and_goes_on(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST", 10)
    monkeypatch.setattr(audit, "MOST_READ", 500)
    db.execute(
        "INSERT INTO cronledger.operator_actions"
        ' (at, "session_user", requested_by, verb, object_kind, object, job_name, outcome)'
        " SELECT now() - n * interval '1 s', 'x', CASE n WHEN 600 THEN 'ann' ELSE 'bob' END,"
        " 'pause', 'job', 'j' || n % 20, 'j' || n % 20, 'done' FROM generate_series(1, 1500) n"
    )
    shown = browser.get("/audit?by=ann").text
    assert "Nothing matches in the rows that were searched." in text(shown)
    assert "Searched back to" in text(shown)
    shown = browser.get(next_page(shown, "Search on")).text
    assert "ann" in panel(shown, "audit") and "Search on" in shown
    first = browser.get("/audit?job=j7").text
    places = [
        re.findall(r"(?s)<tr [^>]*>\s*<td>(.*?)</td>", page)
        for page in (first, browser.get(next_page(first, "Older")).text)
    ]
    assert [len(found) for found in places] == [10, 10]
    assert not {*places[0]} & {*places[1]}
