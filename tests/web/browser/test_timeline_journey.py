"""From the timeline to an execution: by a click on its bar, and by keyboard through the table."""

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.browser.conftest import Visit, strike

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("keyboard", [False, True])
def test_the_timeline_leads_to_an_execution(
    site: str, visit: Visit, db: Db, keyboard: bool
) -> None:
    rows.job(db)
    start = rows.now(db) - timedelta(minutes=30)
    made = rows.execution(
        db, "FAILED", plan_time=start, finished_at=start + timedelta(minutes=5)
    )["id"]  # fmt: skip
    page = visit(site)
    page.get_by_role("link", name="Timeline").click()
    if keyboard:
        page.get_by_text("The same as a table").focus()
        strike(page, "Enter")
        strike(page, "j")  # to the job of the first row
        strike(page, "Tab")
        strike(page, "Enter")
    else:
        page.locator("svg.timeline a").click()
    expect(page).to_have_url(f"{site}/execution?id={made}")
