"""Open alerts, where the pages show them."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import panel, text

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GLOBAL = {"scope_kind": "global", "scope_id": "global"}


def open_state(db: Db, at: datetime, job: str | None = "report", **columns: Any) -> None:
    """An event that has held for an hour. `job` None: of the ledger."""
    scope = GLOBAL if job is not None else {}
    row = {"channel": "ops", "event": "failed", "since": at - HOUR, "count": 3, **scope}
    row |= {"last_alert_at": at - 40 * MINUTE, "summary": f"{job} failed 3 times in a row"}
    rows.insert(db, "tracked_states", job_name=job or "", **row | columns)


def alert(db: Db, at: datetime, execution: Mapping[str, Any], **columns: Any) -> None:
    """An alert about an execution."""
    row = {"at": at, "event": "failed", "kind": "opened", "channel": "ops", "since": at, **GLOBAL}
    row |= {"count": 1, "job_name": execution["job_name"], "execution_id": execution["id"]}
    row |= {"plan_time": execution["plan_time"], "summary": "it failed", "details": "{}"}
    rows.insert(db, "raised_alerts", **row | columns)


def test_nothing_is_open(browser: TestClient, db: Db, at: datetime) -> None:
    execution = rows.execution(db, "SUCCESS", "report")
    open_state(db, at, since=None, count=1)  # it takes more failures until an alert
    shown = browser.get("/").text
    assert panel(shown, "alerts") == "Alerts No alert is open."
    assert 'class="calm"' in shown
    shown = browser.get("/job?name=report").text
    assert "No alert of this scope is open." in panel(shown, "alerts")
    assert 'id="alerts"' not in browser.get(f"/execution?id={execution['id']}").text
    assert "tidy active @hourly" in panel(browser.get("/jobs").text, "jobs")


def test_now_shows_open_alerts(browser: TestClient, db: Db, at: datetime) -> None:
    open_state(db, at)
    open_state(db, at, None, runner_id="r1", event="runner_lost", summary="r1 is lost")
    shown = browser.get("/").text
    assert re.search(r"failed report .* 1h 3 ops .* report failed 3 times", panel(shown, "alerts"))
    assert re.search(r"runner lost r1 .* r1 is lost", panel(shown, "alerts"))
    assert 'class="calm"' not in shown
    mine = panel(browser.get("/?label=team=data").text, "alerts")
    assert "report" in mine and "r1 is lost" not in mine
    assert "No alert of the jobs that match is open." in text(browser.get("/?owner=x").text)


def test_a_list_of_jobs_marks_open_alerts(browser: TestClient, db: Db, at: datetime) -> None:
    rows.job(db, "shards", scope_kind="shard", scopes=["a", "b"])
    open_state(db, at)
    open_state(db, at, channel="mail")
    open_state(db, at, event="overdue")
    for name in "ab":
        open_state(db, at, "shards", scope_kind="shard", scope_id=name, event="deadline")
    shown = panel(browser.get("/jobs").text, "jobs")
    assert re.search(r"report active failed overdue @hourly", shown)
    assert re.search(r"shards 2 scopes active deadline in 2 scopes @hourly", shown)
    assert re.search(r"tidy active @hourly", shown)


def test_a_job_has_its_open_alerts(browser: TestClient, db: Db, at: datetime) -> None:
    open_state(db, at)
    open_state(db, at, "tidy", summary="another job")
    shown = panel(browser.get("/job?name=report").text, "alerts")
    assert "report failed 3 times in a row" in shown
    assert "another job" not in shown


def test_an_execution_has_its_alerts(browser: TestClient, db: Db, at: datetime) -> None:
    execution = rows.execution(db, "FAILED", "report", plan_time=at - 2 * HOUR)
    delivery = rows.execution(db, "SUCCESS", "tidy", plan_time=at - 30 * MINUTE)
    later = at + HOUR
    alert(db, later, execution, delivery_id=delivery["id"])
    alert(db, later, execution, kind="reminder", summary="it still fails")
    alert(db, later, rows.execution(db, "FAILED", "tidy"), summary="another execution")
    page = browser.get(f"/execution?id={execution['id']}").text
    shown = panel(page, "alerts")
    assert re.search(r"failed opened ops SUCCESS .* it failed", shown)
    assert re.search(r"failed reminder ops not yet it still fails", shown)
    assert f'href="/execution?id={delivery["id"]}"' in page
    assert "another execution" not in shown
