"""Actions on many executions of the page Ledger, folded successes, chips and presets."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import ledger_actions
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import (
    OPERATOR,
    SAME_ORIGIN,
    VIEWER,
    assert_refused,
    panel,
    post,
    text,
)


def fill(db: Db, statuses: list[str], job: str = "report", **columns: Any) -> list[int]:
    """Executions of the last minutes, the first one the newest."""
    at = rows.now(db).replace(microsecond=0) - timedelta(minutes=1)
    return [
        rows.execution(db, status, job, plan_time=at - timedelta(minutes=n), **columns)["id"]
        for n, status in enumerate(statuses)
    ]


@pytest.fixture(autouse=True)
def report(db: Db) -> None:
    rows.job(db, "report")


def again(db: Db) -> list[int]:
    found = db.execute(
        "SELECT id FROM cronledger.executions WHERE next_attempt_at IS NOT NULL ORDER BY id"
    )
    return [row["id"] for row in found]


def test_ticked_executions_are_retried_after_a_preview_F92(by_token: TestClient, db: Db) -> None:
    ids = fill(db, ["FAILED", "SUCCESS", "FAILED"])
    by_token.headers.update(SAME_ORIGIN | OPERATOR)
    shown = by_token.get("/ledger?job=report").text
    assert [int(x) for x in re.findall(r'name="id" value="(\d+)"', shown)] == ids
    assert 'formaction="/ledger/retry?job=report&amp;' in shown
    preview = by_token.post("/ledger/retry?job=report", data={"id": ids})
    assert "2 to be retried" in text(preview.text)
    assert "1 left as they are: it is SUCCESS" in text(preview.text)
    assert again(db) == []
    chosen = re.findall(r'name="id" value="(\d+)"', preview.text)
    assert sorted(map(int, chosen)) == [ids[0], ids[2]]
    form = {"confirmed": "yes", "id": chosen, "reason": "the disk was full"}
    done = by_token.post("/ledger/retry?job=report", data=form)
    assert done.headers["location"].startswith("/ledger?job=report")
    assert "Retried: 2." in text(by_token.get(done.headers["location"]).text)
    assert again(db) == [ids[0], ids[2]]
    audit = db.execute("SELECT * FROM cronledger.audit WHERE verb LIKE 'retry%'").fetchall()
    assert [(x["verb"], x["requested_by"], x["reason"]) for x in audit] == [
        ("retry_many", "alice", "the disk was full")
    ]


def test_all_executions_that_match_are_retried_or_cancelled_F92(
    browser: TestClient, db: Db
) -> None:
    failed = fill(db, ["FAILED"] * 101)  # more than a page
    rows.job(db, "other")
    fill(db, ["FAILED"], "other")
    for verb, expected in (("retry", failed), ("cancel", [])):
        address = f"/ledger/{verb}?job=report&outcome=FAILED&outcome=SKIPPED"
        preview = post(browser, address, every="yes")
        chosen = re.findall(r'name="id" value="(\d+)"', preview.text)
        assert sorted(map(int, chosen)) == sorted(failed)
        assert post(browser, address, confirmed="yes", id=chosen).status_code == 303
        assert again(db) == sorted(expected)
    assert value(db, "SELECT count(*) FROM cronledger.audit WHERE verb LIKE '%%_many'") == 2


def test_an_action_that_is_refused_changes_nothing_F92(
    browser: TestClient, by_token: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_actions, "MOST", 2)
    ids = fill(db, ["FAILED"] * 3)
    for query, data, message in (
        ("", {"confirmed": "yes"}, "No execution is chosen."),
        ("", {"id": ids}, "3 executions are chosen: choose at most 2."),
        ("", {"id": "x"}, "id is not a whole number"),
        ("", {"every": "yes"}, "More than 2 executions match"),
        ("?outcome=SKIPPED", {"every": "yes"}, "Only skips match"),
        ("?job=nobody", {"every": "yes"}, "No execution matches."),
    ):
        assert_refused(post(browser, f"/ledger/retry{query}", **data), message)
    form: dict[str, Any] = {"confirmed": "yes", "id": ids[0]}
    refused = by_token.post("/ledger/retry", data=form, headers=SAME_ORIGIN | VIEWER)
    assert refused.status_code == 403
    assert 'name="id"' not in by_token.get("/ledger", headers=VIEWER).text
    assert again(db) == []


def test_equal_successes_fold_between_other_outcomes_F92(browser: TestClient, db: Db) -> None:
    """Those of one job in a row, and those of its scopes at one plan_time."""
    rows.job(db, "other")
    fill(db, ["SUCCESS"] * 4 + ["FAILED"] + ["SUCCESS"] * 2)
    at = rows.now(db).replace(microsecond=0) - timedelta(minutes=1, seconds=30)
    for number in range(2):  # between those of the other job
        rows.execution(db, "SUCCESS", "other", plan_time=at - timedelta(minutes=number))
    rows.job(db, "shards", scope_kind="shard", scopes=["east", "west", "north"])
    for scope in ("east", "west", "north"):
        columns = {"scope_kind": "shard", "scope_id": scope}
        rows.execution(db, "SUCCESS", "shards", plan_time=at - timedelta(hours=1), **columns)
    names = panel(browser.get("/ledger").text, "ledger")
    found = re.findall(r"(report|other|3 scopes) (SUCCESS|FAILED)(?: ([34]))?", names)
    assert found == [
        ("report", "SUCCESS", "4"), ("other", "SUCCESS", ""), ("other", "SUCCESS", ""),
        ("report", "FAILED", ""), ("report", "SUCCESS", ""), ("report", "SUCCESS", ""),
        ("3 scopes", "SUCCESS", "3"),
    ]  # fmt: skip
    for query in ("?unfold=yes", "?outcome=SUCCESS"):
        shown = browser.get(f"/ledger{query}").text
        assert 'class="folded"' not in shown and len(re.findall('name="id"', shown)) >= 11


def test_a_chip_removes_one_filter_F92(browser: TestClient) -> None:
    shown = browser.get("/ledger?job=a%20b&outcome=FAILED&outcome=SKIPPED&since=2d").text
    chips = dict(
        re.findall(r'class="chip" href="([^"]*)" aria-label="Remove the filter ([^"]*)"', shown)
    )
    assert {words: address.replace("&amp;", "&") for address, words in chips.items()} == {
        "job: a b": "/ledger?outcome=FAILED&outcome=SKIPPED&since=2d",
        "outcome: FAILED": "/ledger?job=a+b&outcome=SKIPPED&since=2d",
        "outcome: SKIPPED": "/ledger?job=a+b&outcome=FAILED&since=2d",
        "since: 2d": "/ledger?job=a+b&outcome=FAILED&outcome=SKIPPED",
    }


def test_presets_begin_at_midnight_of_the_chosen_zone_F92(browser: TestClient, db: Db) -> None:
    browser.cookies.set("cronledger_times", "Asia/Tokyo")
    shown = browser.get("/ledger").text
    presets = {
        words: address.replace("&amp;", "&")
        for address, words in re.findall(r'class="preset" href="([^"]*)">([^<]*)<', shown)
    }
    assert list(presets) == ["Failed today", "Running", "Skipped today"]
    since = re.search(r"since=([^&]*)", presets["Failed today"])
    assert since is not None
    at = datetime.fromisoformat(since[1].replace("%3A", ":").replace("%2B", "+"))
    assert at.hour == 15 and timedelta() <= rows.now(db) - at < timedelta(days=1, minutes=5)
    for address in presets.values():
        assert browser.get(address).status_code == 200
