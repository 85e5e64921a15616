"""Saved views of the page Ledger in a browser without JavaScript."""

import pytest
from playwright.sync_api import expect

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.browser.conftest import Visit
from tests.web.browser.test_looks import NARROW, TOO_WIDE, barriers, keep

pytestmark = pytest.mark.browser

LONG = "Imports of all suppliers that failed or were skipped within the last six hours"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_person_saves_opens_and_deletes_a_view_without_javascript_F123(
    site: str, visit: Visit, db: Db, scheme: str
) -> None:
    rows.job(db, "report")
    rows.execution(db, "FAILED", "report")
    page = visit(
        f"{site}/ledger?outcome=FAILED&since=6h", color_scheme=scheme, java_script_enabled=False
    )
    for name in ("Failures", LONG):
        page.get_by_text("Save or delete a view").click()
        page.get_by_label("Name of a view with the current filters").fill(name)
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_text(f"The view {name} is saved.")).to_be_visible()
    page.goto(f"{site}/ledger")
    page.get_by_role("link", name="Failures").click()
    expect(page.get_by_label("Since, typed")).to_have_value("6h")
    page.get_by_text("Save or delete a view").click()
    keep(page, f"views-{scheme}")
    page.set_viewport_size(NARROW)
    keep(page, f"views-{scheme}-narrow")
    page.get_by_role("button", name="Delete Failures").click()
    expect(page.get_by_role("link", name="Failures")).to_have_count(0)
    expect(page.get_by_role("link", name=LONG)).to_be_visible()
    shown = visit(f"{site}/ledger", color_scheme=scheme)
    shown.get_by_text("Save or delete a view").click()
    assert barriers(shown, "views") == []
    shown.set_viewport_size(NARROW)
    assert "the page" not in shown.evaluate(TOO_WIDE)
