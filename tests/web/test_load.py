"""The page Load: planned starts and median durations against slots."""

from datetime import timedelta

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import expire, panel, text


def test_the_load_of_the_next_24_hours(browser: TestClient, db: Db) -> None:
    assert "Nothing is planned." in panel(browser.get("/load").text, "peaks")
    expire(browser)
    rows.job(db, "often", schedule="* * * * *", overlap="allow")
    rows.job(db, "paused", schedule="* * * * *")
    rows.job(db, "enqueued", schedule=None)
    db.execute("SELECT cronledger.pause('paused')")
    rows.runner(db, slots=2)
    at = rows.now(db)
    for minutes, seconds in ((1, 150), (2, 150), (3, 900)):
        rows.execution(
            db, "SUCCESS", "often", plan_time=at - timedelta(minutes=minutes),
            duration_ms=1000 * seconds,
        )  # fmt: skip
    found = browser.get("/load")
    assert found.status_code == 200
    shown = text(found.text)
    assert "of 1 scopes · 2 slots of 1 live runners" in shown
    peaks = panel(found.text, "peaks")
    assert "2.5 too few often 2.5" in peaks
    assert 'class="load"' in found.text and "style=" not in found.text
    assert panel(found.text, "hours").count("60 2.5") >= 20
