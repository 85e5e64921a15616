"""The page Timeline: the attempts of a window as bars, or their density."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from cronledger.web import queries
from cronledger.web.pages import timeline
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import assert_refused, panel, text

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def ran(db: Db, start: datetime, seconds: float = 30, status: str = "SUCCESS", **more: Any) -> int:
    """An execution whose last attempt started at `start`."""
    columns = {"plan_time": start, "started_at": start, **more}
    if status != "RUNNING":
        columns["finished_at"] = start + timedelta(seconds=seconds)
    found: int = rows.execution(db, status, **columns)["id"]
    return found


def bars(html: str) -> list[str]:
    return re.findall(r"<title>(\S+, execution [^<]*)</title>", html)


def test_attempts_are_bars_by_runner(browser: TestClient, db: Db) -> None:
    rows.job(db)
    at = rows.now(db)
    good = ran(db, at - 20 * MINUTE, 60, runner_id="r1")
    bad = ran(db, at - 10 * MINUTE, 5, "FAILED", runner_id="r2")
    running = ran(db, at - 5 * MINUTE, status="RUNNING", runner_id="r2", scope_id="b")
    page = browser.get("/timeline")
    assert page.status_code == 200 and "style=" not in page.text
    shown = bars(page.text)
    assert f"job, execution {good}, attempt 1: succeeded after 1m on r1" in shown
    assert f"job, execution {bad}, attempt 1: failed (boom) after 5.0s on r2" in shown
    assert any(f"execution {running}, attempt 1: running after 5m" in one for one in shown)
    for execution in (good, bad, running):  # the bar, and the row of the table
        assert page.text.count(f'href="/execution/{execution}"') == 2
    assert 'since=3h"' in page.text  # zooming out goes on following the present
    words = panel(page.text, "timeline")
    assert "Attempts by runner" in words and "Later" not in words
    assert "succeeded 1 running 1 failed 1" in words
    assert re.search(r"job global/b running 5m \d*s? ?1 r2 default", words)


def test_overlapping_attempts_have_lanes_of_their_own(browser: TestClient, db: Db) -> None:
    rows.job(db)
    start = rows.now(db) - 30 * MINUTE
    for number in range(3):
        ran(db, start + number * MINUTE, 150, scope_id=str(number))
    ran(db, start + 10 * MINUTE, 60, scope_id="later")
    svg = browser.get("/timeline").text.partition('class="timeline"')[2].partition("</svg>")[0]
    assert "4 attempts in 3 lanes" in svg
    tops = re.findall(r'd="M[\d.]+ ([\d.]+)H', svg)
    assert len(set(tops)) == 4  # the axis of the group, and three lanes


def test_a_stolen_attempt_follows_the_one_that_crashed(browser: TestClient, db: Db) -> None:
    rows.job(db)
    at = rows.now(db)
    crashed = {
        "attempt": 1, "runner_id": "r1", "lease_token": "t", "error_code": "runner_crashed",
        "started_at": (at - 9 * MINUTE).isoformat(), "last_seen": (at - 8 * MINUTE).isoformat(),
    }  # fmt: skip
    stolen = ran(db, at - 5 * MINUTE, 60, runner_id="r2", attempt=2, attempts=Jsonb([crashed]))
    page = browser.get("/timeline").text
    first, second = (bar for bar in bars(page) if f"execution {stolen}," in bar)
    assert "attempt 1: crashed (runner_crashed) after 1m on r1" in first
    assert "attempt 2: stolen, succeeded after 1m on r2" in second
    words = panel(page, "timeline")
    assert "succeeded 1 crashed 1 stolen 1" in words
    assert "crashed (runner_crashed)" in words and "succeeded, stolen" in words


def test_pauses_are_drawn_behind_what_ran_and_planned_ones_alone(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "job", queue="mail")
    at = rows.now(db)
    db.execute(
        "SELECT cronledger.plan_pause('move', begins => %s, until => %s, queue => 'mail',"
        " requested_by => 'anna'),"
        " cronledger.plan_pause('withdrawn', begins => %s)",
        [at + 2 * HOUR, at + 3 * HOUR, at + 2 * HOUR],
    )
    db.execute("SELECT cronledger.end_pause(max(id)) FROM cronledger.pauses")
    later = {"since": (at + HOUR).isoformat(), "until": (at + 4 * HOUR).isoformat()}
    page = browser.get("/timeline", params=later).text
    assert page.count('class="pause"') == 2  # the band, and its swatch in the legend
    assert re.search(
        r"pause \d+ of queue mail \(planned, from .* until .*\) by anna: move", text(page)
    )
    wider = later | {"since": (at - HOUR).isoformat()}
    assert "withdrawn" not in browser.get("/timeline", params=wider).text
    rows.job(db, "other")
    found = {name: browser.get("/timeline", params=later | {"job": name}).text
             for name in ("job", "other")}  # fmt: skip
    assert 'class="pause"' in found["job"] and 'class="pause"' not in found["other"]
    ran(db, at - MINUTE)
    db.execute("SELECT cronledger.plan_pause('now')")
    page = browser.get("/timeline").text
    assert len(bars(page)) == 1 and "of all jobs (in force, from" in text(page)


def test_the_window_the_group_and_the_job_are_in_the_address(browser: TestClient, db: Db) -> None:
    rows.job(db, "a")
    rows.job(db, "b")
    noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    for name, minutes in (("a", 10), ("b", 20), ("a", 70)):
        ran(db, noon + minutes * MINUTE, job=name, queue=f"q{name}")
    window = {"since": "2026-11-18T12:00Z", "until": "2026-11-18T13:00Z"}
    page = browser.get("/timeline", params={**window, "by": "queue"}).text
    assert len(bars(page)) == 2
    assert "Attempts by queue" in text(page) and ">qa<" in page and ">qb<" in page
    only = browser.get("/timeline", params={**window, "job": "a"}).text
    assert len(bars(only)) == 1 and "job=a" in only
    links = {
        text(name): address.replace("&amp;", "&")
        for address, name in re.findall(r'href="(/timeline\?[^"]*)">(.*?)</a>', only)
    }
    assert len(bars(browser.get(links["Later →"]).text)) == 1
    assert bars(browser.get(links["← Earlier"]).text) == []
    assert len(bars(browser.get(links["Zoom out"]).text)) == 2
    assert "12%3A22%3A30" in links["Zoom in"] and "12%3A37%3A30" in links["Zoom in"]


def test_an_instant_without_an_offset_is_utc_whatever_the_zone_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as host:
        host.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = queries.absolute("2026-11-18T12:00", "since")
    time.tzset()
    assert found == datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_what_started_long_after_its_plan_time(browser: TestClient, db: Db) -> None:
    """The stated bound: as long as the window before it, unless it is RUNNING."""
    rows.job(db)
    at = rows.now(db)
    late = ran(db, at - 10 * MINUTE, plan_time=at - 100 * MINUTE, scope_id="late")
    ran(db, at - 10 * MINUTE, plan_time=at - 150 * MINUTE, scope_id="too late")
    running = ran(
        db, at - 10 * MINUTE, status="RUNNING", plan_time=at - 5 * HOUR, scope_id="running"
    )
    page = browser.get("/timeline").text
    found = bars(page)
    assert [one for one in found if f"execution {late}," in one]
    assert [one for one in found if f"execution {running}," in one]
    assert len(found) == 2
    assert "its plan_time lies at most 1h before it" in text(page)


def test_many_executions_are_density(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_BARS", 20)
    monkeypatch.setattr(timeline, "DENSE_LANES", 2)
    rows.job(db)
    at = rows.now(db).replace(second=0, microsecond=0)
    for number in range(24):
        status = "FAILED" if number % 6 == 0 else "SUCCESS"
        ran(db, at - (number + 1) * MINUTE, 1, status, runner_id=f"r{min(number, 20) // 6}")
    page = browser.get("/timeline").text
    assert bars(page) == []
    assert "24 starts, at most" in page
    words = panel(page, "timeline")
    assert "Starts by runner" in words and "succeeded 20 failed 4" in words
    assert "r0 6 5 1 r1 6 5 1 2 others 12 10 2" in words
    parts = re.findall(r'href="(/timeline\?[^"]*since=[^"]*)">[-\d ]*\d\d:\d\d:\d\d</a>', page)
    assert len(parts) == 12
    inside = [bars(browser.get(part.replace("&amp;", "&")).text) for part in parts]
    assert sum("after 1.0s" in bar for found in inside for bar in found) == 24


def test_bars_and_density_and_the_view_agree_on_how_an_attempt_ended(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.job(db)
    at = rows.now(db)
    released = {
        "attempt": 1, "runner_id": "r1", "lease_token": "t", "error_code": "shutdown",
        "started_at": (at - 9 * MINUTE).isoformat(), "ended_at": (at - 8 * MINUTE).isoformat(),
    }  # fmt: skip
    ran(db, at - 9 * MINUTE, 60, "CANCELLED", error_code="shutdown", attempts=Jsonb([released]))
    ran(db, at - 6 * MINUTE, 60, "CANCELLED", scope_id="b", error_code="cancelled")
    ran(db, at - 6 * MINUTE, 60, "FAILED", scope_id="c", error_code="stale_timeout",
        heartbeat_at=at - 5.5 * MINUTE)  # fmt: skip
    ran(db, at - 6 * MINUTE, 60, "FAILED", scope_id="d")
    page = browser.get("/timeline").text
    found = " ".join(bars(page))
    for ended in (
        "released (shutdown) after 1m", "crashed (stale_timeout) after 30s",
        "cancelled (cancelled) after 1m", "failed (boom) after 1m",
    ):  # fmt: skip
        assert ended in found
    counts = "failed 1 crashed 1 released 1 cancelled 1"
    assert counts in panel(page, "timeline")
    monkeypatch.setattr(timeline, "MOST_LANES", 0)
    timeline._bars.cache_clear()
    for job in ("", "?job=job"):
        shown = panel(browser.get(f"/timeline{job}").text, "timeline")
        assert "Starts by runner" in shown and counts in shown
    view = db.execute("SELECT error_code FROM cronledger.attempts ORDER BY 1").fetchall()
    codes = [row["error_code"] for row in view]
    assert codes == ["boom", "cancelled", "shutdown", "stale_timeout"]


def test_an_invalid_window_is_refused(browser: TestClient) -> None:
    for query, message in {
        "since=2d": "has 2d; use a window of 1m to 1d.",
        "since=2026-11-18T12:00Z&until=2026-11-18T11:00Z": "use a window of 1m to 1d.",
        "since=soon": "since: 'soon' is neither a time nor a duration; write 2026-",
        "by=host": "by is one of runner, queue, not 'host'.",
    }.items():
        assert_refused(browser.get(f"/timeline?{query}"), message)


def test_names_of_others_in_the_picture_are_escaped(browser: TestClient, db: Db) -> None:
    rows.job(db, "<b>job</b>")
    ran(db, rows.now(db) - MINUTE, job="<b>job</b>", runner_id="<i>r</i>", queue="a&b")
    page = browser.get("/timeline").text
    assert "<b>" not in page and "<i>" not in page
    assert "&lt;i&gt;r&lt;/i&gt;" in page and "a&amp;b" in page
