"""Every page, light and dark: axe finds nothing serious, and a picture is kept if you want it."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize, expect

from tests.db.support.rows import Db
from tests.web.browser.conftest import Visit
from tests.web.support.clock_changes import BERLIN, SANTIAGO, open_days
from tests.web.support.shop import open_shop

pytestmark = pytest.mark.browser

PICTURES = "CRONLEDGER_TEST_SCREENSHOTS"
SERIOUS = ("serious", "critical")
NARROW: ViewportSize = {"width": 390, "height": 844}
TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('.scroll')]
    .filter((part) => part.scrollWidth > part.clientWidth)
    .map((part) => part.getAttribute('aria-label') ?? 'the page')"""
"""The parts of a page that a person would have to scroll sideways."""


def keep(page: Page, name: str) -> None:
    """Keep a picture of the page if you want it."""
    if directory := os.environ.get(PICTURES):
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)


def addresses(execution: int) -> dict[str, str]:
    """Return the address of every page, by its name."""
    return {
        "now": "/", "jobs": "/jobs", "ledger": "/ledger?since=6h", "runners": "/runners",
        "execution": f"/execution?id={execution}", "job": f"/job?name=fold&day={BERLIN[2]}",
        "job-gap": f"/job?name=gap&day={SANTIAGO[2]}", "load": "/load",
        "job-run": "/job/run?name=send-invoices", "job-run-json": "/job/run?name=fx-rates",
        "job-pause": "/job/pause?name=send-invoices&until=2h",
        "job-backfill": "/job/backfill?name=send-invoices&from=6h",
        "why": "/why?job=send-invoices&time=03:00", "verify": "/verify",
        "timeline": "/timeline?since=3h", "timeline-queue": "/timeline?since=3h&by=queue",
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(site: str, visit: Visit, db: Db, scheme: str) -> None:
    execution = open_shop(db)
    open_days(db)
    page = visit(site, color_scheme=scheme)
    found = []
    for name, address in addresses(execution).items():
        page.goto(f"{site}{address}")
        found += [
            (name, rule["id"], node["html"])
            for rule in Axe().run(page).response["violations"]
            if rule["impact"] in SERIOUS
            for node in rule["nodes"]
        ]
        assert page.evaluate(TOO_WIDE) == [], name
        keep(page, f"{name}-{scheme}")
    page.goto(f"{site}/jobs")
    page.get_by_label("Choose sync-crm").check()
    page.get_by_role("button", name="Pause…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pause sync-crm")
    found += [
        ("pause", rule["id"], rule["help"])
        for rule in Axe().run(page).response["violations"]
        if rule["impact"] in SERIOUS
    ]
    assert found == []


def test_a_page_fits_into_a_narrow_window(site: str, visit: Visit, db: Db) -> None:
    execution = open_shop(db)
    open_days(db)
    page = visit(site, color_scheme="light")
    page.set_viewport_size(NARROW)
    for name, address in addresses(execution).items():
        page.goto(f"{site}{address}")
        assert "the page" not in page.evaluate(TOO_WIDE), name  # tables and pictures scroll alone
        keep(page, f"{name}-narrow")


def test_an_empty_ledger_is_accessible(site: str, visit: Visit, db: Db) -> None:
    page = visit(site)
    for address in ("/", "/jobs", "/ledger", "/runners", "/why", "/load", "/verify", "/timeline"):
        page.goto(f"{site}{address}")
        found = [
            rule["id"]
            for rule in Axe().run(page).response["violations"]
            if rule["impact"] in SERIOUS
        ]
        assert found == [], address
