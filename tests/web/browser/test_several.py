"""Several ledgers in the browser: the overview, the switcher, and a ledger that goes away."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.database import Databases
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.unreachable import CLOSED
from tests.web.browser.conftest import Visit, press
from tests.web.browser.test_looks import NARROW, TOO_WIDE, barriers, keep
from tests.web.support.logins import Logins
from tests.web.support.outages import away
from tests.web.support.serving import served
from tests.web.support.several import page_of

pytestmark = pytest.mark.browser


@pytest.fixture
def second(databases: Databases) -> Iterator[str]:
    """The DSN of another ledger, with the job `invoices`."""
    name = databases.create(databases.template())
    with rows.connected(databases.url(name)) as db:
        rows.job(db, "invoices", owner="billing", schedule=None)  # nothing is ever overdue
    yield databases.url(name)
    databases.drop(name)


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


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
@pytest.mark.parametrize("javascript", [True, False], ids=["script", "plain"])
def test_from_the_overview_to_a_failure_and_to_another_ledger(
    site: str, visit: Visit, by: str, javascript: bool
) -> None:
    page = visit(f"{site}/", java_script_enabled=javascript)
    expect(page.locator("#ledger-archive")).to_contain_text("Away since this page asked first")
    press(page.locator("#ledger-shop").get_by_role("link", name="1 failing"), by)
    expect(page).to_have_url(f"{site}/l/shop/?only=failing#attention")
    expect(page.locator("#attention tbody tr")).to_have_count(1)
    press(page.get_by_role("link", name="Jobs", exact=True).first, by)
    press(page.locator(".switcher summary"), by)
    press(page.locator(".switcher").get_by_role("link", name="billing"), by)
    expect(page).to_have_url(f"{site}/l/billing/jobs")
    expect(page.locator("#jobs")).to_contain_text("invoices")
    press(page.locator(".switcher summary"), by)
    press(page.locator(".switcher").get_by_role("link", name="All ledgers"), by)
    expect(page).to_have_url(f"{site}/")


def test_an_open_overview_shows_a_ledger_that_goes_away_and_comes_back(
    site: str, visit: Visit, second: str, complaints: list[str]
) -> None:
    page = visit(f"{site}/")
    billing = page.locator("#ledger-billing")
    expect(billing).to_contain_text("No job needs attention")
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
