"""The page Forecast: the coming days, with what waits and what is at risk."""

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
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
    rows.job(db, "report", requires=Jsonb([{"job": "paused"}]), schedule=schedule)
    rows.runner(db, slots=2)
    found = browser.get("/forecast?days=1")
    assert found.status_code == 200 and "style=" not in found.text
    assert 'class="forecast"' in found.text
    assert "2 starts in one minute" in found.text and "executions wait in 11 minutes" in found.text
    assert found.text.count('class="heat-waits"') == 1
    assert 'title="at most 2.0 at once; 1 wait">3</td>' in found.text
    assert "These jobs have an error in their definition: broken." in text(found.text)
    assert "paused" in panel(found.text, "days")
    assert "default 2 3 2" in panel(found.text, "queues")
    backlogs = panel(found.text, "backlogs")
    assert "default slots 1 10m" in backlogs
    assert "report paused 1" in panel(found.text, "gates")
    deadlines = panel(found.text, "deadlines")
    assert "third" in deadlines and "start_by" in deadlines and "1 missed, 0 at risk" in deadlines
    assert "2.0 1 first 1, second 1" in panel(found.text, "worst")


@pytest.mark.parametrize(("days", "status"), [("7", 200), ("14", 200), ("2", 400), ("x", 400)])
def test_the_length_is_one_of_the_choices(browser: TestClient, days: str, status: int) -> None:
    assert browser.get(f"/forecast?days={days}").status_code == status
