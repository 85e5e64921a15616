"""Addresses that a person bookmarks, and the zone in which the page shows times."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.browser.conftest import FIREFOX, Serve, Visit
from tests.web.test_links import mounted

pytestmark = pytest.mark.browser

NAMES = ("a/b", "50%25", "why?#", "zürich ☂", "..")


def test_a_link_to_a_job_can_be_sent_whatever_its_name_has(
    serve: Serve, visit: Visit, db: Db
) -> None:
    for name in NAMES:
        rows.job(db, name)
    execution = rows.execution(db, "FAILED", "50%25")["id"]
    address = f"{serve(mounted)}/ops/cron"
    page = visit(f"{address}/jobs")
    for name in NAMES:
        page.goto(f"{address}/jobs")
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        sent = page.url
        page.goto(f"{address}/jobs")
        page.goto(sent)
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.goto(f"{address}/job/50%2525")
    page.locator("#newest th a").click()
    expect(page).to_have_url(f"{address}/execution/{execution}")


def zone_of(page: Page) -> str:
    return page.locator("#execution dd .zone").first.inner_text()


def test_times_are_shown_in_the_zone_that_a_person_chooses(site: str, visit: Visit, db: Db) -> None:
    rows.job(db, timezone="Asia/Kolkata")
    execution = rows.execution(db)["id"]
    page = visit(f"{site}/execution/{execution}", timezone_id="Asia/Tokyo", locale="en-US")
    assert zone_of(page) == "IST"
    times = page.get_by_role("group", name="Times in")
    for link, zone in (("UTC", "UTC"), ("mine", "JST"), ("job's zone", "IST")):
        times.get_by_role("link", name=link).click()
        expect(times.locator("[aria-current]")).to_have_text(link)
        expect(page).to_have_url(f"{site}/execution/{execution}")
        assert zone_of(page) == zone
    title = page.locator("main time").first.get_attribute("title")
    assert title is not None
    kolkata, utc, own = title.splitlines()
    assert kolkata.endswith("Asia/Kolkata") and utc.endswith("UTC") and own.endswith("(yours)")
    assert "GMT+9" in own
    times.get_by_role("link", name="mine").click()
    page.goto(f"{site}/ledger?job=job")  # it is remembered
    expect(page.locator("#ledger tbody .zone").first).to_have_text("JST")
    expect(page.locator("#database-time .zone")).to_have_text("JST")


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no_script"])
def test_an_instant_is_chosen_with_the_keyboard_or_typed_F126(
    site: str, visit: Visit, db: Db, engine: str, *, has_script: bool
) -> None:
    rows.job(db)
    page = visit(f"{site}/times?zone=Asia/Kolkata&next=/ledger", java_script_enabled=has_script,
                 locale="en-US")  # fmt: skip
    since = page.get_by_role("group", name="Since")
    chosen, typed = since.get_by_label("Since, Asia/Kolkata"), since.get_by_label("Since, typed")
    chosen.focus()
    page.keyboard.type("07012026")
    if engine != FIREFOX:  # which goes on after four digits of the year
        page.keyboard.press("Tab")
    page.keyboard.type("033015AM")
    page.keyboard.press("Enter")
    expect(page.locator(".chip")).to_contain_text("since: 2026-06-30T22:00:15Z")
    expect(chosen).to_have_value("2026-07-01T03:30:15")
    expect(typed).to_have_value("")
    typed.fill("6h")
    if has_script:
        expect(chosen).to_have_value("")
    else:
        chosen.fill("")
    typed.press("Enter")
    expect(page.locator(".chip")).to_contain_text("since: 6h")
    expect(typed).to_have_value("6h")


def test_an_instant_that_is_typed_before_the_script_is_loaded_replaces_the_chosen_one(
    site: str, visit: Visit, db: Db, engine: str
) -> None:
    rows.job(db)
    page = visit(f"{site}/jobs", locale="en-US")
    scripts: list[Route] = []

    def hold(script: Route) -> None:
        scripts.append(script)

    page.route("**/page.js", hold)
    with page.expect_request("**/page.js"):
        page.goto(
            f"{site}/times?zone=UTC&next=/ledger?since=2026-06-30T22:00:15Z", wait_until="commit"
        )
    since = page.get_by_role("group", name="Since")
    chosen, typed = since.get_by_label("Since, UTC"), since.get_by_label("Since, typed")
    typed.fill("6h")
    expect(chosen).to_have_value("2026-06-30T22:00:15")
    scripts.pop().continue_()
    expect(chosen).to_have_value("")
    expect(typed).to_have_value("6h")
