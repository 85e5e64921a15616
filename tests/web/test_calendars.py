"""Calendars on the page: their ends and days, the firings that they skip or move, and the skips."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import expire, panel, text
from tests.web.support.history import planned

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")
Declare = Callable[..., date]


@pytest.fixture
def today(db: Db) -> date:
    return rows.now(db).date()


@pytest.fixture
def declare(db: Db, today: date) -> Declare:
    """Set the calendar `de`, and return its last date. `days`: excluded ones, from today on."""

    def set_calendar(days: dict[int, str], ends_in: int = 400) -> date:
        through = today + ends_in * DAY
        db.execute(
            "SELECT cronledger.set_calendar('de', %s, %s, first => %s, source => 'shop.toml',"
            " requested_by => 'anna')",
            [Jsonb({str(today + n * DAY): name for n, name in days.items()}), through,
             today - 10 * DAY],
        )  # fmt: skip
        return through

    return set_calendar


def test_calendars_are_listed_with_their_next_days_and_their_jobs(
    browser: TestClient, db: Db, today: date, declare: Declare
) -> None:
    """Days of the weekend, and days that are over, are not listed."""
    assert "A source declares them as [calendars.NAME]" in text(browser.get("/calendars").text)
    weekday = next(today + n * DAY for n in range(7) if (today + n * DAY).isoweekday() == 6)
    saturday = (weekday - today).days or 7
    christmas = 1 if saturday > 1 else 2
    days = {-2: "Over", christmas: "Christmas <Day>", saturday: "Saturday"}
    days |= dict.fromkeys(range(10, 20), "Works holiday")
    through = declare(days)
    for n in range(7):
        rows.job(db, f"job{n}", calendar="de")
    rows.job(db, "gone", calendar="de", retired_at=rows.now(db))
    expire(browser)
    shown = browser.get("/calendars").text
    found = panel(shown, "calendars")
    assert f"{through}" in found and "by anna" in found and "shop.toml" in found
    assert f"{today + christmas * DAY} Christmas <Day>" in found
    assert found.count("Works holiday") == 4
    assert "Over" not in found and "Saturday" not in found
    assert "job0 job1 job2 job3 job4 and 2 more" in found and "gone" not in found
    assert 'href="/calendars"' in browser.get("/jobs").text


@pytest.mark.parametrize(
    ("ends_in", "words", "mark"), [(89, "ends on", "in 89 days"), (-1, "ended on", "is over")]
)
def test_a_calendar_of_a_job_is_marked_on_three_pages_90_days_before_its_end(
    browser: TestClient, db: Db, declare: Declare, *, ends_in: int, words: str, mark: str
) -> None:
    through = declare({}, ends_in)
    said = f"calendar de {words} {through}."
    assert said not in text(browser.get("/").text)  # no job uses it
    rows.job(db, calendar="de")
    rows.job(db, "other")
    expire(browser)
    assert f"{said} 1 job does not fire" in text(browser.get("/").text)
    assert f"{said} The job does not fire" in text(browser.get("/job/job").text)
    assert said not in text(browser.get("/job/other").text)
    assert mark in panel(browser.get("/calendars").text, "calendars")
    declare({}, 90)
    expire(browser)
    for address in ("/", "/job/job"):
        assert "calendar de en" not in text(browser.get(address).text)


def test_the_next_firings_of_a_job_name_the_days_that_they_skip(
    browser: TestClient, db: Db, today: date, declare: Declare
) -> None:
    declare({2: "Christmas Day", 3: "Boxing Day"})
    rows.job(db, schedule="0 12 * * *", calendar="de")
    rows.job(db, "moved", schedule="0 12 * * *", calendar="de")
    shown = browser.get("/job/job").text
    assert "calendar de (skips excluded days)" in text(shown)
    firings = panel(shown, "firings")
    assert "skipped: Christmas Day (calendar de)" in firings
    assert "skipped: Boxing Day (calendar de)" in firings
    one = today + 2 * DAY
    db.execute(
        "UPDATE cronledger.jobs SET schedule = %s, on_excluded = 'next' WHERE name = 'moved'",
        [f"0 12 {one.day} {one.month} *"],
    )
    shown = browser.get("/job/moved").text
    assert "calendar de (moves to the next included day)" in text(shown)
    assert f"moved from {one} (Christmas Day)" in panel(shown, "firings")


def test_skips_of_a_calendar_have_the_name_of_their_day(
    browser: TestClient, db: Db, today: date, declare: Declare
) -> None:
    """In the accounted day and in the ledger."""
    declare({-1: "Christmas Day"})
    rows.job(db, schedule="0 12 * * *", calendar="de")
    at = datetime.combine(today - DAY, datetime.min.time(), ZoneInfo("UTC")) + 12 * HOUR
    db.execute("UPDATE cronledger.job_revisions SET effective_from = %s", [at - 9 * DAY])
    planned(db, at - 8 * DAY, rows.now(db))
    rows.skip(db, at, reason="calendar", detail="Christmas Day")
    day = panel(browser.get(f"/job/job?day={at.date()}").text, "day")
    assert "1 planned = 0 ran + 1 skipped (1 calendar)" in day
    assert "the calendar de excludes this day: Christmas Day" in day
    shown = browser.get("/ledger?since=3d&outcome=SKIPPED&reason=calendar").text
    assert "its calendar excludes this day (Christmas Day)" in panel(shown, "ledger")
    assert "<option>calendar</option>" in shown
    assert "No execution and no skip" in text(browser.get("/ledger?since=3d&reason=missed").text)
    assert value(db, "SELECT count(*) FROM cronledger.skips") == 1
