"""The page's actions, and what the ledger refuses it, in the audit trail."""

import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import audit
from tests.db.support import rows
from tests.db.support.rows import Db, one, value
from tests.web.support.browsing import SAME_ORIGIN, panel, text


def actions(db: Db) -> list[tuple[str, str, str, str | None]]:
    found = db.execute(
        "SELECT verb, object, outcome, error FROM cronledger.audit"
        " WHERE verb NOT IN ('add', 'edit') ORDER BY id"
    ).fetchall()
    return [(row["verb"], row["object"], row["outcome"], row["error"]) for row in found]


def test_the_page_records_actions_and_refusals(browser: TestClient, db: Db) -> None:
    rows.job(db)
    number = str(rows.execution(db, "RUNNING")["id"])
    for execution in (number, "42"):
        browser.post("/execution/cancel", data={"id": execution}, headers=SAME_ORIGIN)
    assert actions(db) == [
        ("cancel", number, "requested", None),
        ("cancel", "42", "refused", "execution 42 does not exist"),
    ]
    people = db.execute("SELECT DISTINCT requested_by FROM cronledger.audit WHERE verb = 'cancel'")
    assert len(people.fetchall()) == 1


def test_a_refused_action_on_several_jobs_is_one_row_for_each(browser: TestClient, db: Db) -> None:
    for name in ("a", "b"):
        rows.job(db, name)
    chosen = {"job": ["a", "b"], "confirmed": "yes", "reason": "moving", "until": "2020-01-01"}
    browser.post("/jobs/pause", data=chosen, headers=SAME_ORIGIN)
    assert [row[:3] for row in actions(db)] == [
        ("pause", "a", "refused"), ("pause", "b", "refused"),
    ]  # fmt: skip
    transactions = "SELECT count(DISTINCT xmin::text) FROM cronledger.operator_actions"
    assert value(db, transactions + " WHERE outcome = 'refused'") == 1


def test_an_action_on_too_many_jobs_is_refused_before_it_is_tried(
    browser: TestClient, db: Db
) -> None:
    chosen = {"job": [f"j{n}" for n in range(10_001)], "confirmed": "yes", "reason": "moving"}
    refused = browser.post("/jobs/pause", data=chosen, headers=SAME_ORIGIN)
    assert refused.status_code == 400
    assert "10,001 jobs are chosen: choose at most 10,000 at once." in text(refused.text)
    assert actions(db) == []


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
    assert "No action matches." in text(browser.get("/audit", params={"job": "gone"}).text)
    oldest = one(
        db.execute(
            "SELECT id AS before, at::text AS before_at FROM cronledger.audit"
            " ORDER BY at, id LIMIT 1"
        )
    )
    assert "No action matches." in text(browser.get("/audit", params=oldest).text)
    refused = browser.get("/audit", params={"before": "x", "before_at": "2026-11-22"})
    assert refused.status_code == 400 and "before is not a whole number" in text(refused.text)


def test_the_audit_trail_leads_to_the_executions_of_an_action(browser: TestClient, db: Db) -> None:
    rows.job(db)
    number = value(db, "SELECT cronledger.trigger('job')")
    assert f'<a href="/execution?id={number}">{number}</a>' in browser.get("/audit").text
    for page in ("/job?name=job", f"/execution?id={number}"):
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
    (following,) = re.findall(r'rel="next" href="([^"]*)">Search on', shown)
    shown = browser.get(unescape(following)).text
    assert "ann" in panel(shown, "audit") and "Search on" in shown
    first = browser.get("/audit?job=j7").text
    (following,) = re.findall(r'rel="next" href="([^"]*)">Older', first)
    places = [
        re.findall(r"(?s)<tr [^>]*>\s*<td>(.*?)</td>", page)
        for page in (first, browser.get(unescape(following)).text)
    ]
    assert [len(found) for found in places] == [10, 10]
    assert not {*places[0]} & {*places[1]}


def test_the_page_of_jobs_filters_by_owner_and_label(browser: TestClient, db: Db) -> None:
    rows.job(db, "report", owner="data", labels='{"team": "data", "tier": "1=a"}')
    rows.job(db, "tidy", owner="platform")
    for name, wanted, found in (
        ("owner", "data", True), ("owner", "platform", False), ("label", "team=data", True),
        ("label", "team", True), ("label", "tier=1=a", True), ("label", "team=bi", False),
    ):  # fmt: skip
        shown = text(browser.get("/jobs", params={name: wanted}).text)
        assert ("report active" in shown) is found, (name, wanted)
    chosen = {"every": "yes", "label": "team=data"}
    preview = browser.post("/jobs/pause", data=chosen, headers=SAME_ORIGIN)
    assert "report" in text(preview.text) and "tidy" not in text(preview.text)
    assert "owner data · team=data · tier=1=a" in text(browser.get("/job?name=report").text)
