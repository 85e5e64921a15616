"""Run now with the fields of the payload's schema: a bad value, and then a good one."""

import pytest
from playwright.sync_api import Page, expect
from psycopg.types.json import Jsonb

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.browser.conftest import Visit, enter_text, strike

pytestmark = pytest.mark.browser

SCHEMA = {
    "type": "object", "required": ["number"], "properties": {
        "number": {"type": "integer", "minimum": 1},
        "day": {"type": "string", "format": "date"},
        "express": {"type": "boolean"},
    },
}  # fmt: skip
BAD = "400 (Bad Request)"


@pytest.mark.parametrize("keyboard", [False, True])
@pytest.mark.parametrize("javascript", [True, False])
def test_run_now_with_the_fields_of_the_payload(
    site: str, visit: Visit, db: Db, complaints: list[str], *, keyboard: bool, javascript: bool
) -> None:
    rows.job(db, payload_schema=Jsonb(SCHEMA))
    page = visit(f"{site}/job/run?name=job", java_script_enabled=javascript)
    fill = _by_keyboard if keyboard else _by_mouse
    fill(page, "0")
    expect(page.get_by_text("0 is less than the minimum of 1")).to_be_visible()
    expect(page.get_by_label("number")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("express")).to_have_value("true")
    complaints[:] = [one for one in complaints if BAD not in one]  # the refused form
    assert value(db, "SELECT count(*) FROM cronledger.executions") == 0
    fill(page, "12")
    expect(page.get_by_role("status")).to_contain_text("is due now")
    made = value(db, "SELECT payload FROM cronledger.executions")
    assert made == {"number": 12, "day": "2026-11-22", "express": True}


def _by_mouse(page: Page, number: str) -> None:
    page.get_by_label("number").fill(number)
    page.get_by_label("day").fill("2026-11-22")
    page.get_by_label("express").select_option("true")
    page.get_by_role("button", name="Run now").click()


def _by_keyboard(page: Page, number: str) -> None:
    page.get_by_label("number").focus()
    strike(page, "Control+A")
    enter_text(page, number)
    strike(page, "Tab")
    page.get_by_label("day").fill("2026-11-22")  # the order of its parts is that of the browser
    page.get_by_label("express").focus()
    strike(page, "t")
    page.get_by_label("number").focus()
    strike(page, "Enter")
