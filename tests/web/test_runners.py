"""The page Runners and queues, and its actions."""

from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, one
from tests.web.support.browsing import act, panel


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


def test_queues_are_paused_with_a_reason_resumed_and_limited(browser: TestClient, db: Db) -> None:
    rows.job(db, queue="slow")
    assert "slow active 1 0 0 none none" in panel(browser.get("/runners").text, "queues")
    assert "Queue slow is paused." in act(browser, "/queues/pause", queue="slow", reason="moving")
    row = queue(db)
    assert row["paused_reason"] == "moving" and "@" in row["paused_by"]
    again = act(browser, "/queues/pause", queue="slow", reason="still")
    assert "was paused already, and has the new reason" in again and ": still" in again
    assert "Queue slow is resumed." in act(browser, "/queues/resume", queue="slow")
    assert "Queue slow was not paused." in act(browser, "/queues/resume", queue="slow")
    assert queue(db)["paused_at"] is None
    rows.job(db, "other", queue="fast")
    assert "Queues that are paused now: 2." in act(browser, "/queues/pause-all", reason="incident")
    assert queue(db)["paused_reason"] == "incident"
    assert "Queues that are resumed: 2." in act(browser, "/queues/resume-all")
    for limit, said, kept in (("3", "3 (before: none)", 3), ("", "none (before: 3)", None)):
        shown = act(browser, "/queues/limit", queue="slow", limit=limit)
        assert f"Queue slow: limit {said}." in shown
        assert queue(db)["max_running"] == kept


def test_a_change_of_a_queue_that_is_impossible_is_refused(browser: TestClient, db: Db) -> None:
    rows.job(db, queue="slow")
    for given, message in (
        ("0", "limit is 0; write 1 to 2147483647"),
        ("many", "limit is not a whole number: 'many'."),
    ):
        assert message in act(browser, "/queues/limit", queue="slow", limit=given)
    unknown = act(browser, "/queues/pause", queue="nowhere")
    assert "queue nowhere: no job and no runner uses it" in unknown
