"""The page Forecast: the coming days, with what waits and what is at risk."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from cronledger.rules import forecast as forecast_rules
from cronledger.web import forecasting
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.waiting import until
from tests.web.support.browsing import expire, panel, text


def _history(db: Db, job: str, seconds: int) -> None:
    at = rows.now(db) - timedelta(hours=2)
    rows.execution(db, "SUCCESS", job, plan_time=at, duration_ms=1000 * seconds)


def test_the_coming_days_against_slots_and_deadlines(browser: TestClient, db: Db) -> None:
    assert "Nothing is planned." in panel(browser.get("/forecast").text, "days")
    expire(browser)
    at = (rows.now(db) + timedelta(hours=3)).replace(minute=0)
    schedule = f"0 {at:%H} * * *"
    for name in ("first", "second", "third"):
        rows.job(db, name, schedule=schedule, start_by="5m")
        _history(db, name, 600)
    rows.job(db, "paused", schedule="* * * * *")
    db.execute("SELECT cronledger.pause('paused')")
    rows.job(db, "broken", schedule="* * * * *", queue="elsewhere")
    db.execute("UPDATE cronledger.jobs SET spec_error = 'bad' WHERE name = 'broken'")
    rows.job(db, "later", schedule=f"0 {at + timedelta(hours=1):%H} * * *", queue="idle")
    db.execute("SELECT cronledger.pause_queue('idle')")
    rows.job(db, "report", requires=Jsonb([{"job": "paused"}]), schedule=schedule)
    rows.runner(db, slots=2)
    found = browser.get("/forecast?days=1")
    assert found.status_code == 200 and "style=" not in found.text
    assert browser.get("/forecast?days=2").status_code == 400
    assert 'class="forecast"' in found.text
    assert "2 starts in one minute" in found.text and "executions wait in 11 minutes" in found.text
    assert found.text.count('class="heat-waits"') == 1
    assert 'title="at most 2.0 at once, averaged by minute; 1 wait">3</td>' in found.text
    for caveat in (
        "These jobs have an error in their definition and do not fire: broken.",
        "No live runner serves these queues, so their slots are unlimited here: elsewhere, idle.",
        "These queues are paused, and counted as resumed: idle.",
    ):
        assert caveat in text(found.text)
    assert "paused" in panel(found.text, "days")
    assert "default 2 3 2" in panel(found.text, "queues")
    backlogs = panel(found.text, "backlogs")
    assert "default slots 1 10m" in backlogs
    assert "report paused 1" in panel(found.text, "gates")
    deadlines = panel(found.text, "deadlines")
    assert "third" in deadlines and "start_by" in deadlines and "1 missed, 0 at risk" in deadlines
    assert "2.0 1 first 1, second 1" in panel(found.text, "worst")


def test_a_forecast_that_takes_long_is_shown_once_it_is_ready_F97(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    forecast = forecast_rules.forecast

    def slow(*args: Any, **kwargs: Any) -> Any:
        assert goes_on.wait(60)
        return forecast(*args, **kwargs)

    monkeypatch.setattr(forecasting, "PATIENCE", 0.0)
    monkeypatch.setattr(forecast_rules, "forecast", slow)
    first = browser.get("/forecast").text
    assert "The forecast is being computed." in text(first) and 'id="days"' not in first
    goes_on.set()
    until("the forecast is shown", lambda: 'id="days"' in browser.get("/forecast").text)
    assert "being computed" not in browser.get("/forecast").text
    goes_on.clear()
    rows.job(db)
    expire(browser)
    again = browser.get("/forecast").text
    assert "This one is from" in text(again) and 'id="days"' in again
    goes_on.set()
    until("the new one is shown", lambda: "being computed" not in browser.get("/forecast").text)
