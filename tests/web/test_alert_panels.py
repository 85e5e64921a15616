"""Open alerts and missed deadlines, where the pages show them, and the way to their causes."""

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger.web import glance
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import expire, links, panel

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GLOBAL = {"scope_kind": "global", "scope_id": "global"}


def open_state(db: Db, at: datetime, job: str | None = "report", **columns: Any) -> None:
    """An event that has held for an hour. `job` None: of the ledger."""
    scope = GLOBAL if job is not None else {}
    row = {"channel": "ops", "event": "failed", "since": at - HOUR, "count": 3, **scope}
    row |= {"last_alert_at": at - 40 * MINUTE, "summary": f"{job} failed 3 times in a row"}
    rows.insert(db, "tracked_states", job_name=job or "", **row | columns)


def alert(db: Db, at: datetime, execution: Mapping[str, Any], **columns: Any) -> None:
    row = {"at": at, "event": "failed", "kind": "opened", "channel": "ops", "since": at, **GLOBAL}
    row |= {"count": 1, "job_name": execution["job_name"], "execution_id": execution["id"]}
    row |= {"plan_time": execution["plan_time"], "summary": "it failed", "details": "{}"}
    rows.insert(db, "raised_alerts", **row | columns)


def breach(db: Db, at: datetime, job: str = "report", **columns: Any) -> None:
    """A breach of `finish_by` an hour ago, of a plan_time two hours ago."""
    row: dict[str, Any] = {"job_name": job, "plan_time": at - 2 * HOUR, "kind": "finish_by"}
    row |= {"deadline": at - HOUR, "breached_at": at - 59 * MINUTE, **GLOBAL, **columns}
    row |= {"month": row["plan_time"].date().replace(day=1)}
    row |= {"look_at": None if row.get("closed_at") else at}
    rows.insert(db, "deadline_breaches", revision=1, **row)


def month(db: Db, at: date, kind: str, **counts: int) -> None:
    rows.insert(db, "deadline_months", job_name="report", month=at, kind=kind, **GLOBAL, **counts)


def test_now_shows_open_alerts(browser: TestClient, db: Db, at: datetime) -> None:
    open_state(db, at, "tidy", since=None, count=1)  # it takes more failures until an alert
    shown = browser.get("/").text
    assert "No job needs attention." in panel(shown, "attention") and 'class="calm"' in shown
    shown = browser.get("/job/report").text
    assert "No alert of this scope is open." in panel(shown, "alerts")
    assert "No deadline of this scope was missed." in panel(shown, "breaches")
    expire(browser)
    open_state(db, at)
    open_state(db, at, None, runner_id="r1", event="runner_lost", summary="r1 is lost")
    shown = browser.get("/").text
    open_state(db, at, channel="mail")
    assert re.search(r"report alert failed .* 1 h report failed 3 times", panel(shown, "attention"))
    assert re.search(r"r1 alert runner lost .* r1 is lost", panel(shown, "attention"))
    assert 'class="calm"' not in shown
    mine = panel(browser.get("/?label=team=data").text, "attention")
    assert "report" in mine and "× 2" not in mine and "r1 is lost" not in mine


def test_a_list_of_jobs_marks_open_alerts(browser: TestClient, db: Db, at: datetime) -> None:
    rows.job(db, "shards", scope_kind="shard", scopes=["a", "b"])
    open_state(db, at)
    open_state(db, at, channel="mail")
    open_state(db, at, event="overdue")
    for name in "ab":
        open_state(db, at, "shards", scope_kind="shard", scope_id=name, event="deadline")
    shown = panel(browser.get("/jobs").text, "jobs")
    assert re.search(r"report never ran failed overdue @hourly", shown)
    assert re.search(r"shards 2 scopes never ran deadline in 2 scopes @hourly", shown)
    assert re.search(r"tidy never ran @hourly", shown)


@pytest.mark.long
def test_now_shows_missed_deadlines(
    browser: TestClient, db: Db, at: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = rows.execution(db, "RUNNING", "report", plan_time=at - 2 * HOUR)["id"]
    breach(db, at, execution_id=id)
    breach(db, at, "tidy", kind="start_by", deadline=at - 3 * HOUR)
    met = {"plan_time": at - 6 * HOUR, "closed_at": at - 2 * HOUR, "deadline": at - 3 * HOUR}
    breach(db, at, "tidy", **met)
    breach(db, at, "tidy", plan_time=at - 3 * DAY, breached_at=at - 25 * HOUR)
    page = browser.get("/").text
    shown = panel(page, "attention")
    assert re.search(r"tidy start by missed .* report finish by missed .* 1 h", shown)
    assert f'href="/execution/{id}"' in page
    assert 'class="calm"' not in page
    mine = panel(browser.get("/?owner=data").text, "attention")
    assert "report" in mine and "tidy" not in mine
    monkeypatch.setattr(glance, "MOST_BREACHES", 3)  # the search goes no further back
    shown = panel(browser.get("/").text, "attention")
    assert "tidy" in shown and "report" not in shown


def test_a_job_has_its_deadlines_by_month(browser: TestClient, db: Db, at: datetime) -> None:
    breach(db, at)
    met = at - DAY + 3 * HOUR
    breach(db, at, kind="start_by", plan_time=at - DAY, deadline=met - HOUR, closed_at=met)
    breach(db, at, "tidy", kind="expect_duration")
    month(db, date(2026, 10, 1), "start_by", met=1_000, met_late=30, missed=1)
    month(db, date(2026, 11, 1), "start_by", met=2, met_late=1, missed=0)
    month(db, date(2026, 11, 1), "finish_by", met=1, met_late=0, missed=1)
    shown = browser.get("/job/report").text
    assert panel(shown, "compliance").endswith("2026-11 5 3 1 1 2026-10 1,031 1,000 30 1")
    found = panel(shown, "breaches")
    assert re.search(r"finish by .* not met .* start by .* 1h late", found)
    assert "expected duration" not in found


def test_an_execution_has_its_alerts_and_its_missed_deadlines(
    browser: TestClient, db: Db, at: datetime
) -> None:
    execution = rows.execution(db, "FAILED", "report", plan_time=at - 2 * HOUR)
    ended = {"status": "SUCCESS", "due_at": None, "finished_at": at - 30 * MINUTE}
    delivery = rows.insert(db, "deliveries", channel="ops", **ended)
    alert(db, at + HOUR, execution, delivery_id=delivery["id"])
    alert(db, at + HOUR, execution, kind="reminder", summary="it still fails")
    alert(db, at + HOUR, rows.execution(db, "FAILED", "tidy"), summary="another execution")
    breach(db, at)
    breach(db, at, kind="expect_duration", closed_at=at)
    breach(db, at, plan_time=at - 3 * HOUR, kind="start_by")
    page = browser.get(f"/execution/{execution['id']}").text
    shown = panel(page, "alerts")
    assert re.search(r"failed opened ops SUCCESS .* it failed", shown)
    assert re.search(r"failed reminder ops not yet it still fails", shown)
    assert "another execution" not in shown
    shown = panel(page, "breaches")
    assert "not met" in shown and "expected duration" in shown and "1h late" in shown
    assert "start by" not in shown


def test_an_alert_leads_to_its_cause(browser: TestClient, db: Db, at: datetime) -> None:
    execution = rows.execution(db, "FAILED", "report")["id"]
    open_state(db, at, execution_id=execution)
    open_state(db, at, "tidy", event="overdue", plan_time=at, summary="another job")
    open_state(db, at, None, runner_id="r1", event="runner_lost")
    found = links(browser.get("/").text, "attention")
    (why,) = [address for address in found if address.startswith("/why/")]
    assert browser.get(why).status_code == 200
    assert "/runners" in found
    page = browser.get("/job/report").text
    assert "another job" not in panel(page, "alerts")
    assert f"/execution/{execution}" in {*found} & {*links(page, "alerts")}
