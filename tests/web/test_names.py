"""The page strips no name: a job whose name ends with a blank is another job."""

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.db.test_names import questionable
from tests.web.support.browsing import SAME_ORIGIN, text


def test_an_action_on_a_job_whose_name_ends_with_a_blank_is_not_one_on_another_job(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "pay")
    questionable(db, "pay ", description="the other one")
    assert "the other one" in text(browser.get("/job?name=pay%20").text)
    assert "the other one" not in text(browser.get("/job?name=pay").text)
    form = {"name": "pay ", "reason": " incident "}
    assert browser.post("/job/pause", data=form, headers=SAME_ORIGIN).status_code == 303
    paused = "SELECT array_agg(name || ':' || paused_reason) FROM cronledger.jobs"
    assert value(db, paused + " WHERE paused_at IS NOT NULL") == ["pay :incident"]
