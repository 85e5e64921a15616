"""The page Jobs: rows in alphabetical order, search, filters, and the pause and resume of many."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import jobs as page
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import expire, next_page, panel, post, sign_in, text


def names(browser: TestClient, query: str = "") -> list[str]:
    found = browser.get(f"/jobs{query}")
    assert found.status_code == 200, text(found.text)
    return [unescape(name) for name in re.findall(r'name="job" value="([^"]*)"', found.text)]


def many(db: Db, count: int) -> None:
    """Jobs `job-00000`, …, written by one statement."""
    db.execute(
        "INSERT INTO cronledger.jobs (name, schedule, handler, target)"
        " SELECT format('job-%%s', lpad(n::text, 5, '0')), '@hourly', 'command',"
        " '{\"command\": [\"true\"]}' FROM generate_series(1, %s) n", [count],
    )  # fmt: skip


def test_jobs_are_in_alphabetical_order_whatever_their_state(browser: TestClient, db: Db) -> None:
    for name in ("b", "c", "a", "Z"):
        rows.job(db, name)
    rows.execution(db, "FAILED", "c")
    db.execute("SELECT cronledger.pause('b', reason => 'moving', requested_by => 'alice')")
    db.execute("SELECT cronledger.retire('Z')")
    assert names(browser) == ["a", "b", "c"]
    assert names(browser, "?state=retired") == ["Z"]
    shown = panel(browser.get("/jobs").text, "jobs")
    assert re.search(r"b paused by alice: moving", shown)
    assert re.search(r"c .*: 1 failed failing for [^,]* @hourly UTC .*FAILED ", shown)


def test_the_durations_of_a_job_are_those_of_all_its_scopes(browser: TestClient, db: Db) -> None:
    rows.job(db, "shards", scope_kind="shard", scopes=["a", "b"])
    for scope, seconds, hours in (("a", 1, 2), ("b", 3, 3), ("b", 60, 25)):
        at = rows.now(db) - timedelta(hours=hours)
        scope_of = {"scope_kind": "shard", "scope_id": scope}
        rows.execution(
            db, "SUCCESS", "shards", plan_time=at, duration_ms=1000 * seconds, **scope_of
        )
    shown = panel(browser.get("/jobs").text, "jobs")
    assert re.search(r"shards .*2 scopes .*active @hourly UTC .*1m default", shown)


def test_a_job_has_the_strip_of_its_scopes_which_names_the_worst_one(
    browser: TestClient, db: Db
) -> None:
    """However many scopes there are."""
    at = rows.now(db)
    wide = [f"s{number:03}" for number in range(200)]
    for name, scopes in (("shards", ["a", "b", "c"]), ("wide", wide)):
        rows.job(db, name, scope_kind="shard", scopes=scopes)
    for name, scope, status, hours in (
        ("shards", "b", "FAILED", 2), ("shards", "b", "FAILED", 3), ("shards", "c", "FAILED", 5),
        ("shards", "c", "SUCCESS", 4), ("shards", "a", "SUCCESS", 3), ("wide", "s177", "FAILED", 2),
    ):  # fmt: skip
        scoped = {"scope_kind": "shard", "scope_id": scope}
        rows.execution(db, status, name, plan_time=at - timedelta(hours=hours), **scoped)
    shown = browser.get("/jobs").text
    assert 'aria-label="24 hours: 2 ran, 3 failed"' in shown
    worst = re.findall(r'class="worst" href="([^"]*)">([^<]*)<', shown)
    assert [(unescape(address), name) for address, name in worst] == [
        ("/job/shards?scope_kind=shard&scope=b", "shard/b: failed"),
        ("/job/wide?scope_kind=shard&scope=s177", "shard/s177: failed"),
    ]
    jobs = panel(shown, "jobs")
    assert re.search(r"shards 3 scopes .* failing for .*, 2 in a row in shard/b ", jobs)
    assert "shard/s177: failed 10 of 200 scopes" in jobs and re.search(
        "failing for [^,]* in shard/s177", jobs
    )


@pytest.mark.long
def test_search_and_filters_are_in_the_address(browser: TestClient, db: Db) -> None:
    rows.job(db, "Nightly-Backup", queue="slow")
    rows.job(db, "100%_sure")
    rows.job(db, "nightly-report", source="app")
    assert names(browser, "?search=NIGHTLY") == ["Nightly-Backup", "nightly-report"]
    assert names(browser, "?search=%25_") == ["100%_sure"]
    assert names(browser, "?queue=slow") == ["Nightly-Backup"]
    assert names(browser, "?source=app&search=night") == ["nightly-report"]
    assert browser.get("/jobs?state=odd").status_code == 400
    shown = browser.get("/jobs?queue=slow&search=x").text
    assert "<option selected>slow</option>" in shown and 'name="search" value="x"' in shown


@pytest.mark.long
def test_the_jobs_of_a_paused_queue_are_shown_as_paused(browser: TestClient, db: Db) -> None:
    rows.job(db, "mailing", queue="mail")
    rows.job(db, "report", queue="mail")
    rows.job(db, "tidy")
    db.execute("SELECT cronledger.pause_queue('mail', 'the provider moves', 'alice')")
    db.execute("SELECT cronledger.pause('report', 'stock', requested_by => 'bob')")
    for state, job in {"queue_paused": "mailing", "paused": "report", "active": "tidy"}.items():
        shown = browser.get("/jobs", params={"state": state}).text
        assert re.findall(r'aria-label="Choose ([^"]*)"', shown) == [job]
    assert "queue paused by alice: the provider moves" in text(browser.get("/jobs").text)
    page = text(browser.get("/job/mailing").text)
    assert "queue paused" in page and "by alice: the provider moves" in page
    assert "queue paused" in text(browser.get("/search?q=mailing").text)
    preview = text(post(browser, "/jobs/pause", job=["mailing", "report"]).text)
    assert "1 to be paused" in preview and "1 paused already" in preview


def test_a_job_beyond_the_first_page_is_found(browser: TestClient, db: Db) -> None:
    many(db, 130)
    assert names(browser, "?search=b-0007") == [f"job-0007{n}" for n in range(10)]
    first = browser.get("/jobs").text
    assert panel(first, "jobs").startswith("Jobs 130 jobs") and "Page 1 of 2" in text(first)
    assert names(browser, next_page(first).removeprefix("/jobs")) == [
        f"job-{number:05}" for number in range(101, 131)
    ]
    assert names(browser, "?sort=name&order=desc")[0] == "job-00130"


def test_jobs_are_filtered_and_counted_by_result(by_token: TestClient, db: Db) -> None:
    for name in ("bad", "fine", "new", "worse"):
        rows.job(db, name)
    at = rows.now(db)
    for name, status, hours in (
        ("bad", "FAILED", 1),
        ("fine", "SUCCESS", 1),
        ("worse", "FAILED", 2),
    ):
        rows.execution(db, status, name, plan_time=at - timedelta(hours=hours))
    rows.execution(db, "FAILED", "worse", plan_time=at - timedelta(hours=1))
    sign_in(by_token)
    shown = panel(by_token.get("/jobs").text, "jobs")
    assert "4 jobs, 2 failing" in shown and "never ran" in shown
    assert names(by_token, "?result=failing") == ["bad", "worse"]
    assert names(by_token, "?result=never+ran") == ["new"]
    assert by_token.get("/jobs?result=odd").status_code == 400
    for result, expected in (("failing", ["bad", "worse"]), ("never ran", ["new"])):
        preview = post(by_token, "/jobs/pause", every="yes", result=result)
        assert re.findall(r'name="job" value="([^"]*)"', preview.text) == expected


def test_jobs_are_sorted_by_the_head_of_each_column(browser: TestClient, db: Db) -> None:
    at = rows.now(db)
    for name, given in (
        ("a", {"queue": "z", "owner": "b", "schedule": "@daily"}),
        ("b", {"queue": "y", "owner": "a", "schedule": "@weekly"}),
        ("c", {"queue": "x", "schedule": "@hourly"}),
    ):
        rows.job(db, name, **given)
    for name, status, hours in (("a", "SUCCESS", 2), ("b", "FAILED", 3), ("c", "SUCCESS", 1)):
        rows.execution(db, status, name, plan_time=at - timedelta(hours=hours))
    for name, days in (("a", 2), ("b", 3), ("c", 1)):
        rows.schedule(db, name, next_plan_time=at + timedelta(days=days))
    for column, expected in (
        ("name", "abc"), ("state", "bac"), ("schedule", "acb"), ("next", "cab"), ("last", "bac"),
        ("queue", "cba"), ("owner", "bac"),
    ):  # fmt: skip
        assert names(browser, f"?sort={column}") == list(expected), column
        assert names(browser, f"?sort={column}&order=desc")[0] == {"owner": "a", "state": "a"}.get(
            column, expected[-1]
        ), column
    shown = browser.get("/jobs?sort=queue&search=").text
    assert 'aria-sort="ascending"><a class="sort" href="/jobs?sort=queue&amp;order=desc"' in shown


def test_jobs_are_sorted_by_their_last_24_hours_and_by_their_p95(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By failures, then missed plan_times, then executions; the latter are summed up later."""
    monkeypatch.setattr(page, "MOST", 2)
    at = rows.now(db)
    for name in "abcdefg":
        rows.job(db, name, queue="q" if name in "abf" else "other")
    for name, statuses, duration_ms in (
        ("a", "F", 70), ("b", "FF", 60), ("c", "F", 50), ("d", "SS", 40), ("e", "S", 90),
        ("g", "S", 90),
    ):  # fmt: skip
        for hours, letter in enumerate(statuses, 3):
            status = "FAILED" if letter == "F" else "SUCCESS"
            plan_time = at - timedelta(hours=hours)
            rows.execution(db, status, name, plan_time=plan_time, duration_ms=duration_ms)
    rows.execution(db, "FAILED", "d", plan_time=at - timedelta(hours=25), duration_ms=40)
    rows.execution(db, "FAILED", "d", plan_time=at, trigger="manual", duration_ms=40)
    retried = {"next_attempt_at": at + timedelta(hours=1), "duration_ms": 40}
    rows.execution(db, "FAILED", "d", plan_time=at - timedelta(hours=2), **retried)
    rows.skip(db, at - timedelta(hours=2), count=5, job="a")
    rows.skip(db, at - timedelta(hours=2), count=9, reason="paused", job="c")
    rows.skip(db, at - timedelta(hours=49), at - timedelta(hours=1), 49, "overlap", "e")
    rows.skip(db, at - timedelta(hours=2), count=30, job="g")
    orders = {
        "24h": "degcabf", "24h&order=desc": "bacgedf",
        "p95": "dcbaegf", "p95&order=desc": "egabcdf",
    }  # fmt: skip
    for is_summed_up in (False, True):
        if is_summed_up:
            db.execute("UPDATE cronledger.executions SET changed_xact = pg_current_xact_id()")
            db.execute("SELECT cronledger_internal.mark_changed_hours('0', 20000)")
            db.execute("SELECT cronledger_internal.roll_up_hours(20000)")
            expire(browser)
        assert (value(db, "SELECT count(*) FROM cronledger.execution_hours") > 6) is is_summed_up
        for sort, expected in orders.items():
            pages = [names(browser, f"?sort={sort}&page={number}") for number in range(1, 6)]
            assert pages == [list(expected[n : n + 2]) for n in range(0, 10, 2)], sort
            filtered = [name for name in expected if name in "abf"]
            assert names(browser, f"?queue=q&sort={sort}") == filtered[:2]
            assert names(browser, f"?queue=q&sort={sort}&page=2") == filtered[2:]


# --- actions --------------------------------------------------------------------------------------


def paused(db: Db) -> list[tuple[str, str, str]]:
    found = db.execute(
        "SELECT name, paused_by, paused_reason FROM cronledger.jobs WHERE paused_at IS NOT NULL"
        " ORDER BY name"
    )
    return [(row["name"], row["paused_by"], row["paused_reason"]) for row in found]


def test_a_pause_has_a_preview_one_reason_and_a_name(by_token: TestClient, db: Db) -> None:
    before = rows.now(db)
    for name in ("a", "b", "c", "gone"):
        rows.job(db, name)
    db.execute("SELECT cronledger.pause('b', reason => 'old', requested_by => 'bob')")
    db.execute("SELECT cronledger.retire('gone')")
    sign_in(by_token)
    preview = post(by_token, "/jobs/pause", job=["a", "b", "gone"], search="x")
    shown = text(preview.text)
    assert "1 to be paused 1 paused already" in shown and "1 retired, and left" in shown
    assert "old (bob)" in shown
    assert paused(db) == [("b", "bob", "old")]
    chosen = re.findall(r'name="job" value="([^"]*)"', preview.text)
    form = {"confirmed": "yes", "job": chosen, "reason": "moving", "until": "2h", "search": "x"}
    done = post(by_token, "/jobs/pause", **form)
    assert (done.status_code, done.headers["location"]) == (303, "/jobs?search=x")
    after = text(by_token.get("/jobs").text)
    assert "Paused: 1. Paused already, with the new reason now: 1." in after
    assert paused(db) == [("a", "alice", "moving"), ("b", "alice", "moving")]
    until = value(db, "SELECT DISTINCT paused_until FROM cronledger.jobs WHERE paused_by = 'alice'")
    assert before <= until - timedelta(hours=2) <= rows.now(db)


@pytest.mark.long
def test_all_jobs_that_match_are_paused_and_resumed(browser: TestClient, db: Db) -> None:
    many(db, 150)  # more than one page of them
    rows.job(db, "other")
    preview = post(browser, "/jobs/pause", every="yes", search="job-")
    chosen = re.findall(r'name="job" value="([^"]*)"', preview.text)
    assert len(chosen) == 150
    post(browser, "/jobs/pause", confirmed="yes", job=chosen, reason="freeze")
    assert len(paused(db)) == 150
    preview = post(browser, "/jobs/resume", every="yes", state="paused")
    chosen = re.findall(r'name="job" value="([^"]*)"', preview.text)
    assert len(chosen) == 150
    assert post(browser, "/jobs/resume", confirmed="yes", job=chosen).status_code == 303
    assert paused(db) == []


def test_a_pause_that_is_refused_changes_nothing(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_CHANGED", 2)
    for name in ("a", "b", "c"):
        rows.job(db, name)
    yes: dict[str, Any] = {"confirmed": "yes"}
    for data, message in (
        (yes, "No job is chosen."),
        (yes | {"job": "a", "until": "soon"}, "until: 'soon' is neither a time nor a duration"),
        (yes | {"job": "a", "until": "2001-01-01"}, "is in the past"),
        (yes | {"job": ["a", "nobody"]}, "job 'nobody' does not exist"),
        ({"every": "yes"}, "More than 2 jobs match."),
    ):
        refused = post(browser, "/jobs/pause", **data)
        assert refused.status_code in (400, 404, 409) and message in text(refused.text)
    assert paused(db) == []


@pytest.mark.long
def test_a_job_whose_last_executions_failed_is_not_active(browser: TestClient, db: Db) -> None:
    rows.job(db, "report")
    at = rows.now(db)
    rows.copies(db, rows.execution(db, "FAILED", "report", plan_time=at - timedelta(minutes=1)), 63)
    shown = panel(browser.get("/jobs").text, "jobs")
    assert re.search(r"failing for .*, 64 in a row @hourly", shown) and "active" not in shown
    assert "report failing @hourly" in text(browser.get("/job/report").text)
    rows.execution(db, "SUCCESS", "report", plan_time=at - timedelta(seconds=1))
    expire(browser)
    assert "failing for" not in panel(browser.get("/jobs").text, "jobs")
    assert "report failing" not in text(browser.get("/job/report").text)


def test_an_execution_that_waits_for_required_jobs_is_in_the_strip(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "gated")
    now = value(db, "SELECT cronledger.db_now()")
    rows.execution(db, "PENDING", "gated", gated_at=now, next_attempt_at=None)
    assert browser.get("/jobs").status_code == 200
