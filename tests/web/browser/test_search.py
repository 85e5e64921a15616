"""The search over everything by keyboard, and many executions retried on the page Ledger."""

import pytest
from playwright.sync_api import expect

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.browser.conftest import Visit, enter_text, strike

pytestmark = pytest.mark.browser


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


def test_ticked_executions_are_retried_F92(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report")
    rows.copies(db, rows.execution(db, "FAILED", "report"), 2)
    for script in (True, False):
        page = visit(f"{site}/ledger", java_script_enabled=script)
        for box in page.locator("#ledger input[name=id]").all():
            box.check()
        page.get_by_role("button", name="Retry…").click()
        expect(page.locator(".preview")).to_contain_text("3 to be ")
        page.get_by_label("Reason").fill("the disk was full")
        page.get_by_role("button", name="Retry", exact=True).click()
        expect(page.get_by_role("status").first).to_contain_text(": 3.")
    reasons = "SELECT count(*) FROM cronledger.audit WHERE reason = 'the disk was full'"
    assert value(db, reasons) == 2
