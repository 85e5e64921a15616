"""Journeys through the page, by mouse and by keyboard, in a real browser."""

import re
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect
from psycopg import sql
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.database import Databases
from tests.db.support import rows
from tests.db.support.rows import Db, one
from tests.web.browser.conftest import Visit
from tests.web.support.browsing import app
from tests.web.support.logins import Logins
from tests.web.support.serving import served
from tests.web.support.shop import open_shop
from tests.web.test_access import TOKENS
from tests.web.test_jobs import many, paused
from tests.web.test_prefix import mounted

pytestmark = pytest.mark.browser


def heading(page: Page) -> Any:
    return page.get_by_role("heading", level=1)


def test_f57_a_job_is_paused_by_mouse(site: str, visit: Visit, db: Db) -> None:
    open_shop(db)
    page = visit(site)
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_label("Choose sync-crm").check()
    page.get_by_role("button", name="Pause…").click()
    expect(heading(page)).to_have_text("Pause sync-crm")
    page.get_by_label("Reason").fill("the API is away")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("sync-crm is paused.")
    row = page.get_by_role("row").filter(has_text="sync-crm")
    expect(row).to_contain_text("the API is away")
    (job,) = [found for found in paused(db) if found[0] == "sync-crm"]
    assert job[2] == "the API is away" and "@" in job[1]


def test_f57_a_job_is_paused_by_keyboard(site: str, visit: Visit, db: Db) -> None:
    open_shop(db)
    page = visit(site)
    page.keyboard.press("/")
    page.keyboard.type("sync")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"search=sync"))
    page.get_by_label("Choose sync-crm").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Pause…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("moving")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("sync-crm is paused.")
    assert [found[2] for found in paused(db) if found[0] == "sync-crm"] == ["moving"]


def test_f57_a_queue_is_paused_without_javascript(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, queue="slow")
    page = visit(f"{site}/runners", java_script_enabled=False)
    page.get_by_text("Pause…", exact=True).click()
    page.get_by_label("Reason for the pause of slow").fill("incident")
    page.get_by_role("button", name="Pause slow").click()
    expect(page.get_by_role("status")).to_have_text("Queue slow is paused.")
    row = one(db.execute("SELECT paused_reason FROM cronledger.queues WHERE name = 'slow'"))
    assert row["paused_reason"] == "incident"


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_f56_one_of_10000_jobs_is_found_in_the_browser(
    site: str, visit: Visit, db: Db, by: str
) -> None:
    many(db, 10_000)
    page = visit(site)
    if by == "keyboard":
        page.keyboard.press("/")
        page.keyboard.type("07777")
        page.keyboard.press("Enter")
    else:
        page.get_by_placeholder("Find a job").click()
        page.get_by_placeholder("Find a job").fill("07777")
        page.get_by_placeholder("Find a job").press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("link", name="job-07777")).to_be_visible()


def test_f56_rows_are_reached_by_keys(site: str, visit: Visit, db: Db) -> None:
    execution = open_shop(db)
    page = visit(f"{site}/ledger?job=send-invoices")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert "send-invoices" in page.evaluate("document.activeElement.closest('tr').innerText")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/execution\?id={execution}$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()


def test_f55_a_person_signs_in_with_a_token(
    database_url: str, logins: Logins, visit: Visit, stack: ExitStack, complaints: list[str]
) -> None:
    secured = app(database_url, logins, web_auth="token", web_tokens=TOKENS)
    address = stack.enter_context(served(secured))
    page = visit(f"{address}/runners")
    expect(heading(page)).to_have_text("Sign in")
    page.keyboard.type("guess")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").first).to_have_text("This token is unknown.")
    assert len(complaints) == 1 and "403" in complaints.pop()
    page.get_by_label("Token").fill("alice-secret")
    page.get_by_role("button", name="Sign in").click()
    expect(heading(page)).to_have_text("Runners and queues")
    expect(page.locator(".who")).to_contain_text("alice")
    assert "alice-secret" not in page.content()
    assert "alice" not in page.evaluate("document.cookie")
    page.get_by_role("button", name="Sign out").click()
    expect(heading(page)).to_have_text("Sign in")


def test_f55_a_foreign_page_changes_nothing(
    site: str, visit: Visit, stack: ExitStack, db: Db, complaints: list[str]
) -> None:
    rows.job(db, queue="slow")
    form = f'<form method="post" action="{site}/queues/pause"><input name="queue" value="slow">'
    foreign = Starlette(
        routes=[Route("/", lambda _: HTMLResponse(f"{form}<button>A prize</button></form>"))]
    )
    page = visit(stack.enter_context(served(foreign)).replace("127.0.0.1", "localhost"))
    page.get_by_role("button").click()
    expect(heading(page)).to_have_text("Not permitted")
    assert [x for x in complaints if "403" not in x and "favicon" not in x and "404" not in x] == []
    complaints.clear()
    assert rows.value(db, "SELECT count(*) FROM cronledger.queues WHERE paused_at IS NOT NULL") == 0


def test_f54_an_open_page_shows_what_changes(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report", queue="slow")
    page = visit(f"{site}/runners")
    expect(page.locator("#queues")).not_to_contain_text("incident")
    db.execute("SELECT cronledger.pause_queue('slow', reason => 'incident')")
    expect(page.locator("#queues")).to_contain_text("incident")


def test_f54_what_somebody_writes_is_left_alone(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report", queue="slow")
    page = visit(f"{site}/runners")
    page.get_by_text("Pause…", exact=True).click()
    page.get_by_label("Reason for the pause of slow").fill("half a rea")
    rows.runner(db, "newcomer", queues=["other"])
    db.execute("SELECT cronledger.limit_queue('slow', 3)")
    expect(page.locator("#runners")).to_contain_text("newcomer")
    expect(page.get_by_label("Reason for the pause of slow")).to_have_value("half a rea")


def test_f54_times_have_the_zone_of_the_viewer(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, timezone="Asia/Kolkata")
    execution = rows.execution(db)["id"]
    page = visit(f"{site}/execution?id={execution}", timezone_id="America/Santiago", locale="en-US")
    title = page.locator("main time").first.get_attribute("title")
    assert title is not None
    kolkata, utc, own = title.splitlines()
    assert kolkata.endswith("Asia/Kolkata") and utc.endswith("UTC") and own.endswith("(yours)")
    assert "GMT-3" in own or "GMT-4" in own


def test_f54_the_page_works_below_a_prefix_in_the_browser(
    database_url: str, logins: Logins, visit: Visit, stack: ExitStack, db: Db
) -> None:
    execution = open_shop(db)
    address = stack.enter_context(served(mounted(app(database_url, logins))))
    page = visit(f"{address}/ops/cron/")
    for name in ("Jobs", "Ledger", "Runners and queues", "Now"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(heading(page)).to_have_text(name)
    page.goto(f"{address}/ops/cron/execution?id={execution}")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status").first).to_contain_text("has one more attempt")


def test_f54_an_open_page_survives_its_database(
    site: str, visit: Visit, db: Db, database_url: str, databases: Databases
) -> None:
    rows.runner(db, "replica-1")
    page = visit(site)
    expect(page.locator("#runners")).to_contain_text("replica-1")
    name = str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    away = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS ").format(sql.Identifier(name))
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with psycopg.connect(databases.url("postgres"), autocommit=True) as c:
        c.execute(away + sql.SQL("false"))
        c.execute(ended, [name])
        expect(page.locator("#database")).to_contain_text("This page shows what it read")
        expect(page.locator("#runners")).to_contain_text("replica-1")
        c.execute(away + sql.SQL("true"))
    expect(page.locator("#database")).to_be_empty()
