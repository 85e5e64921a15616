"""The filters by owner and label."""

import re
from datetime import datetime, timedelta

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import now
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import expire, panel, post, text

OWNED = ["owner=data", "label=team", "label=team=data", "owner=data&label=tier=1"]
NOT_OWNED = ["owner=nobody", "label=team=bi", "label=tea", "owner=platform&label=team"]


@pytest.fixture
def jobs(db: Db, at: datetime) -> None:
    """The jobs have the same history."""
    for name in ("report", "tidy"):
        rows.execution(db, "FAILED", name, plan_time=at - timedelta(hours=2))
        rows.execution(db, "RUNNING", name, plan_time=at - timedelta(minutes=3))
        db.execute("SELECT cronledger.pause(%s)", [name])
        db.execute("SELECT cronledger.resume(%s)", [name])
        soon = at + timedelta(minutes=9)
        rows.schedule(db, name, next_plan_time=soon, next_due_at=soon)


def named(shown: str) -> set[str]:
    return {name for name in ("report", "tidy") if re.search(rf"\b{name}\b", shown)}


@pytest.mark.long
def test_now_shows_the_jobs_that_match_or_states_that_nothing_does(
    browser: TestClient, jobs: None
) -> None:
    for query in ("", *OWNED):
        shown = browser.get(f"/?{query}").text
        for name in ("attention", "running", "next"):
            assert named(panel(shown, name)) == ({"report"} if query else {"report", "tidy"})
    for query in NOT_OWNED:
        shown = browser.get(f"/?{query}").text
        assert "No job that matches needs attention." in panel(shown, "attention")
        assert panel(shown, "running").endswith("Nothing that matches is running.")
        assert "Nothing that matches is among the next 10,000 firings" in panel(shown, "next")
        assert "r1" in panel(shown, "runners")
        assert "Of the jobs that match, none is overdue or failing" in text(shown)
    for page in ("/", "/ledger", "/audit", "/jobs"):
        assert "<option selected>gone</option>" in browser.get(f"{page}?owner=gone").text


@pytest.mark.long
def test_overdue_and_violations_are_filtered(browser: TestClient, db: Db) -> None:
    at = rows.now(db)
    for name, owner in (("mine", "data"), ("other", "platform")):
        rows.job(db, name, owner=owner, queue="nowhere", allow_stale_reentry=False)
        due = at - timedelta(minutes=2)
        rows.schedule(db, name, parked="no_runner", next_due_at=None, next_plan_time=due)
        ended = at - timedelta(hours=1)  # its lease, which nobody has swept
        rows.execution(db, "RUNNING", name, plan_time=at - timedelta(hours=2), stale_after=ended)
    for query, found in (("", {"mine", "other"}), ("?owner=data", {"mine"})):
        shown = browser.get(f"/{query}").text
        listed = panel(shown, "attention")
        assert {one for one in ("mine", "other") if one in listed} == found, query
        assert listed.count("overdue: ") == listed.count(" stale ") == len(found)


@pytest.mark.long
def test_the_search_of_the_next_hour_is_bounded(
    browser: TestClient, jobs: None, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute(
        "UPDATE cronledger.schedules SET next_due_at = next_due_at + interval '1 min'"
        " WHERE job_name = 'report'"
    )
    assert "report" in panel(browser.get("/?owner=data").text, "next")
    monkeypatch.setattr(now, "MOST_NEXT", 1)
    assert "among the next 1 firings" in panel(browser.get("/?owner=data").text, "next")
    assert "There are more" not in panel(browser.get("/").text, "next")
    expire(browser)
    monkeypatch.setattr(now, "MOST_NEXT_OF_ALL", 1)
    assert "The list has the next 1 firings of each queue." in panel(browser.get("/").text, "next")


@pytest.mark.long
def test_jobs_the_ledger_its_exports_and_audit_have_the_rows_of_jobs_that_match(
    browser: TestClient, jobs: None, db: Db
) -> None:
    db.execute("SELECT cronledger.pause_queue('default')")  # an action on no job

    def found(query: str) -> list[set[str]]:
        exported = browser.get(f"/ledger.json?{query}").json()["rows"]
        shown = [
            named(panel(browser.get(f"/{page}?{query}").text, page)) for page in ("jobs", "audit")
        ]
        csv = named(browser.get(f"/ledger.csv?{query}").text)
        return [*shown, csv, {row["job_name"] for row in exported}]

    assert found("") == [{"report", "tidy"}] * 4
    for query in OWNED:
        assert found(query) == [{"report"}] * 4
        assert found(f"job=report&{query}")[2:] == [{"report"}] * 2
        assert found(f"job=tidy&{query}")[2:] == [set()] * 2
    for query in NOT_OWNED:
        assert found(query) == [set()] * 4
    assert "pause_queue" in panel(browser.get("/audit").text, "audit")
    assert "pause_queue" not in panel(browser.get("/audit?owner=data").text, "audit")
    assert "owner data · team=data · tier=1" in text(browser.get("/job/report").text)
    shown = browser.get("/ledger?owner=data&label=team=data").text
    exports = re.findall(r'href="([^"]*ledger\.(?:csv|json)[^"]*)"', shown)
    assert ["owner=data" in one and "label=team%3Ddata" in one for one in exports] == [True, True]
    preview = post(browser, "/jobs/pause", every="yes", label="team=data").text
    assert named(text(preview)) == {"report"}


def test_a_label_has_one_definition(db: Db) -> None:
    labels = '{"team": "data", "tier": "1=a"}'
    for label, has in {
        "team": True, "team=data": True, "tier=1=a": True, "team=bi": False, "tea": False,
        "none=1": None, "=": None,
    }.items():  # fmt: skip
        found = "SELECT cronledger_internal.has_label(%s::jsonb, %s::text)"
        assert value(db, found, labels, label) is has, label
