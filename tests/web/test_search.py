"""The search over everything, and the groups of the navigation."""

import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import search
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import OPERATOR, VIEWER

RESULT = re.compile(r'(?s)<li><a href="([^"]*)"><span class="kind">(\w+)</span> (.*?) <span')


def found(browser: TestClient, q: str, **headers: str) -> list[tuple[str, str, str]]:
    shown = browser.get("/search", params={"q": q}, headers=headers)
    assert shown.status_code == 200
    return [
        (kind, unescape(name), unescape(address))
        for address, kind, name in RESULT.findall(shown.text)
    ]


@pytest.fixture(autouse=True)
def ledger(db: Db) -> None:
    rows.job(db, "report")
    rows.job(db, "sync", scope_kind="tenant", scopes=["acme", "acme-2", "acme_3", "acme4", "zeta"])
    rows.job(db, "gone", retired_at=rows.now(db))


def test_a_search_finds_jobs_scopes_executions_pages_and_actions_F93(
    browser: TestClient, db: Db
) -> None:
    id = rows.execution(db, "FAILED", "report")["id"]
    assert ("job", "report", "/job/report") in found(browser, "POR")
    assert ("execution", str(id), f"/execution/{id}") in found(browser, f" {id} ")
    scopes = [one for one in found(browser, "acme") if one[0] == "scope"]
    assert scopes == [
        ("scope", f"tenant/{name}", f"/job/sync?scope_kind=tenant&scope={name}")
        for name in ("acme", "acme-2", "acme4")
    ]  # three of each job
    assert found(browser, "runs time") == [("page", "Timeline", "/timeline")]
    assert found(browser, "retry failed") == [
        ("action", "Retry failed executions", "/ledger?outcome=FAILED")
    ]
    assert ("action", "Pause report", "/job-pause?name=report") in found(browser, "report")
    assert [one[1] for one in found(browser, "backfill r")] == ["Backfill report"]
    assert found(browser, "gone") == found(browser, "9" * 30) == found(browser, "<b>") == []


def test_a_viewer_finds_no_action_F93(by_token: TestClient) -> None:
    for q in ("report", "run report", "retry"):
        kinds = {one[0] for one in found(by_token, q, **VIEWER)}
        assert "action" not in kinds
        assert "action" in {one[0] for one in found(by_token, q, **OPERATOR)}


def test_a_search_is_bounded_F93(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST", 1)
    rows.job(db, "report-2")
    assert [one[1] for one in found(browser, "report") if one[0] == "job"] == ["report"]
    shown = browser.get("/search?q=report").text
    assert 'href="/jobs?search=report"' in shown
    assert browser.get("/search?q=a%00").status_code == 400


def test_the_navigation_has_five_groups_F93(browser: TestClient) -> None:
    titles = ["Now", "Jobs", "Runs", "Capacity", "Trust"]
    for path, group, pages in (
        ("/", "Now", []),
        ("/job/report", "Jobs", ["Jobs", "Calendars", "Pauses"]),
        ("/ledger", "Runs", ["Ledger", "Timeline", "Why"]),
        ("/forecast", "Capacity", ["Runners and queues", "Forecast"]),
        ("/audit", "Trust", ["Verify", "Audit"]),
    ):
        shown = browser.get(path).text.partition("</header>")[0]
        links = re.findall(r'<a href="[^"]*"( aria-current="\w+")?>([^<]+)</a>', shown)
        assert [words for _, words in links] == [*titles, *pages], path
        assert [words for current, words in links if "true" in current] == [group], path
