"""Names of a hundred characters hide no column, and in a narrow window a job is a card."""

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.browser.conftest import Visit
from tests.web.browser.test_looks import TOO_WIDE, keep

pytestmark = pytest.mark.browser

LONG = "reconcile-" + "a" * 90
NARROW: ViewportSize = {"width": 375, "height": 800}


@pytest.fixture
def named(db: Db) -> Db:
    """A job whose name, queue and owner are long, with an execution of each kind."""
    rows.job(db, LONG, queue="q" * 100, owner="o" * 100)
    rows.job(db, "short")
    for job in (LONG, "short"):
        rows.execution(db, "SUCCESS", job)
    rows.execution(db, "RUNNING", LONG, plan_time=rows.now(db))
    db.execute("SELECT cronledger.pause('short', requested_by => %s)", ["p" * 100])
    db.execute("SELECT cronledger.pause(%s, requested_by => %s)", [LONG, "p" * 100])
    return db


def hidden_columns(page: Page) -> list[str]:
    """The columns of the first table that a person does not see without scrolling."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('main .scroll thead th')].filter((column) => {
            const seen = column.closest('.scroll').getBoundingClientRect();
            return column.getBoundingClientRect().left > seen.right - 8;
        }).map((column) => column.textContent)"""
    )
    return found


@pytest.mark.parametrize("path", ["/", "/jobs", "/audit", "/ledger", "/runners"])
def test_a_long_name_hides_no_column(site: str, visit: Visit, named: Db, path: str) -> None:
    page = visit(site + path)
    shown = "q" * 40 if path == "/runners" else LONG[:40]
    expect(page.locator("main tbody").get_by_text(shown).first).to_be_visible()
    keep(page, f"long{path.replace('/', '-')}")
    assert hidden_columns(page) == []
    page.set_viewport_size(NARROW)
    keep(page, f"long{path.replace('/', '-')}-narrow")
    assert "the page" not in page.evaluate(TOO_WIDE)
    names = page.locator("main tbody th[scope=row]").all()
    assert names and all((box := x.bounding_box()) and box["width"] < 300 for x in names)


def test_in_a_narrow_window_a_job_is_a_card(site: str, visit: Visit, named: Db) -> None:
    page = visit(f"{site}/jobs")
    page.set_viewport_size(NARROW)
    assert page.evaluate(TOO_WIDE) == []
    card = page.locator("#jobs tbody tr").filter(has_text="short")
    card.scroll_into_view_if_needed()
    for value in ("@hourly", "paused", "default", "SUCCESS"):
        expect(card.get_by_text(value).first).to_be_in_viewport()
    card.get_by_label("Choose short").check()
    page.get_by_role("button", name="Resume…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Resume short")
