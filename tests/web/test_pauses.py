"""The page Pauses: what it lists, what a plan would skip, and its actions."""

import re
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import pauses
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import act, panel, text


@pytest.fixture(autouse=True)
def jobs(db: Db) -> None:
    rows.job(db, "report", schedule="0 * * * *", queue="slow", owner="ann")
    rows.job(db, "pay", schedule="30 5 * * *", owner="bob", timezone="Europe/Berlin")


def test_a_plan_shows_what_it_skips_and_plans_nothing(browser: TestClient, db: Db) -> None:
    asked = {"preview": "yes", "from": "2031-05-07T00:00Z", "until": "2031-05-08T00:00Z"}
    shown = text(browser.get("/pauses", params=asked).text)
    assert "pay 1 1 2031-05-07 05:30:00 CEST" in shown
    browser.cookies.set("cronledger_times", "UTC")
    shown = text(browser.get("/pauses", params=asked).text)
    assert "26 plan_times of 2 jobs will be skipped." in shown
    assert "pay 1 1 2031-05-07 03:30:00" in shown
    shown = text(browser.get("/pauses", params=asked | {"queue": "slow", "until": ""}).text)
    assert "169 plan_times of 1 job will be skipped in the first" in shown
    refused = browser.get("/pauses", params=asked | {"until": asked["from"]})
    assert refused.status_code == 400 and "is not after from" in text(refused.text)
    assert value(db, "SELECT count(*) FROM cronledger.pauses") == 0


def test_a_fault_of_the_page_is_not_one_of_the_request(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "paused_jobs", lambda *_: iter([int("x")]))
    with pytest.raises(ValueError, match="invalid literal"):
        browser.get("/pauses", params={"preview": "yes"})


def test_of_several_pauses_the_one_that_ends_last_is_named(browser: TestClient, db: Db) -> None:
    """By each place that names the pause of a firing to come, and by the job once it is paused."""
    now = rows.now(db)
    at = now + timedelta(minutes=30)
    rows.schedule(db, "report", next_due_at=at, next_plan_time=at)
    for number, hours in enumerate((5, 9, 7), 1):
        begins = now + timedelta(minutes=20, microseconds=number)
        db.execute(
            "SELECT cronledger.plan_pause(%s, %s, %s)",
            [f"reason {number}", begins, now + timedelta(hours=hours)],
        )
    why = {"job": "report", "time": f"{now + timedelta(hours=2):%Y-%m-%dT%H:00Z}"}
    explained = browser.get("/why", params=why, follow_redirects=True).text
    for shown in (
        panel(browser.get("/job/report").text, "firings"), panel(browser.get("/").text, "next"),
        text(browser.get("/jobs").text), text(explained),
    ):  # fmt: skip
        assert {*re.findall(r"pause (\d)", shown)} == {"2"}
    assert value(db, "SELECT pause FROM cronledger.upcoming WHERE job_name = 'report'") == 2
    db.execute("UPDATE cronledger.pauses SET from_at = cronledger.db_now()")
    db.execute("SELECT cronledger_internal.take_up_pauses()")
    reason = "SELECT paused_reason FROM cronledger.jobs WHERE name = 'report'"
    assert value(db, reason) == "reason 2"


def test_a_pause_is_planned_listed_changed_and_withdrawn(browser: TestClient, db: Db) -> None:
    assert 'href="/pauses"' in browser.get("/jobs").text
    assert "No job was ever paused." in text(browser.get("/pauses").text)
    shown = act(
        browser, "/pauses/plan", queue="slow", owner="ann", until="2d", reason="stock <count>",
        labels="", job="", **{"from": "1d"},
    )  # fmt: skip
    assert "Pause 1 is planned." in shown
    listed = panel(browser.get("/pauses").text, "pauses")
    assert "1 planned queue slow, owner ann (1 now)" in listed and "stock <count> by" in listed
    changed = {"pause": "1", "until": "none", "reason": "longer", "from": ""}
    assert "Pause 1 is changed." in act(browser, "/pauses/change", **changed)
    row = "SELECT (reason, until_at IS NULL)::text FROM cronledger.pauses"
    assert value(db, row) == "(longer,t)"
    assert "Pause 1 is unchanged." in act(browser, "/pauses/change", pause="1")
    assert "Pause 1 is ended." in act(browser, "/pauses/end", pause="1")
    assert "Pause 1 was over already." in act(browser, "/pauses/end", pause="1")
    assert "1 withdrawn queue slow" in panel(browser.get("/pauses").text, "pauses")
    refused = text(act(browser, "/pauses/change", **changed | {"reason": "again"}))
    assert "is changed" not in refused
    assert value(db, row) == "(longer,t)"
    verbs = "SELECT string_agg(verb || ' ' || outcome, ', ' ORDER BY id) FROM cronledger.audit"
    done = "plan_pause done, change_pause done, change_pause unchanged, end_pause done"
    assert f"{done}, end_pause unchanged" in value(db, verbs)


def test_a_bad_plan_is_refused(browser: TestClient, db: Db) -> None:
    cases: tuple[tuple[dict[str, str], str], ...] = (
        ({"reason": ""}, "reason: it is empty"),
        ({"from": "soon"}, "from"), ({"labels": "a=b, a=c"}, "write KEY=VALUE"),
    )  # fmt: skip
    for given, said in cases:
        fields = {"reason": "x", "from": "", "until": "", "labels": "", "job": ""} | given
        assert said in text(act(browser, "/pauses/plan", **fields)), given
    assert value(db, "SELECT count(*) FROM cronledger.pauses") == 0
