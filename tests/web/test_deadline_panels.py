"""Missed deadlines, where the pages show them."""

import re
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import now
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import panel, text

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GLOBAL = {"scope_kind": "global", "scope_id": "global"}


def breach(db: Db, at: datetime, job: str = "report", **columns: Any) -> None:
    """A breach of `finish_by` an hour ago, of a plan_time two hours ago."""
    row: dict[str, Any] = {
        "job_name": job,
        "plan_time": at - 2 * HOUR,
        "kind": "finish_by",
        "revision": 1,
    }
    row |= {"deadline": at - HOUR, "breached_at": at - 59 * MINUTE, **GLOBAL, **columns}
    row |= {"month": row["plan_time"].date().replace(day=1)}
    row |= {"look_at": None if row.get("closed_at") else at}
    rows.insert(db, "deadline_breaches", **row)


def month(db: Db, at: date, kind: str, **counts: int) -> None:
    """The deadlines of `report` in a month."""
    rows.insert(db, "deadline_months", job_name="report", month=at, kind=kind, **GLOBAL, **counts)


def test_no_deadline_was_missed(browser: TestClient, db: Db, at: datetime) -> None:
    execution = rows.execution(db, "SUCCESS", "report")
    shown = browser.get("/").text
    assert panel(shown, "breaches") == "Missed deadlines No deadline was missed within a day."
    assert 'class="calm"' in shown
    shown = browser.get("/job?name=report").text
    assert "This scope had no deadline." in panel(shown, "compliance")
    assert "No deadline of this scope was missed." in panel(shown, "breaches")
    assert 'id="breaches"' not in browser.get(f"/execution?id={execution['id']}").text


def test_now_shows_missed_deadlines(browser: TestClient, db: Db, at: datetime) -> None:
    id = rows.execution(db, "RUNNING", "report", plan_time=at - 2 * HOUR)["id"]
    breach(db, at, execution_id=id)
    breach(db, at, "tidy", kind="start_by", deadline=at - 3 * HOUR)
    met = {"plan_time": at - 6 * HOUR, "closed_at": at - 2 * HOUR, "deadline": at - 3 * HOUR}
    breach(db, at, "tidy", **met)
    breach(db, at, "tidy", plan_time=at - 3 * DAY, breached_at=at - 25 * HOUR)
    page = browser.get("/").text
    shown = panel(page, "breaches")
    assert re.match(r"Missed deadlines 2 .* start by tidy .* finish by report .* 1h", shown)
    assert f'href="/execution?id={id}"' in page
    assert 'class="calm"' not in page
    for query in ("owner=data", "label=team=data"):
        mine = panel(browser.get(f"/?{query}").text, "breaches")
        assert "report" in mine and "tidy" not in mine
    none = text(browser.get("/?owner=nobody").text)
    assert "No deadline of the jobs that match was missed within a day." in none


def test_the_search_for_missed_deadlines_is_bounded(
    browser: TestClient, db: Db, at: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(now, "MOST_BREACHES", 1)
    breach(db, at)
    breach(db, at, "tidy")
    shown = panel(browser.get("/").text, "breaches")
    assert "tidy" in shown and "report" not in shown


def test_a_job_has_its_deadlines_by_month(browser: TestClient, db: Db, at: datetime) -> None:
    breach(db, at)
    met = at - DAY + 3 * HOUR
    breach(db, at, kind="start_by", plan_time=at - DAY, deadline=met - HOUR, closed_at=met)
    breach(db, at, "tidy", kind="expect_duration")
    month(db, date(2026, 10, 1), "start_by", met=1_000, met_late=30, missed=1)
    month(db, date(2026, 11, 1), "start_by", met=2, met_late=1, missed=0)
    month(db, date(2026, 11, 1), "finish_by", met=1, met_late=0, missed=1)
    shown = browser.get("/job?name=report").text
    assert panel(shown, "compliance").endswith("2026-11 5 3 1 1 2026-10 1,031 1,000 30 1")
    found = panel(shown, "breaches")
    assert re.search(r"finish by .* not met .* start by .* 1h late", found)
    assert "expected duration" not in found


def test_an_execution_has_its_missed_deadlines(browser: TestClient, db: Db, at: datetime) -> None:
    execution = rows.execution(db, "FAILED", "report", plan_time=at - 2 * HOUR)
    breach(db, at)
    breach(db, at, kind="expect_duration", closed_at=at)
    breach(db, at, plan_time=at - 3 * HOUR, kind="start_by")
    shown = panel(browser.get(f"/execution?id={execution['id']}").text, "breaches")
    assert "not met" in shown and "expected duration" in shown and "1h late" in shown
    assert "start by" not in shown
