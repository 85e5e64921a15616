"""Several ledgers in the browser: the overview, the switcher, and a ledger that goes away."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.unreachable import CLOSED
from tests.web.browser.conftest import Visit
from tests.web.browser.test_looks import NARROW, TOO_WIDE, barriers, keep
from tests.web.support.browsing import page_of
from tests.web.support.logins import Logins
from tests.web.support.outages import away
from tests.web.support.serving import served

pytestmark = pytest.mark.browser


@pytest.fixture
def site(database_url: str, second: str, logins: Logins, db: Db) -> Iterator[str]:
    """The address of a page with three ledgers: one with trouble, a quiet one, and one away."""
    rows.runner(db)
    rows.job(db, "reconcile-" + "a" * 90, owner="data")
    rows.execution(
        db,
        "FAILED",
        "reconcile-" + "a" * 90,
        error_code="exit_code",
        error_msg="no space left " * 9,
    )
    ledgers = {"shop": database_url, "billing": second, "archive": CLOSED}
    with served(page_of(ledgers, logins)) as address:
        yield address


def test_an_open_overview_shows_a_ledger_that_goes_away_and_comes_back(
    site: str, visit: Visit, second: str, complaints: list[str]
) -> None:
    page = visit(f"{site}/")
    billing = page.locator("#ledger-billing")
    expect(billing).to_contain_text("No job needs attention")
    expect(page.locator("#ledger-archive")).to_contain_text("Away since this page asked first")
    with away(second):
        expect(billing).to_contain_text("It shows what was read")
        expect(page.locator("#ledger-shop")).to_contain_text("1 failing")
    expect(billing).not_to_contain_text("Away")
    expect(page.locator("#lamp")).to_have_text("live")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_has_no_barrier_and_fits_a_phone(site: str, visit: Visit, scheme: str) -> None:
    page = visit(f"{site}/", color_scheme=scheme)
    page.locator(".switcher summary").click()
    assert barriers(page, "overview") == []
    keep(page, f"overview-{scheme}")
    page.set_viewport_size(NARROW)
    assert "the page" not in page.evaluate(TOO_WIDE)
    keep(page, f"overview-narrow-{scheme}")
    assert barriers(page, "overview") == []
    page.goto(f"{site}/l/shop/jobs")
    page.locator(".switcher summary").click()
    assert "the page" not in page.evaluate(TOO_WIDE)
    keep(page, f"switcher-narrow-{scheme}")
