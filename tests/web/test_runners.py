"""The page Runners and queues, and its actions."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, one
from tests.web.support.browsing import SAME_ORIGIN, panel, text


def act(browser: TestClient, action: str, **data: Any) -> str:
    """Send a form, and return what the page says afterwards."""
    done = browser.post(f"/queues/{action}", data=data, headers=SAME_ORIGIN)
    if done.status_code != 303:
        return text(done.text)
    return text(browser.get(done.headers["location"]).text)


def queue(db: Db) -> dict[str, Any]:
    return one(db.execute("SELECT * FROM cronledger.queue_status WHERE name = 'slow'"))


def test_runners_have_their_state(browser: TestClient, db: Db) -> None:
    rows.runner(db, "alive", version="1.2", deploy=20261124, queues=["slow", "fast"])
    rows.job(db)
    rows.execution(db, "RUNNING", runner_id="alive")
    rows.runner(db, "lost", stale_after=rows.now(db) - timedelta(minutes=1))
    rows.runner(db, "ended", state="stopped")
    rows.runner(db, "full", diagnostics=Jsonb({"failing": {"finisher": "DiskFull"}}))
    shown = panel(browser.get("/runners").text, "runners")
    assert "alive alive 1 10 slow, fast" in shown and "1.2 20261124 h 1" in shown
    assert "lost dead" in shown and "ended stopped" in shown
    assert "full failing finisher: DiskFull 0 10" in shown
    assert shown.index("lost dead") < shown.index("ended stopped")


def test_a_queue_without_a_runner_is_marked(browser: TestClient, db: Db) -> None:
    rows.job(db, queue="slow")
    assert "slow active 1 0 0 none none" in panel(browser.get("/runners").text, "queues")


def test_a_queue_is_paused_with_a_reason_and_resumed(browser: TestClient, db: Db) -> None:
    rows.job(db, queue="slow")
    assert "Queue slow is paused." in act(browser, "pause", queue="slow", reason="moving")
    row = queue(db)
    assert row["paused_reason"] == "moving" and "@" in row["paused_by"]
    again = act(browser, "pause", queue="slow", reason="still")
    assert "was paused already, and has the new reason" in again and ": still" in again
    assert "Queue slow is resumed." in act(browser, "resume", queue="slow")
    assert "Queue slow was not paused." in act(browser, "resume", queue="slow")
    assert queue(db)["paused_at"] is None


def test_a_queue_is_limited(browser: TestClient, db: Db) -> None:
    rows.job(db, queue="slow")
    assert "Queue slow: limit 3 (before: none)." in act(browser, "limit", queue="slow", limit="3")
    assert queue(db)["max_running"] == 3
    assert "Queue slow: limit none (before: 3)." in act(browser, "limit", queue="slow", limit="")
    assert queue(db)["max_running"] is None


def test_all_queues_are_paused_and_resumed(browser: TestClient, db: Db) -> None:
    rows.job(db, "a", queue="slow")
    rows.job(db, "b", queue="fast")
    assert "Queues that are paused now: 2." in act(browser, "pause-all", reason="incident")
    assert queue(db)["paused_reason"] == "incident"
    assert "Queues that are resumed: 2." in act(browser, "resume-all")


@pytest.mark.parametrize(
    ("action", "data", "message"),
    [
        ("limit", {"queue": "slow", "limit": "0"}, "limit is 0; write 1 to 2147483647"),
        ("limit", {"queue": "slow", "limit": "9999999999"}, "limit is 9999999999"),
        ("limit", {"queue": "slow", "limit": "many"}, "limit is not a whole number: 'many'."),
        ("pause", {"queue": "nowhere"}, "queue nowhere: no job and no runner uses it"),
        ("pause", {}, "no job and no runner uses it"),
    ],
)
def test_a_queue_that_cannot_be_changed(
    browser: TestClient, db: Db, action: str, data: dict[str, str], message: str
) -> None:
    rows.job(db, queue="slow")
    assert message in act(browser, action, **data)
