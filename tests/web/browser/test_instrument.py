"""Journeys of the person on call: to a cause, along an output, through many failures."""

import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.cli.support.daemon import starter
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.browser.conftest import Visit, press
from tests.web.test_alert_panels import open_state

pytestmark = pytest.mark.browser

CAUSE = "ConnectionError: the payment service is away"
COUNTING = """
[jobs.counting]
command = ["sh", "-c", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done"]
"""


def fail_with_alert(db: Db, *, has_scopes: bool) -> int:
    """The job `charge` fails, in two of its 300 scopes if it has them, and an alert is open.

    Return the execution of the alert.
    """
    at = rows.now(db)
    scope: dict[str, str] = {}
    if has_scopes:
        scopes = [f"s{number:03}" for number in range(300)]
        rows.job(db, "charge", scope_kind="shop", scopes=scopes)
        for name in scopes:
            scope = {"scope_kind": "shop", "scope_id": name}
            rows.execution(db, "SUCCESS", "charge", plan_time=at - timedelta(minutes=9), **scope)
        fails(db, at - timedelta(minutes=1), scope_kind="shop", scope_id="s012")
    else:
        rows.job(db, "charge", schedule="30 3 * * *")
        rows.execution(db, "SUCCESS", "charge", plan_time=at - timedelta(minutes=9))
    began = at - timedelta(minutes=2)
    last = fails(db, began, **scope)
    open_state(db, at, "charge", since=began, execution_id=last, summary="it failed", **scope)
    return last


def fails(db: Db, at: datetime, **columns: Any) -> int:
    found: int = rows.execution(
        db, "FAILED", "charge", plan_time=at, finished_at=at + timedelta(seconds=3),
        error_code="exception", error_msg=CAUSE, output="connecting to pay.example\nrefused\n",
        **columns,
    )["id"]  # fmt: skip
    return found


@pytest.mark.parametrize("by", ["mouse", "keyboard", "without script"])
@pytest.mark.parametrize("has_scopes", [False, True], ids=["one_scope", "300_scopes"])
def test_three_clicks_lead_from_an_alert_to_the_cause_F96(
    site: str, visit: Visit, db: Db, by: str, *, has_scopes: bool
) -> None:
    execution = fail_with_alert(db, has_scopes=has_scopes)
    page = visit(site, java_script_enabled=by != "without script")
    clicks = [page.locator(".counters a").filter(has_text="with alerts")]
    row = page.locator("#attention tbody tr").filter(has_text="charge")
    expect(row).to_contain_text(CAUSE)
    if has_scopes:
        expect(row).to_contain_text("2 of 300 scopes")
        clicks += [row.get_by_role("link", name="Failures"), page.locator("#ledger td a").last]
    else:
        clicks += [row.get_by_role("link", name="charge")]
    assert len(clicks) <= 3
    for target in clicks:
        press(target, "keyboard" if by == "keyboard" else "mouse")
    expect(page.locator("#execution pre.block").first).to_have_text(CAUSE)
    expect(page.locator("#execution pre.output")).to_contain_text("refused")
    expect(page).to_have_url(f"{site}/execution/{execution}")


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_running_command_is_followed_and_cancelled_F96(  # noqa: PLR0917
    site: str, visit: Visit, db: Db, database_url: str, tmp_path: Path, by: str
) -> None:
    (tmp_path / "cronledger.toml").write_text(COUNTING)
    with starter(tmp_path, "run", signal.SIGTERM, CRONLEDGER_DATABASE_URL=database_url) as start:
        start("cronledger.toml").until_event("runner_started")
        page = visit(f"{site}/job/counting")
        press(page.get_by_role("link", name="Run now"), by)
        press(page.get_by_role("button", name="Run now"), by)
        expect(page).to_have_url(re.compile(r"/execution/\d+$"))
        output = page.locator("#output-text")
        expect(output).to_contain_text("line 2")
        before = output.inner_text()
        expect(output).not_to_have_text(before)  # nobody reloads the page
        press(page.get_by_text("Cancel…", exact=True), by)
        press(page.get_by_role("button", name="Cancel execution"), by)
        expect(page.locator("#execution-title")).to_contain_text("CANCELLED")
        expect(page.locator("#output-text")).to_contain_text("line 2")
    ended = "SELECT cancel_requested_by FROM cronledger.executions WHERE status = 'CANCELLED'"
    assert value(db, ended)


@pytest.mark.parametrize("by", ["mouse", "keyboard", "without script"])
def test_forty_failures_are_retried_at_once_F96(site: str, visit: Visit, db: Db, by: str) -> None:
    rows.job(db, "charge")
    rows.copies(db, rows.execution(db, "FAILED", "charge"), 39)
    page = visit(f"{site}/ledger?outcome=FAILED", java_script_enabled=by != "without script")
    hand = "keyboard" if by == "keyboard" else "mouse"
    every = page.get_by_label("All executions that match the filters")
    every.press("Space") if hand == "keyboard" else every.check()
    press(page.get_by_role("button", name="Retry…"), hand)
    expect(page.locator(".preview")).to_contain_text("40 to be ")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.get_by_label("Reason").fill("the payment service is back")
    press(page.get_by_role("button", name="Retry", exact=True), hand)
    expect(page.get_by_role("status").first).to_contain_text(": 40.")
    due = "SELECT count(*) FROM cronledger.executions WHERE next_attempt_at IS NOT NULL"
    assert value(db, due) == 40
    actions = "SELECT count(*) FROM cronledger.audit WHERE verb = 'retry_many'"
    assert value(db, actions) == 1


def test_an_error_is_selected_and_copied_while_the_panel_changes_F96(
    site: str, visit: Visit, db: Db
) -> None:
    rows.job(db, "charge")
    at = rows.now(db)
    found = fails(db, at - timedelta(minutes=2))
    page = visit(f"{site}/execution/{found}")
    error = page.locator("#execution pre.block").first
    error.evaluate("(block) => getSelection().selectAllChildren(block)")
    db.execute("SELECT cronledger.retry(%s)", [found])
    expect(page.locator("#execution")).to_contain_text("Next attempt")  # the panel has changed
    assert page.evaluate("getSelection().toString()").strip() == CAUSE
    error.evaluate("(block) => block.focus()")
    page.keyboard.press("ControlOrMeta+c")
    assert page.evaluate("getSelection().toString()").strip() == CAUSE
