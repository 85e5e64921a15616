"""Every page, light and dark: axe finds nothing serious, and a picture is kept if you want it.

Long names hide no column, and in a narrow window a row of the main tables is a card.
"""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize, expect
from psycopg.types.json import Jsonb

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.browser.conftest import Visit
from tests.web.support.shop import open_shop

pytestmark = pytest.mark.browser

LONG = "reconcile-" + "a" * 90
PICTURES = "CRONLEDGER_TEST_SCREENSHOTS"
NARROW: ViewportSize = {"width": 375, "height": 800}
TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('.scroll')]
    .filter((part) => part.scrollWidth > part.clientWidth)
    .map((part) => part.getAttribute('aria-label') ?? 'the page')"""
"""The parts of a page that a person would have to scroll sideways."""


def keep(page: Page, name: str) -> None:
    """Keep a picture of the page if you want it."""
    if directory := os.environ.get(PICTURES):
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)


def barriers(page: Page, name: str) -> list[tuple[str, str, str]]:
    """Return what axe finds serious or critical: the name, the rule and the element."""
    return [
        (name, rule["id"], node["html"])
        for rule in Axe().run(page).response["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def addresses(execution: int) -> dict[str, str]:
    return {
        "now": "/", "jobs": "/jobs", "ledger": "/ledger?since=6h", "runners": "/runners",
        "execution": f"/execution/{execution}", "job": "/job/sync-crm",
        "forecast": "/forecast", "calendars": "/calendars", "job-adopt": "/job-adopt?name=sync-crm",
        "job-skip": "/job-skip?name=sync-crm&from=2026-10-25T20:00Z&through=2026-10-26T20:00Z",
        "job-run": "/job-run?name=send-invoices", "job-run-json": "/job-run?name=fx-rates",
        "job-pause": "/job-pause?name=send-invoices&until=2h",
        "pauses": "/pauses?preview=yes&from=1h&until=2h&reason=move",
        "job-backfill": "/job-backfill?name=send-invoices&from=6h",
        "why": "/why/send-invoices/03:00", "verify": "/verify",
        "timeline": "/timeline?since=3h", "timeline-queue": "/timeline?since=3h&by=queue",
    }  # fmt: skip


def plan(db: Db) -> None:
    """Give sync-crm everything that will skip firings: a calendar, a skip and a pause.

    Another job makes the hours of the forecast as wide as they get: each has more than 99 starts.
    """
    rows.job(db, "beat", schedule="* * * * *")
    db.execute(
        "SELECT cronledger.set_calendar('de', %s, '2031-12-31', first => '2026-01-01')",
        [Jsonb({"2026-10-26": "Austrian National Day", "2026-12-25": "Christmas Day"})],
    )
    db.execute("UPDATE cronledger.jobs SET calendar = 'de' WHERE name = 'sync-crm'")
    db.execute(
        "SELECT cronledger.skip('sync-crm', '2026-10-25T18:00Z',"
        " 'the provider of the API replaces its servers', through => '2026-10-25T18:30Z')"
    )
    db.execute(
        "SELECT cronledger.plan_pause('the database moves', '2026-10-25T19:00Z',"
        " '2026-10-25T20:00Z', queue => 'default')"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_into_a_narrow_window(
    site: str, visit: Visit, db: Db, database_url: str, scheme: str
) -> None:
    execution = open_shop(db, database_url)
    plan(db)
    page = visit(site, color_scheme=scheme)
    found = []
    for name, address in addresses(execution).items():
        page.goto(f"{site}{address}")
        found += barriers(page, name)
        assert page.evaluate(TOO_WIDE) == [], name
        keep(page, f"{name}-{scheme}")
    page.goto(f"{site}/jobs")
    page.get_by_label("Choose sync-crm").check()
    page.get_by_role("button", name="Pause…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Pause sync-crm")
    found += barriers(page, "pause")
    assert found == []
    page.set_viewport_size(NARROW)
    for name, address in addresses(execution).items():
        page.goto(f"{site}{address}")
        assert "the page" not in page.evaluate(TOO_WIDE), name  # tables and pictures scroll alone
        keep(page, f"{name}-{scheme}-narrow")


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
    assert names and all((box := x.bounding_box()) and box["width"] < 320 for x in names)


@pytest.mark.parametrize(
    ("path", "panel", "values"),
    [
        ("/jobs", "jobs", ("@hourly", "failing", "default", "payments")),
        ("/ledger", "ledger", ("FAILED", "exception", "no such customer")),
        ("/", "attention", ("failed", "payments", "no such customer", "Retry…")),
    ],
)
def test_in_a_narrow_window_a_row_is_a_card(
    site: str, visit: Visit, db: Db, *, path: str, panel: str, values: tuple[str, ...]
) -> None:
    rows.job(db, LONG, owner="payments")
    failed = {"error_code": "exception", "error_msg": "no such customer " * 9}
    rows.execution(db, "FAILED", LONG, **failed)
    page = visit(site + path)
    page.set_viewport_size(NARROW)
    assert page.evaluate(TOO_WIDE) == []
    card = page.locator(f"#{panel} tbody tr")
    for value in values:
        expect(card.get_by_text(value).first).to_be_visible()
