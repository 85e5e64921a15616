"""Journeys through the page in a real browser, with its script and without."""

import re

import pytest
from playwright.sync_api import expect

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.waiting import until
from tests.web.browser.conftest import Visit, enter_text, press, strike
from tests.web.support.shop import open_shop
from tests.web.test_jobs import paused

pytestmark = pytest.mark.browser


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


def test_a_job_and_an_action_are_found_by_keyboard_F93(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report")
    page = visit(site)
    strike(page, "Control+k")
    enter_text(page, "run rep")
    link = page.locator("#find-results a")
    expect(link).to_have_count(1)
    expect(link).to_contain_text("Run report")
    strike(page, "ArrowDown")
    expect(link).to_be_focused()
    strike(page, "ArrowUp")
    expect(page.locator("#find-text")).to_be_focused()
    strike(page, "Escape")
    expect(page.locator("#find")).not_to_be_visible()
    strike(page, "/")
    enter_text(page, "report")
    strike(page, "Enter")
    expect(page).to_have_url(f"{site}/search?q=report")
    expect(page.locator("#found")).to_contain_text("job report")


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
