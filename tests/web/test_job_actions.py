"""What operators do with one job: run it now, pause and resume it, backfill it."""

import re
from datetime import timedelta
from html import unescape

import pytest
from starlette.testclient import TestClient

from cronledger.rules.instants import iso
from tests.db.support import rows
from tests.db.support.rows import Db, one, value
from tests.spans import Spans, traceparent
from tests.web.support import browsing
from tests.web.support.browsing import VIEWER, assert_refused, panel, post, text
from tests.web.support.history import planned

HOUR = timedelta(hours=1)


def act(browser: TestClient, action: str, /, **data: str) -> str:
    """Send a form of the job, and return the text of the page afterwards."""
    return browsing.act(browser, f"/job-{action}", **{"name": "job", **data})


def test_a_job_runs_now_with_a_payload_and_in_a_span(
    spans: Spans, browser: TestClient, db: Db
) -> None:
    rows.job(db)
    form = browser.get("/job-run?name=job")
    assert form.status_code == 200 and "Payload as JSON" in text(form.text)
    assert "is due now" in act(browser, "run", payload='{"day": "2026-11-22"}')
    made = one(db.execute("SELECT * FROM cronledger.executions"))
    assert (made["trigger"], made["payload"]) == ("manual", {"day": "2026-11-22"})
    assert "@" in made["requested_by"]
    assert made["traceparent"] == traceparent(spans.one("enqueue job"))


def test_a_bad_payload_is_shown_again_with_its_problem(browser: TestClient, db: Db) -> None:
    rows.job(db)
    for payload, problem in (
        ("[1,\n2", "line 2, column 2"), ("NaN", "NaN is not JSON"), ("[" * 100_000, "not JSON"),
    ):  # fmt: skip
        refused = post(browser, "/job-run", name="job", payload=payload)
        assert_refused(refused, problem)
        assert payload in unescape(refused.text)
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 0


def test_a_paused_job_runs_only_if_it_is_forced(browser: TestClient, db: Db) -> None:
    rows.job(db)
    db.execute("SELECT cronledger.pause('job')")
    assert "Run although the job is paused" in text(browser.get("/job-run?name=job").text)
    refused = act(browser, "run")
    assert "is paused" in refused
    assert "Resume it, or tick “Run although the job is paused”" in refused
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 0
    assert "is due now" in act(browser, "run", force="yes")


@pytest.mark.long
def test_a_pause_says_what_it_will_skip(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule="* * * * *")
    shown = browser.get("/job-pause", params={"name": "job", "until": "2h", "reason": "stock"})
    assert re.search(r"\b120 plan_times will be skipped", text(shown.text))
    assert 'value="stock"' in shown.text
    assert value(db, "SELECT paused_at IS NULL FROM cronledger.jobs")
    assert "job is paused." in act(browser, "pause", until="2h", reason="stock count")
    paused = one(db.execute("SELECT * FROM cronledger.jobs"))
    assert paused["paused_reason"] == "stock count"
    assert paused["paused_until"] - paused["paused_at"] > HOUR
    page = text(browser.get("/job/job").text)
    assert "stock count" in page and "Resume" in page
    assert "job is resumed." in act(browser, "resume")
    assert value(db, "SELECT paused_at IS NULL FROM cronledger.jobs")
    assert "It was not paused." in act(browser, "resume")


def test_a_firing_is_skipped_and_taken_back(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule="0 * * * *", scope_kind="shard", scopes=["a", "b"])
    at = rows.now(db).replace(minute=0, second=0, microsecond=0) + HOUR
    between = {"name": "job", "from": (at + HOUR / 2).isoformat(), "reason": "stock"}
    nearest = "No firing lies in this range; the nearest are"
    assert_refused(browser.get("/job-skip", params=between), nearest)
    page = browser.get("/job/job").text
    shown = text(browser.get(browsing.links(page, "firings")[0]).text)
    assert "1 firing will be skipped in each scope" in shown
    asked = {"from": at.isoformat(), "through": (at + 2 * HOUR).isoformat(), "only": "yes"}
    shown = text(browser.get("/job-skip", params={"name": "job", "scope": "a", **asked}).text)
    assert "3 firings will be skipped" in shown and "in each scope" not in shown
    asked |= {"reason": "stock", "scope_kind": "shard", "scope": "a"}
    assert "Planned skip 1 was created." in act(browser, "skip", **asked)
    page = browser.get("/job/job?scope_kind=shard&scope=a").text
    assert "stock" in panel(page, "skips")
    assert panel(page, "firings").count("skipped by an operator: stock") == 3
    assert 'id="skips"' not in browser.get("/job/job?scope_kind=shard&scope=b").text
    assert "Planned skip 1 was withdrawn." in act(browser, "unskip", skip_id="1")


def test_an_observed_job_is_adopted_and_returned_F118(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule="0 0 * * *", observed=True)
    day = rows.now(db).replace(hour=0, minute=0, second=0, microsecond=0) + 72 * HOUR
    assert 'href="/job-adopt?' in browser.get("/job/job").text
    stored = "SELECT adopted_at, returned_at FROM cronledger.jobs"
    for back, shown in (
        ({}, f"job: replicas fire it from {iso(day)} on; the last plan_time of the other"),
        ({"back": "yes", "at": iso(day + 48 * HOUR)}, "job: the other scheduler fires it from"),
        ({}, "; its return to the other scheduler at "),
        ({"back": "yes"}, "is withdrawn, and the other scheduler keeps firing it"),
    ):
        before = one(db.execute(stored))
        given = {"at": iso(day), "reason": "the move"} | back
        assert shown in text(browser.get("/job-adopt", params={"name": "job", **given}).text)
        assert one(db.execute(stored)) == before
        assert shown in act(browser, "adopt", **given)
    audit = db.execute(
        "SELECT outcome, reason, requested_by FROM cronledger.audit WHERE verb = 'adopt'"
    )
    assert [(row["outcome"], row["reason"], "@" in row["requested_by"]) for row in audit] == [
        ("done", "the move", True)
    ] * 4


def test_a_refused_adoption_has_the_reason_F118(browser: TestClient, db: Db) -> None:
    rows.job(db, observed=True)
    rows.job(db, "idle", observed=True, schedule=None)
    for asked, problem in (
        ({"name": "job", "at": "2090-01-01", "back": "yes"}, "it is not adopted"),
        ({"name": "idle", "at": "2090-01-01"}, "it has no plan_time from"),
        ({"name": "job", "at": "soon"}, "at: 'soon' is not a time"),
    ):
        assert_refused(browser.get("/job-adopt", params=asked), problem)
        assert problem in browsing.act(browser, "/job-adopt", **asked)
    assert value(db, "SELECT count(*) FROM cronledger.audit WHERE outcome = 'refused'") == 1
    rows.job(db, "own")
    assert "/job-adopt" not in browser.get("/job/own").text


def test_a_backfill_is_shown_before_it_is_done(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule="0 * * * *")
    now = rows.now(db)
    planned(db, now - 30 * HOUR, now)
    hour = now.replace(minute=0, second=0, microsecond=0)
    rows.execution(db, "FAILED", plan_time=hour - 2 * HOUR)
    rows.execution(db, "SUCCESS", plan_time=hour - 3 * HOUR)
    asked = {
        "name": "job", "from": (hour - 5 * HOUR).isoformat(), "to": hour.isoformat(),
        "reprocess": "failed",
    }  # fmt: skip
    shown = browser.get("/job-backfill", params=asked).text
    words = "Of 6 plan_times in this range, 4 get an execution, 1 are retried, 0 run again, and 1"
    assert words in panel(shown, "preview")
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 2
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', shown))
    done = act(browser, "backfill", **fields)
    assert "4 executions were created, 1 are retried, 1 plan_times were left" in done
    found = db.execute("SELECT trigger, status FROM cronledger.executions ORDER BY plan_time")
    assert [tuple(row.values()) for row in found] == [
        *[("backfill", "PENDING")] * 2, ("schedule", "SUCCESS"), ("schedule", "FAILED"),
        *[("backfill", "PENDING")] * 2,
    ]  # fmt: skip


def test_a_backfill_that_cannot_be_done_says_why(browser: TestClient, db: Db) -> None:
    rows.job(db, "job", schedule="* * * * * *")
    db.execute("UPDATE cronledger.schedules SET planned_through = cronledger.db_now()")
    for asked, problem in (
        ({"from": "300d"}, "more than 10,000 plan_times"),
        ({"from": "1h", "scope": "none"}, "; the page of the job lists the scopes"),
        ({"from": "never"}, "from: 'never' is neither a time nor a duration"),
        ({"from": "1h", "reprocess": "some"}, "reprocess is one of"),
    ):
        assert_refused(browser.get("/job-backfill", params={"name": "job", **asked}), problem)
    # What is done has the instants that were shown, and no durations.
    sent = {"name": "job", "from": "6h", "to": "2026-11-22", "ended_before": "2026-11-22"}
    refused = post(browser, "/job-backfill", **sent)
    assert_refused(refused, "from: '6h' is not a time; write it like 2026-")


def test_viewers_get_no_forms(by_token: TestClient, db: Db) -> None:
    rows.job(db)
    assert "Run now" not in by_token.get("/job/job", headers=VIEWER).text
    shown = by_token.get("/jobs", headers=VIEWER).text
    assert "Pause…" not in shown and "checkbox" not in shown
    for path in ("run", "pause", "adopt", "backfill"):
        assert by_token.get(f"/job-{path}?name=job", headers=VIEWER).status_code == 403
        refused = by_token.post(f"/job-{path}", data={"name": "job"}, headers=VIEWER)
        assert refused.status_code == 403
