"""The page Job: the accounted day, what comes next, durations, scopes and revisions."""

import re
from datetime import UTC, date, datetime, time, timedelta

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import expire, links, panel, text
from tests.web.support.history import planned

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def page(browser: TestClient, name: str = "job", **query: str | int) -> str:
    found = browser.get(f"/job/{name}", params=query)
    assert found.status_code == 200, text(found.text)
    return found.text


def yesterday(db: Db, zone: str = "UTC") -> date:
    """A job has fired hourly since the day before yesterday, except once; return yesterday."""
    rows.job(db, schedule="0 * * * *", timezone=zone)
    now = rows.now(db)
    planned(db, now - 3 * DAY, now)
    first = (now - 2 * DAY).replace(minute=0, second=0, microsecond=0)
    for hour in range(49):
        if hour != 30:
            at = first + hour * HOUR
            rows.execution(db, "SUCCESS", plan_time=at, started_at=at, duration_ms=100 * hour)
    return (first + 30 * HOUR).date()


@pytest.mark.long
def test_a_job_has_its_accounted_day(browser: TestClient, db: Db) -> None:
    day = yesterday(db)
    shown = page(browser, day=str(day))
    assert re.search(r"\d+ planned = \d+ ran .*\+ 1 unexplained", panel(shown, "day"))
    assert f'name="day" value="{day}"' in shown
    assert f"day={day - DAY}" in shown and f"day={day + DAY}" in shown
    whys = {address for address in links(shown, "day") if address.startswith("/why/job/")}
    assert any("which is a violation" in text(browser.get(address).text) for address in whys)
    id = value(db, "SELECT max(id) FROM cronledger.executions WHERE plan_time::date = %s", day)
    assert f'href="/execution/{id}"' in shown
    assert "unexplained" in panel(page(browser), "day")


def test_a_day_shows_when_it_was_last_verified(browser: TestClient, db: Db) -> None:
    """Only a run that checked the day and found no violation counts."""
    day = yesterday(db)
    end = datetime.combine(day + DAY, time(), UTC)
    for hour, violations, through in ((6, 0, end), (7, 1, end), (8, 0, end - HOUR)):
        at = end + DAY + hour * HOUR + timedelta(minutes=2)
        rows.verification(
            db, started_at=at, finished_at=at, violations=violations, checked_through=through
        )  # fmt: skip
    assert f" · verified {day + 2 * DAY} 06:02" in panel(page(browser, day=str(day)), "day")


@pytest.mark.long
def test_the_next_firings_and_durations_of_a_job(browser: TestClient, db: Db) -> None:
    yesterday(db, "Europe/Berlin")
    shown = page(browser)
    firings = panel(shown, "firings")
    assert firings.count("CE") == 2 * 10  # CET or CEST: the plan_time, and its button to skip it
    sums = panel(shown, "sums")
    assert "48 succeeded, " in sums and "Longest 4.8s" in sums


def test_revisions_are_shown_as_changes(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule="0 * * * *")
    db.execute("UPDATE cronledger.jobs SET grace = '2 min', edited_by = 'anna'")
    db.execute("SELECT cronledger.pause('job', reason => 'stock count', requested_by => 'ben')")
    revisions = panel(page(browser), "revisions")
    assert "grace: 00:01:00 → 00:02:00" in revisions and "anna" in revisions
    assert "ben paused stock count" in revisions
    assert "Paused since" in text(page(browser)) and "by ben: stock count" in text(page(browser))


@pytest.mark.long
def test_many_revisions_and_scopes_are_paged(browser: TestClient, db: Db) -> None:
    rows.job(db, scope_kind="shard", scopes=[f"s{n:03}" for n in range(60)])
    for n in range(25):
        db.execute("UPDATE cronledger.jobs SET grace = %s::interval", [f"{n + 90} s"])
    shown = page(browser)
    assert "Further scopes" in text(shown) and "Earlier revisions" in text(shown)
    assert "shard/s000" in text(shown) and "shard/s055" not in panel(shown, "scopes")
    further = page(browser, after_kind="shard", after_scope="s049")
    assert "shard/s055" in panel(further, "scopes") and "shard/s049" not in panel(further, "scopes")
    address = re.search(r'href="([^"]*before=(\d+)[^"]*)#revisions">Earlier', shown)
    assert address is not None and address[2] == "7"
    earlier = panel(page(browser, before=7), "revisions")
    assert "6 " in earlier and "first revision" in earlier
    one = page(browser, scope_kind="shard", scope="s031")
    assert "shard/s031" in text(one)


@pytest.mark.long
def test_a_job_that_does_not_exist_or_has_nothing_to_show_says_so(
    browser: TestClient, db: Db
) -> None:
    assert browser.get("/job").status_code == 400
    assert browser.get("/job/none").status_code == 404
    rows.job(db, timezone="Pacific/Apia")
    for query in ("day=never", "before=x", "after_kind=%00", "after_scope=%00&before=1"):
        assert browser.get(f"/job/job?{query}").status_code == 400
    never = browser.get("/job/job?day=2011-12-30")
    assert never.status_code == 200
    assert "2011-12-30 does not occur in Pacific/Apia" in panel(never.text, "day")
    assert "day=2011-12-31" in never.text
    assert "is not a scope of this job" in panel(page(browser, scope="other"), "day")
    rows.job(db, "enqueued", schedule=None)
    shown = page(browser, "enqueued")
    assert "None: it has no schedule" in panel(shown, "firings")
    assert "0 planned = 0 ran · 0 unexplained" in panel(shown, "day")


def test_a_job_that_runs_at_boot_shows_no_next_time_F100(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule="@reboot", scope_kind="host", scopes=["web1"])
    at = (rows.now(db) - DAY).replace(hour=12, minute=0, second=0, microsecond=0)
    planned(db, at - HOUR, at + HOUR)
    db.execute("UPDATE cronledger.schedules SET parked = 'boot', next_due_at = NULL, woken = false")
    rows.insert(db, "host_boots", host="web1", boot_id="1", booted_at=at, checked_in_at=at,
                plan_time=at, jobs=["job"])  # fmt: skip
    scope = {"scope_kind": "host", "scope_id": "web1"}
    rows.execution(db, "SUCCESS", plan_time=at, **scope)
    assert re.search(r"parked: boot @reboot ", panel(browser.get("/jobs").text, "jobs"))
    shown = page(browser, day=str(at.date()))
    assert "None: it runs at the next boot of web1" in panel(shown, "firings")
    assert "1 planned = 1 ran · 0 unexplained" in panel(shown, "day")


def test_the_page_of_a_job_links_what_it_requires(browser: TestClient, db: Db) -> None:
    rows.job(db, "extract", schedule="0 3 * * *")
    rows.job(db, "load", schedule=None, after=Jsonb([{"job": "extract"}]))
    shown = page(browser, "load")
    assert "0 3 * * *" in text(shown) and "after extract" in text(shown)
    assert 'href="/job/extract"' in shown


def counted_hour(db: Db, at: datetime, failed: int, *scope: str) -> None:
    """Insert the sums of an hour of a scope: 3 successes and 2 other ends, each of 2 s."""
    db.execute(
        "INSERT INTO cronledger.rolled_up_hours (job_name, scope_kind, scope_id, hour, success,"
        " failed, cancelled, retries, durations, duration_ms_sum, duration_ms_min,"
        " duration_ms_max, duration_counts, starts, late_ms_sum, late_counts, rolled_up_at)"
        " VALUES (%s, %s, %s, date_trunc('hour', %s::timestamptz), 3, %s, 0, 0,"
        " 5, 10000, 2000, 2000, '{5}', 0, 0, '{}', cronledger.db_now())",
        [*(scope or ("job", "global", "global")), at, failed],
    )


def test_the_durations_of_each_hour_are_drawn_with_failures(browser: TestClient, db: Db) -> None:
    rows.job(db)
    shown = page(browser)
    assert "is counted yet." in panel(shown, "durations") and 'class="panel folded"' in shown
    for days, failed in ((1, 2), (20, 1)):
        counted_hour(db, rows.now(db) - days * DAY, failed)
    expire(browser)
    week, month = (page(browser, days=days) for days in (7, 30))
    assert "an hour at most 2.0s, 2 failed" in week and week.count(": 2 failed</title>") == 1
    assert "an hour at most 2.0s, 3 failed" in month
    assert browser.get("/job/job", params={"days": 8}).status_code == 400


def test_the_newest_executions_have_their_errors_and_scopes_their_last_outcome(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "shards", scope_kind="shard", scopes=["east", "west", "north"])
    of_west = {"scope_kind": "shard", "scope_id": "west"}
    rows.execution(db, "FAILED", "shards", error_msg="no disk <1>", **of_west)
    for name in ("east", "west"):
        counted_hour(db, rows.now(db) - DAY / 2, 1, "shards", "shard", name)
    counted_hour(db, rows.now(db) - 2 * DAY, 1, "shards", "shard", "west")
    shown = page(browser, "shards", scope_kind="shard", scope="west")
    assert "no disk <1>" in panel(shown, "newest")
    cells = panel(shown, "cells")
    assert "2 never ran 1 FAILED" in cells and (
        "Last 24 hours of all scopes, in hours that are counted: 6 succeeded, 2 failed,"
        " 0 cancelled; average 2.0s, longest 2.0s." in cells
    )
    assert "west: FAILED" in cells and "east: never ran" in cells
    assert panel(page(browser, "shards", find="ES"), "cells").endswith("west: FAILED")
