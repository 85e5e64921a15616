"""An open page changes in place: what somebody reads, copies, chooses or confirms stays."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Locator, Page, Response, ViewportSize, expect

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.waiting import until
from tests.web.browser.conftest import Visit, open_address
from tests.web.support.picture_ledger import DAY, NOW, open_picture_ledger

pytestmark = pytest.mark.browser

SIZES: list[ViewportSize] = [{"width": 1280, "height": 800}, {"width": 375, "height": 800}]
MARK = "(row) => { row.isTheSame = true; }"
SELECT = """(cell) => {
    getSelection().selectAllChildren(cell);
    cell.closest('.scroll').scrollLeft = 40;
}"""
SCROLLED = "(table) => table.scrollLeft"
IS_SHOWN = """(now) => {
    const line = now.getBoundingClientRect();
    const frame = now.closest('.scroll').getBoundingClientRect();
    return frame.left < line.left && line.right < frame.right;
}"""


def running(db: Db, job: str) -> None:
    rows.job(db, job)
    plan_time = rows.now(db) - timedelta(minutes=1)
    lease = rows.now(db) + timedelta(hours=1)
    rows.execution(db, "RUNNING", job, plan_time=plan_time, stale_after=lease)


def row_of(page: Page, panel: str, job: str) -> Locator:
    return page.locator(f"#{panel} tbody tr").filter(has_text=job)


@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_selected_text_and_the_scroll_of_a_table_survive_a_refresh(
    site: str, visit: Visit, db: Db, size: ViewportSize
) -> None:
    running(db, "a-job-that-runs-for-a-long-time")
    page = visit(site)
    page.set_viewport_size(size)
    table = page.locator("#running .scroll")
    row = row_of(page, "running", "a-job-that-runs")
    row.evaluate(MARK)
    row.locator("td").first.evaluate(SELECT)
    selected = page.evaluate("getSelection().toString()")
    scrolled = table.evaluate(SCROLLED)
    assert selected and (scrolled > 0) is (size["width"] == 375)

    running(db, "another")
    rows.runner(db, "web1")
    note = page.locator("#running .held")
    expect(note).to_contain_text("Held while text is selected")
    expect(page.locator("#lamp")).to_have_text("held while you choose")
    expect(page.locator("#runners")).to_contain_text("web1")  # the other panels are not held
    assert page.evaluate("getSelection().toString()") == selected
    assert table.evaluate(SCROLLED) == scrolled
    expect(row_of(page, "running", "another")).to_have_count(0)

    page.evaluate("getSelection().removeAllRanges()")
    expect(row_of(page, "running", "another")).to_be_visible()
    expect(note).to_have_count(0)
    expect(page.locator("#lamp")).to_have_text("live")
    assert row.evaluate("(row) => row.isTheSame")
    assert table.evaluate(SCROLLED) == scrolled


@pytest.mark.parametrize(("path", "panel"), [("/timeline", "timeline"), (f"/job/{DAY}", "day")])
def test_a_picture_opens_at_the_present_and_keeps_the_scroll_of_its_reader(  # noqa: PLR0917
    site: str, visit: Visit, db: Db, database_url: str, path: str, panel: str
) -> None:
    open_picture_ledger(db, database_url)
    page = visit("about:blank")
    page.set_viewport_size(SIZES[1])
    open_address(page, f"{site}{path}")
    picture = page.locator(f"#{panel} .scroll").first
    assert picture.locator(".now").evaluate(IS_SHOWN)
    picture.evaluate("(frame) => { frame.scrollLeft = 40; }")
    before = picture.inner_html()
    rows.execution(db, "FAILED", DAY, plan_time=NOW - timedelta(minutes=1))
    until("the picture has changed", lambda: picture.inner_html() != before)
    assert picture.evaluate(SCROLLED) == 40


def test_rows_change_while_a_box_is_ticked_but_keep_their_places(
    site: str, visit: Visit, db: Db
) -> None:
    for name in ("b-chosen", "c-other"):
        rows.job(db, name)
    page = visit(f"{site}/jobs")
    box = page.get_by_label("Choose b-chosen")
    box.check()
    db.execute("SELECT cronledger.pause('c-other', reason => 'the API is away')")
    expect(row_of(page, "jobs", "c-other")).to_contain_text("the API is away")
    expect(page.locator("#jobs .held")).to_have_count(0)  # nothing is missing

    rows.job(db, "a-new")
    held = page.locator("#jobs .held")
    expect(held).to_contain_text("Held while a box is ticked")
    expect(row_of(page, "jobs", "a-new")).to_have_count(0)
    held.get_by_role("button", name="Update").click()
    expect(row_of(page, "jobs", "a-new")).to_be_visible()
    expect(box).to_be_checked()


def test_an_open_confirmation_is_not_taken_away(site: str, visit: Visit, db: Db) -> None:
    running(db, "ends-soon")
    page = visit(site)
    page.locator("#running summary").click()
    db.execute(
        "UPDATE cronledger.executions SET status = 'SUCCESS', finished_at = now(), duration_ms = 1"
        " WHERE status = 'RUNNING'"
    )
    expect(page.locator("#running .held")).to_contain_text("Held while a form is open")
    expect(page.get_by_role("button", name="Cancel execution")).to_be_visible()
    page.locator("#running summary").click()
    expect(page.locator("#running")).to_contain_text("Nothing is running.")


def test_details_that_are_read_stay_open_and_are_refreshed(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report")
    rows.execution(db, "SUCCESS", "report")
    page = visit(f"{site}/timeline")
    page.locator("#timeline summary").click()
    expect(page.locator("#timeline table")).to_contain_text("succeeded")
    rows.execution(db, "FAILED", "report", plan_time=rows.now(db) - timedelta(seconds=10))
    expect(page.locator("#timeline table")).to_contain_text("failed")
    expect(page.locator("#timeline details")).to_have_attribute("open", "")
    expect(page.locator("#timeline .held")).to_have_count(0)


def test_an_unchanged_page_is_answered_without_content(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, "report")
    page = visit("about:blank")
    answers: list[int] = []

    def note(one: Response) -> None:
        if one.url == f"{site}/jobs":
            answers.append(one.status)

    page.on("response", note)
    open_address(page, f"{site}/jobs")
    until("two answers are empty", lambda: page.title() and answers.count(204) >= 2)
    db.execute("SELECT cronledger.pause('report', reason => 'the API is away')")
    expect(row_of(page, "jobs", "report")).to_contain_text("the API is away")
    assert answers[0] == 200 and {*answers} == {200, 204}


def test_a_panel_appears_while_focus_and_typed_text_stay(site: str, visit: Visit, db: Db) -> None:
    job = rows.job(db, "report")
    page = visit(f"{site}/job/report")
    page.locator("#firings a").nth(3).focus()
    focused = "document.activeElement.getAttribute('href')"
    before = page.evaluate(focused)
    page.locator("#newest").evaluate(MARK)
    db.execute(
        "SELECT cronledger.skip(%s, date_trunc('hour', cronledger.db_now(), 'UTC')"
        " + interval '2 hours', 'the database moves')", [job["name"]],
    )  # fmt: skip
    expect(page.locator("#skips")).to_contain_text("the database moves")
    assert page.evaluate(focused) == before
    assert page.locator("#newest").evaluate("(panel) => panel.isTheSame")

    rows.job(db, "other", queue="slow")
    open_address(page, f"{site}/runners")
    page.get_by_label("Limit of slow").evaluate(
        "(field) => { field.closest('details').open = true; field.value = '12'; field.blur(); }"
    )
    db.execute("SELECT cronledger.pause_queue('slow', reason => 'incident')")
    expect(page.locator("#lamp")).to_have_text("held while you choose")
    expect(page.get_by_label("Limit of slow")).to_have_value("12")


def test_an_age_counts_on_without_a_request(site: str, visit: Visit, db: Db) -> None:
    rows.runner(db, "web1", stale_after=rows.now(db) + timedelta(hours=1))
    page = visit(f"{site}/runners")
    age = page.locator("#runners time[data-age]")
    exact = age.get_attribute("title")
    page.route("**/*", lambda route: route.fulfill(status=204))
    shown = age.inner_text()
    expect(age).not_to_have_text(shown)
    expect(age).to_have_text(re.compile(r"^\d+ (s|min) ago$"))
    assert exact is not None and age.get_attribute("title") == exact and "UTC" in exact
