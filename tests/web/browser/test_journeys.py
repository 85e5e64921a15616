"""Journeys through the page in a real browser, with its script and without."""

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from psycopg.types.json import Jsonb

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.waiting import until
from tests.web.browser.conftest import Serve, Visit, enter_text, open_address, press, strike
from tests.web.support.browsing import TOKENS
from tests.web.support.clock_changes import BERLIN, SANTIAGO, open_days
from tests.web.support.shop import open_shop
from tests.web.test_jobs import paused
from tests.web.test_prefix import mounted
from tests.web.test_verification import spoil

pytestmark = pytest.mark.browser

BAD = "400 (Bad Request)"
SCHEMA = {
    "type": "object", "required": ["number"], "properties": {
        "number": {"type": "integer", "minimum": 1},
        "day": {"type": "string", "format": "date"},
        "express": {"type": "boolean"},
    },
}  # fmt: skip


def heading(page: Page) -> Any:
    return page.get_by_role("heading", level=1)


def test_a_job_is_paused_by_keyboard(site: str, visit: Visit, db: Db, database_url: str) -> None:
    open_shop(db, database_url)
    page = visit(site)
    press(page.get_by_role("link", name="Jobs", exact=True), "keyboard")
    page.get_by_label("Name contains").focus()
    enter_text(page, "sync")
    strike(page, "Enter")
    expect(page).to_have_url(re.compile(r"search=sync"))
    page.get_by_label("Choose sync-crm").focus()
    strike(page, "Space")
    page.get_by_role("button", name="Pause…").focus()
    strike(page, "Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    enter_text(page, "moving")
    strike(page, "Enter")
    expect(page.get_by_role("status").first).to_contain_text("sync-crm is paused.")
    assert [found[2] for found in paused(db) if found[0] == "sync-crm"] == ["moving"]


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_the_page_works_without_javascript(
    site: str, visit: Visit, db: Db, database_url: str, by: str
) -> None:
    open_shop(db, database_url)
    page = visit(site, java_script_enabled=False)
    press(page.get_by_role("link", name="Jobs", exact=True), by)
    press(page.get_by_role("link", name="sync-crm"), by)
    expect(page.locator("#day .sum")).to_contain_text("planned")
    press(page.locator("#day summary"), by)
    expect(page.locator("#day caption")).to_be_visible()
    press(page.get_by_role("link", name="Pause…"), by)
    page.get_by_label("Reason").fill("the API is away")
    press(page.get_by_role("button", name="Pause", exact=True), by)
    expect(page.get_by_role("status")).to_contain_text("sync-crm is paused")
    assert [found[2] for found in paused(db) if found[0] == "sync-crm"] == ["the API is away"]
    press(page.get_by_role("link", name="Capacity", exact=True), by)
    press(page.get_by_text("Pause…", exact=True).first, by)
    page.get_by_label("Reason for the pause of default").fill("incident")
    press(page.get_by_role("button", name="Pause default"), by)
    expect(page.get_by_role("status")).to_have_text("Queue default is paused.")
    reason = "SELECT paused_reason FROM cronledger.queues WHERE name = 'default'"
    assert value(db, reason) == "incident"


@pytest.mark.parametrize("java_script", [True, False], ids=["script", "no_script"])
def test_an_observed_job_is_adopted_after_a_preview_F118(
    site: str, visit: Visit, db: Db, java_script: bool
) -> None:
    rows.job(db, schedule="0 0 * * *", observed=True)
    now = rows.now(db)
    day = (now + timedelta(days=3)).replace(hour=0, minute=0, second=0, microsecond=0)
    page = visit(f"{site}/job/job", java_script_enabled=java_script)
    press(page.get_by_role("link", name="Adopt…"), "keyboard")
    moment = page.get_by_label("First plan time of the new side, UTC")
    moment.fill(f"{day:%Y-%m-%dT%H:%M}")
    page.get_by_label("Reason").fill("the move")
    press(page.get_by_role("button", name="Show what will happen"), "keyboard")
    shown = page.get_by_role("status").first
    expect(shown).to_contain_text(f"replicas fire it from {day:%Y-%m-%dT%H:%M:%SZ} on")
    stored = "SELECT adopted_at FROM cronledger.jobs"
    assert value(db, stored) is None
    expect(moment).to_have_value(re.compile(f"{day:%Y-%m-%dT}"))
    press(page.get_by_role("button", name="Adopt or return"), "keyboard")
    expect(heading(page)).to_contain_text("job")
    expect(page.get_by_role("status").first).to_contain_text("replicas fire it from")
    assert day - timedelta(minutes=1) < value(db, stored) < day  # between two plan_times


def test_rows_are_reached_by_keys(site: str, visit: Visit, db: Db, database_url: str) -> None:
    execution = open_shop(db, database_url)
    page = visit(f"{site}/ledger?job=send-invoices")
    strike(page, "j")
    strike(page, "j")
    strike(page, "k")
    assert "send-invoices" in page.evaluate("document.activeElement.closest('tr').innerText")
    strike(page, "Tab")
    strike(page, "Enter")
    expect(page).to_have_url(re.compile(rf"/execution/{execution}$"))
    expect(page.get_by_role("button", name="Keyboard")).to_be_visible()  # its script has run
    strike(page, "?")
    expect(page.get_by_role("dialog")).to_be_visible()
    strike(page, "Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()


def test_a_person_signs_in_with_a_token(serve: Serve, visit: Visit, complaints: list[str]) -> None:
    page = visit(f"{serve(web_auth='token', web_tokens=TOKENS)}/runners")
    expect(heading(page)).to_have_text("Sign in")
    enter_text(page, "guess")
    strike(page, "Enter")
    expect(page.get_by_role("alert").first).to_have_text("This token is unknown.")
    complaints[:] = [one for one in complaints if "403" not in one]  # Firefox reports none
    expect(page.get_by_label("Token")).to_be_focused()
    enter_text(page, "alice-secret")
    strike(page, "Enter")
    expect(heading(page)).to_have_text("Runners and queues")
    expect(page.locator(".who")).to_contain_text("alice")
    assert "alice-secret" not in page.content()
    assert "alice" not in page.evaluate("document.cookie")


def test_what_somebody_writes_is_left_alone(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report", queue="slow")
    page = visit(f"{site}/runners")
    page.get_by_text("Pause…", exact=True).click()
    page.get_by_label("Reason for the pause of slow").fill("half a rea")
    rows.runner(db, "newcomer", queues=["other"])
    db.execute("SELECT cronledger.limit_queue('slow', 3)")
    expect(page.locator("#runners")).to_contain_text("newcomer")
    expect(page.get_by_label("Reason for the pause of slow")).to_have_value("half a rea")


def test_times_have_the_zone_of_the_viewer(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, timezone="Asia/Kolkata")
    execution = rows.execution(db)["id"]
    page = visit(f"{site}/execution/{execution}", timezone_id="America/Santiago", locale="en-US")
    title = page.locator("main time").first.get_attribute("title")
    assert title is not None
    kolkata, utc, own = title.splitlines()
    assert kolkata.endswith("Asia/Kolkata") and utc.endswith("UTC") and own.endswith("(yours)")
    assert "GMT-3" in own or "GMT-4" in own


def test_the_page_works_below_a_prefix_in_the_browser(
    serve: Serve, visit: Visit, db: Db, database_url: str
) -> None:
    execution = open_shop(db, database_url)
    address = serve(mounted)
    page = visit(f"{address}/ops/cron/")
    for name, first in (("Jobs", "Jobs"), ("Runs", "Ledger"), ("Capacity", "Runners and queues")):
        page.get_by_role("link", name=name, exact=True).click()
        expect(heading(page)).to_have_text(first)
    db.execute("SELECT cronledger.pause_queue('default', reason => 'an event below the prefix')")
    expect(page.locator("#queues")).to_contain_text("an event below the prefix")
    open_address(page, f"{address}/ops/cron/execution/{execution}")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status").first).to_contain_text("has one more attempt")


@pytest.mark.parametrize("javascript", [True, False])
def test_run_now_with_a_bad_value_and_then_a_good_one(
    site: str, visit: Visit, db: Db, complaints: list[str], *, javascript: bool
) -> None:
    rows.job(db, payload_schema=Jsonb(SCHEMA))
    page = visit(f"{site}/job-run?name=job", java_script_enabled=javascript)
    page.get_by_label("number").fill("0")
    page.get_by_label("day").fill("2026-11-22")
    page.get_by_label("express").select_option("true")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("0 is less than the minimum of 1")).to_be_visible()
    expect(page.get_by_label("number")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("express")).to_have_value("true")
    complaints[:] = [one for one in complaints if BAD not in one]  # the refused form
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 0
    page.get_by_label("number").fill("12")
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("is due now")
    made = value(db, "SELECT payload FROM cronledger.executions")
    assert made == {"number": 12, "day": "2026-11-22", "express": True}


def test_the_timeline_leads_to_an_execution_by_mouse_and_by_keyboard(
    site: str, visit: Visit, db: Db
) -> None:
    rows.job(db)
    start = rows.now(db) - timedelta(minutes=30)
    made = rows.execution(
        db, "FAILED", plan_time=start, finished_at=start + timedelta(minutes=5)
    )["id"]  # fmt: skip
    page = visit(site)
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="Timeline").click()
    page.locator("svg.timeline a").click()
    expect(page).to_have_url(f"{site}/execution/{made}")
    open_address(page, f"{site}/timeline")
    page.get_by_text("The same as a table").focus()
    strike(page, "Enter")
    strike(page, "j")  # to the job of the first row
    strike(page, "Tab")
    strike(page, "Enter")
    expect(page).to_have_url(f"{site}/execution/{made}")


def day_of(page: Page) -> str:
    return page.locator("#day .sum").inner_text()


def test_a_day_with_a_fold_and_one_with_a_gap(site: str, visit: Visit, db: Db) -> None:
    open_days(db)
    fold = f"{site}/job/fold?day={BERLIN[2]}"
    page = visit(fold)
    assert day_of(page).startswith(
        "100 planned = 94 ran (3 late) + 3 failed + 2 skipped (2 missed)"
    )
    assert "+ 1 unexplained" in day_of(page)
    expect(page.locator("svg.day .band-fold")).to_have_count(1)
    page.get_by_text("The same as a table").click()
    twice = page.get_by_role("row").filter(has_text="second time")
    expect(twice).to_have_count(5)  # four plan_times, and the change itself
    page.get_by_role("row").filter(has_text="unexplained").get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/why/fold/"))
    expect(page.locator("#answer-1")).to_contain_text("which is a violation")
    open_address(page, fold)
    page.get_by_role("link", name="← 2026-10-24").click()
    expect(page.locator("#day h2")).to_contain_text("Saturday 2026-10-24")

    open_address(page, f"{site}/job/gap?day={SANTIAGO[2]}")
    assert day_of(page).startswith("92 planned = ")
    assert page.locator("svg.day .band-gap").get_attribute("fill") == "url(#day-hatch)"
    page.get_by_text("The same as a table").click()
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("00:00 to 01:00 does not occur")
    # A mark leads to its execution.
    page.locator("svg.day a").first.click()
    expect(page).to_have_url(re.compile(r"/execution/\d+"))


def test_verify_runs_and_its_result_appears(site: str, visit: Visit, db: Db) -> None:
    spoil(db)
    page = visit(f"{site}/verify")
    page.get_by_label("Plan times").select_option("all kept history")
    page.get_by_role("button", name="Run verify").click()
    expect(page.get_by_role("status")).to_contain_text("checks all kept history of all jobs.")
    # Nobody reloads the page.
    expect(page.locator("#last")).to_contain_text("1 violation")
    expect(page.locator("#found")).to_contain_text("hourly")
    expect(page.get_by_role("button", name="Run verify")).to_be_visible()


def test_a_violation_of_the_policy_and_an_error_fail_a_test(
    site: str, visit: Visit, complaints: list[str]
) -> None:
    """The fixture `visit` collects them, and wants none at the end."""
    page = visit(site)
    page.evaluate("document.body.append(Object.assign(document.createElement('script'),"
                  " {textContent: 'document.title = 1'}))")  # fmt: skip
    page.evaluate("document.body.setAttribute('style', 'color: red')")
    page.evaluate("setTimeout(() => { throw new Error('a defect') })")
    page.evaluate("fetch('https://evil.example').catch(() => 0)")
    until("all are collected", lambda: page.title() and len(complaints) >= 4)
    for part in ("script", "style", "a defect", "connect"):
        assert any(part in complaint for complaint in complaints), (part, complaints)
    complaints.clear()
