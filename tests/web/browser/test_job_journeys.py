"""Journeys on the page of a job: days on which the clocks change, run now, and backfill."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.browser.conftest import Visit, enter_text, press, strike
from tests.web.support.clock_changes import BERLIN, SANTIAGO, open_days

pytestmark = pytest.mark.browser

HOUR = timedelta(hours=1)


def day_of(page: Page) -> str:
    return page.locator("#day .sum").inner_text()


def test_a_day_with_a_fold_and_one_with_a_gap_by_mouse(site: str, visit: Visit, db: Db) -> None:
    open_days(db)
    page = visit(f"{site}/job?name=fold&day={BERLIN[2]}")
    assert day_of(page).startswith(
        "100 planned = 94 ran (3 late) + 3 failed + 2 skipped (2 missed)"
    )
    assert "+ 1 unexplained" in day_of(page)
    expect(page.locator("svg.day .band-fold")).to_have_count(1)
    page.get_by_text("The same as a table").click()
    twice = page.get_by_role("row").filter(has_text="second time")
    expect(twice).to_have_count(5)  # four plan_times, and the change itself
    page.get_by_role("link", name="← 2026-10-24").click()
    expect(page.locator("#day h2")).to_contain_text("Saturday 2026-10-24")

    page.goto(f"{site}/job?name=gap&day={SANTIAGO[2]}")
    assert day_of(page).startswith("92 planned = ")
    assert page.locator("svg.day .band-gap").get_attribute("fill") == "url(#day-hatch)"
    page.get_by_text("The same as a table").click()
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("00:00 to 01:00 does not occur")
    # A mark leads to its execution.
    page.locator("svg.day a").first.click()
    expect(page).to_have_url(re.compile(r"/execution\?id=\d+"))


def test_a_day_with_a_gap_by_keyboard(site: str, visit: Visit, db: Db) -> None:
    open_days(db)
    page = visit(f"{site}/job?name=gap&day={SANTIAGO[2]}")
    page.get_by_role("link", name="← 2026-09-05").focus()
    strike(page, "Enter")
    expect(page.locator("#day h2")).to_contain_text("Saturday 2026-09-05")
    page.get_by_role("link", name="2026-09-06 →").focus()
    strike(page, "Enter")
    expect(page.locator("#day h2")).to_contain_text("Sunday 2026-09-06")
    assert day_of(page).startswith("92 planned = ")
    page.get_by_text("The same as a table").focus()
    strike(page, "Enter")
    gap = page.get_by_role("row").filter(has_text="00:00 to 01:00 does not occur")
    expect(gap).to_have_count(1)
    failed = page.get_by_role("row").filter(has_text="failed").first.get_by_role("link")
    failed.focus()
    strike(page, "Enter")
    expect(page).to_have_url(re.compile(r"/execution\?id=\d+"))


def test_a_day_with_a_fold_by_keyboard(site: str, visit: Visit, db: Db) -> None:
    open_days(db)
    page = visit(f"{site}/job?name=fold&day={BERLIN[2]}")
    page.get_by_text("The same as a table").focus()
    strike(page, "Enter")
    link = page.get_by_role("row").filter(has_text="unexplained").get_by_role("link")
    link.focus()
    strike(page, "Enter")
    expect(page).to_have_url(re.compile(r"/why\?job=fold"))
    expect(page.locator("#answer-1")).to_contain_text("which is a violation")


def test_run_now_with_a_bad_and_a_good_payload(
    site: str, visit: Visit, db: Db, complaints: list[str]
) -> None:
    rows.job(db, "report")
    page = visit(f"{site}/job?name=report")
    page.get_by_role("link", name="Run now…").click()
    page.get_by_label("Payload as JSON").fill('{"day": }')
    with page.expect_response(lambda response: response.request.method == "POST") as refused:
        page.get_by_role("button", name="Run now").click()
    assert refused.value.status == 400
    expect(page.get_by_role("alert")).to_contain_text("line 1, column 9")
    assert all("400 (Bad Request)" in complaint for complaint in complaints)
    complaints.clear()
    page.get_by_label("Payload as JSON").fill('{"day": 7}')
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status").first).to_contain_text("of report is due now")
    assert value(db, "SELECT payload ->> 'day' FROM cronledger.executions") == "7"


def test_run_now_by_keyboard(site: str, visit: Visit, db: Db, complaints: list[str]) -> None:
    rows.job(db, "report")
    page = visit(f"{site}/job/run?name=report")
    page.get_by_label("Payload as JSON").focus()
    enter_text(page, '{"day": ')
    strike(page, "Tab")
    strike(page, "Enter")
    expect(page.get_by_role("alert")).to_contain_text("line 1")
    assert all("400 (Bad Request)" in complaint for complaint in complaints)
    complaints.clear()
    page.get_by_label("Payload as JSON").focus()
    strike(page, "Control+End")
    enter_text(page, '"2026-11-22"}')
    strike(page, "Tab")
    strike(page, "Enter")
    expect(page.get_by_role("status").first).to_contain_text("of report is due now")
    assert value(db, "SELECT payload ->> 'day' FROM cronledger.executions") == "2026-11-22"


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_backfill_with_its_preview(site: str, visit: Visit, db: Db, by: str) -> None:
    rows.job(db, "report", schedule="0 * * * *")
    now = rows.now(db)
    db.execute(
        "UPDATE cronledger.schedules SET created_at = %s, planned_through = %s",
        [now - 30 * HOUR, now],
    )
    page = visit(f"{site}/job?name=report")
    press(page.get_by_role("link", name="Backfill…"), by)
    page.get_by_label("From").fill((now - 5 * HOUR).isoformat())
    page.get_by_label("To (empty: now)").fill(now.isoformat())
    press(page.get_by_role("button", name="Show what it would do"), by)
    expect(page.locator("#preview")).to_contain_text("Of 5 plan_times in this range, 5 get")
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 0
    press(page.get_by_role("button", name="Run 5 executions"), by)
    expect(page.get_by_role("status").first).to_contain_text("5 executions were created")
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 5
