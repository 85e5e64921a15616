"""Journeys through the page, by mouse and by keyboard, in a real browser."""

import re
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.db.support import rows
from tests.db.support.rows import Db, one
from tests.waiting import until
from tests.web.browser.conftest import Serve, Visit, enter_text, press, strike
from tests.web.support.browsing import TOKENS
from tests.web.support.serving import served
from tests.web.support.shop import open_shop
from tests.web.test_access import PROXY
from tests.web.test_jobs import many, paused
from tests.web.test_prefix import mounted

pytestmark = pytest.mark.browser


def heading(page: Page) -> Any:
    return page.get_by_role("heading", level=1)


def test_a_job_is_paused_by_mouse(site: str, visit: Visit, db: Db) -> None:
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


def test_a_job_is_paused_by_keyboard(site: str, visit: Visit, db: Db) -> None:
    open_shop(db)
    page = visit(site)
    strike(page, "/")
    enter_text(page, "sync")
    strike(page, "Enter")
    expect(page).to_have_url(re.compile(r"search=sync"))
    page.get_by_label("Choose sync-crm").focus()
    strike(page, "Space")
    page.get_by_role("button", name="Pause…").focus()
    strike(page, "Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    enter_text(page, "moving")
    strike(page, "Enter")
    expect(page.get_by_role("status").first).to_contain_text("sync-crm is paused.")
    assert [found[2] for found in paused(db) if found[0] == "sync-crm"] == ["moving"]


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_the_page_works_without_javascript(site: str, visit: Visit, db: Db, by: str) -> None:
    open_shop(db)
    page = visit(site, java_script_enabled=False)
    press(page.get_by_role("link", name="Jobs", exact=True), by)
    press(page.get_by_role("link", name="sync-crm"), by)
    expect(page.locator("#day .sum")).to_contain_text("planned")
    press(page.locator("#day summary"), by)
    expect(page.locator("#day caption")).to_be_visible()
    press(page.get_by_role("link", name="Pause…"), by)
    page.get_by_label("Reason").fill("the API is away")
    press(page.get_by_role("button", name="Pause", exact=True), by)
    expect(page.get_by_role("status")).to_contain_text("sync-crm is paused")
    assert [found[2] for found in paused(db) if found[0] == "sync-crm"] == ["the API is away"]
    press(page.get_by_role("link", name="Runners and queues"), by)
    press(page.get_by_text("Pause…", exact=True).first, by)
    page.get_by_label("Reason for the pause of default").fill("incident")
    press(page.get_by_role("button", name="Pause default"), by)
    expect(page.get_by_role("status")).to_have_text("Queue default is paused.")
    row = one(db.execute("SELECT paused_reason FROM cronledger.queues WHERE name = 'default'"))
    assert row["paused_reason"] == "incident"


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_one_of_10000_jobs_is_found_in_the_browser(
    site: str, visit: Visit, db: Db, by: str
) -> None:
    many(db, 10_000)
    page = visit(site)
    if by == "keyboard":
        strike(page, "/")
        enter_text(page, "07777")
        strike(page, "Enter")
    else:
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_label("Name contains").fill("07777")
        page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("link", name="job-07777")).to_be_visible()


def test_rows_are_reached_by_keys(site: str, visit: Visit, db: Db) -> None:
    execution = open_shop(db)
    page = visit(f"{site}/ledger?job=send-invoices")
    strike(page, "j")
    strike(page, "j")
    strike(page, "k")
    assert "send-invoices" in page.evaluate("document.activeElement.closest('tr').innerText")
    strike(page, "Tab")
    strike(page, "Enter")
    expect(page).to_have_url(re.compile(rf"/execution\?id={execution}$"))
    expect(page.get_by_role("button", name="Keyboard")).to_be_visible()  # its script has run
    strike(page, "?")
    expect(page.get_by_role("dialog")).to_be_visible()
    strike(page, "Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_person_signs_in_with_a_token(
    serve: Serve, visit: Visit, complaints: list[str], by: str
) -> None:
    page = visit(f"{serve(web_auth='token', web_tokens=TOKENS)}/runners")

    def enter(token: str) -> None:
        if by == "keyboard":
            enter_text(page, token)
            strike(page, "Enter")
        else:
            page.get_by_label("Token").click()
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Sign in").click()

    expect(heading(page)).to_have_text("Sign in")
    enter("guess")
    expect(page.get_by_role("alert").first).to_have_text("This token is unknown.")
    assert len(complaints) == 1 and "403" in complaints.pop()
    expect(page.get_by_label("Token")).to_be_focused()
    enter("alice-secret")
    expect(heading(page)).to_have_text("Runners and queues")
    expect(page.locator(".who")).to_contain_text("alice")
    assert "alice-secret" not in page.content()
    assert "alice" not in page.evaluate("document.cookie")
    press(page.get_by_role("button", name="Sign out"), by)
    expect(heading(page)).to_have_text("Sign in")


@pytest.mark.parametrize("header", ["X-Forwarded-User", "x-forwarded-user"])
def test_a_forged_header_of_the_proxy_shows_nothing(
    serve: Serve, visit: Visit, complaints: list[str], header: str
) -> None:
    forged = {header: "root", "X-Forwarded-Groups": "ops"}
    page = visit(serve(**PROXY), extra_http_headers=forged)
    expect(heading(page)).to_have_text("Not permitted")
    expect(page.locator("main")).to_contain_text("This page is reached through its proxy only.")
    expect(page.get_by_role("navigation")).to_have_count(0)
    # The stylesheets and the script are refused as well.
    assert all("403" in complaint or "MIME" in complaint for complaint in complaints)
    complaints.clear()


@pytest.fixture
def foreign(site: str, db: Db, stack: ExitStack) -> str:
    """The address of a page of another site, whose button pauses a queue here."""
    rows.job(db, queue="slow")
    form = f'<form method="post" action="{site}/queues/pause"><input name="queue" value="slow">'
    page = Starlette(
        routes=[Route("/", lambda _: HTMLResponse(f"{form}<button>A prize</button></form>"))]
    )
    return stack.enter_context(served(page)).replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_foreign_page_changes_nothing(
    foreign: str, visit: Visit, db: Db, complaints: list[str], by: str
) -> None:
    page = visit(foreign)
    press(page.get_by_role("button"), by)
    expect(heading(page)).to_have_text("Not permitted")
    assert [x for x in complaints if "403" not in x and "favicon" not in x and "404" not in x] == []
    complaints.clear()
    assert rows.value(db, "SELECT count(*) FROM cronledger.queues WHERE paused_at IS NOT NULL") == 0


def test_an_open_page_shows_what_changes(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report", queue="slow")
    page = visit(f"{site}/runners")
    expect(page.locator("#queues")).not_to_contain_text("incident")
    db.execute("SELECT cronledger.pause_queue('slow', reason => 'incident')")
    expect(page.locator("#queues")).to_contain_text("incident")


def test_what_somebody_writes_is_left_alone(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report", queue="slow")
    page = visit(f"{site}/runners")
    page.get_by_text("Pause…", exact=True).click()
    page.get_by_label("Reason for the pause of slow").fill("half a rea")
    rows.runner(db, "newcomer", queues=["other"])
    db.execute("SELECT cronledger.limit_queue('slow', 3)")
    expect(page.locator("#runners")).to_contain_text("newcomer")
    expect(page.get_by_label("Reason for the pause of slow")).to_have_value("half a rea")


def test_times_have_the_zone_of_the_viewer(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, timezone="Asia/Kolkata")
    execution = rows.execution(db)["id"]
    page = visit(f"{site}/execution?id={execution}", timezone_id="America/Santiago", locale="en-US")
    title = page.locator("main time").first.get_attribute("title")
    assert title is not None
    kolkata, utc, own = title.splitlines()
    assert kolkata.endswith("Asia/Kolkata") and utc.endswith("UTC") and own.endswith("(yours)")
    assert "GMT-3" in own or "GMT-4" in own


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_the_page_works_below_a_prefix_in_the_browser(
    serve: Serve, visit: Visit, db: Db, by: str
) -> None:
    execution = open_shop(db)
    address = serve(mounted)
    page = visit(f"{address}/ops/cron/")
    for name in ("Jobs", "Ledger", "Runners and queues", "Now"):
        press(page.get_by_role("link", name=name, exact=True), by)
        expect(heading(page)).to_have_text(name)
    db.execute("SELECT cronledger.pause_queue('default', reason => 'an event below the prefix')")
    press(page.get_by_role("link", name="Runners and queues", exact=True), by)
    expect(page.locator("#queues")).to_contain_text("an event below the prefix")
    page.goto(f"{address}/ops/cron/execution?id={execution}")
    press(page.get_by_role("button", name="Retry"), by)
    expect(page.get_by_role("status").first).to_contain_text("has one more attempt")


def test_a_violation_of_the_policy_and_an_error_fail_a_test(
    site: str, visit: Visit, complaints: list[str]
) -> None:
    """The fixture `visit` collects them, and wants none at the end."""
    page = visit(site)
    page.evaluate("document.body.append(Object.assign(document.createElement('script'),"
                  " {textContent: 'document.title = 1'}))")  # fmt: skip
    page.evaluate("document.body.setAttribute('style', 'color: red')")
    page.evaluate("setTimeout(() => { throw new Error('a defect') })")
    page.evaluate("fetch('https://evil.example').catch(() => 0)")
    until("all are collected", lambda: page.title() and len(complaints) >= 4)
    for part in ("script", "style", "a defect", "connect"):
        assert any(part in complaint for complaint in complaints), (part, complaints)
    complaints.clear()
