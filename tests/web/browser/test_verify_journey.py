"""An operator runs verify on the page, by mouse and by keyboard, and sees the result."""

import pytest
from playwright.sync_api import Page, expect

from tests.db.support.rows import Db
from tests.web.browser.conftest import Visit, strike
from tests.web.test_verification import spoil

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("keyboard", [False, True])
def test_verify_runs_and_its_result_appears(
    site: str, visit: Visit, db: Db, keyboard: bool
) -> None:
    spoil(db)
    page = visit(f"{site}/verify")
    if keyboard:
        _by_keyboard(page)
    else:
        page.get_by_label("Plan times").select_option("all kept history")
        page.get_by_role("button", name="Run verify").click()
    expect(page.get_by_role("status")).to_contain_text("checks all kept history of all jobs.")
    # Nobody reloads the page.
    expect(page.locator("#last")).to_contain_text("1 violation")
    expect(page.locator("#found")).to_contain_text("hourly")
    expect(page.get_by_role("button", name="Run verify")).to_be_visible()


def _by_keyboard(page: Page) -> None:
    page.get_by_label("Plan times").focus()
    strike(page, "End")
    strike(page, "Home")
    strike(page, "Tab")
    strike(page, "Enter")
