"""The page Ledger: executions and skips in one stream, its filters, its pages and its exports."""

import csv
import io
import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from starlette.testclient import TestClient

from cronledger.web.pages import ledger as page
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import assert_refused, next_page, panel, text


@pytest.fixture
def history(db: Db) -> datetime:
    """Executions 1 to 3 of `report` and one of `mail`, with two skips between them."""
    rows.job(db, "report")
    rows.job(db, "mail")
    at = rows.now(db).replace(microsecond=0) - timedelta(hours=1)
    rows.execution(db, "SUCCESS", "report", plan_time=at)
    rows.skip(db, at - timedelta(minutes=10), at - timedelta(minutes=6), 5, job="report")
    rows.execution(db, "FAILED", "report", plan_time=at - timedelta(minutes=20))
    rows.execution(db, "SUCCESS", "mail", plan_time=at - timedelta(minutes=30), runner_id="r2")
    rows.skip(db, at - timedelta(minutes=40), reason="paused", job="mail")
    rows.execution(db, "SUCCESS", "report", plan_time=at - timedelta(days=3))
    return at


def outcomes(browser: TestClient, query: str = "") -> list[tuple[str, str]]:
    found = browser.get(f"/ledger.json{query}")
    assert found.status_code == 200, text(found.text)
    return [(row["job_name"], row["outcome"]) for row in found.json()["rows"]]


@pytest.mark.long
def test_executions_and_skips_are_one_stream(browser: TestClient, history: datetime) -> None:
    assert outcomes(browser) == [
        ("report", "SUCCESS"), ("report", "SKIPPED"), ("report", "FAILED"), ("mail", "SUCCESS"),
        ("mail", "SKIPPED"),
    ]  # fmt: skip
    shown = panel(browser.get("/ledger").text, "ledger")
    assert re.search(r"report SKIPPED missed 5 .*5 plan_times did not run", shown)
    assert re.search(r"report FAILED boom .*failed on r1: it broke; not retried", shown)


def test_the_details_have_their_times_in_the_zone_of_the_page(browser: TestClient, db: Db) -> None:
    """Except those that people and handlers wrote."""
    rows.job(db, timezone="Asia/Kolkata")
    at = rows.now(db).replace(microsecond=0) - timedelta(minutes=2)
    written = "2026-01-01T00:00:00Z; retried from 2026-01-01 00:00:00 UTC"
    rows.execution(db, "FAILED", plan_time=at, next_attempt_at=at, error_msg=written)
    rows.execution(
        db, "FAILED", plan_time=at - timedelta(minutes=1), error_msg=f"{written}\n{written}"
    )
    rows.execution(db, "PENDING", plan_time=at - timedelta(minutes=2), due_at=at)
    rows.skip(db, at - timedelta(minutes=3), reason="operator", detail=written)
    gate = f"report {at:%Y-%m-%dT%H:%M:%S}Z is RUNNING"
    rows.skip(db, at - timedelta(minutes=4), reason="upstream", detail=gate)
    for chosen, zone in (("", "Asia/Kolkata"), ("Asia/Tokyo", "Asia/Tokyo")):
        browser.cookies.set("cronledger_times", chosen)
        shown = panel(browser.get("/ledger").text, "ledger")
        there = rf"[\w -]*{at.astimezone(ZoneInfo(zone)):%H:%M:%S %Z}"
        assert re.search(rf"failed on r1: {written}; retried from {there}", shown)
        assert re.search(rf"failed on r1: {written} [\w: -]* job PENDING", shown)
        assert re.search(rf"due {there} , has not started yet", shown)
        assert f"an operator skipped it ({written})" in shown
        assert re.search(rf"requires: report {there} is RUNNING", shown)


def test_filters_are_in_the_address(browser: TestClient, history: datetime) -> None:
    assert outcomes(browser, "?job=mail") == [("mail", "SUCCESS"), ("mail", "SKIPPED")]
    assert outcomes(browser, "?outcome=FAILED&outcome=SKIPPED&job=report") == [
        ("report", "SKIPPED"), ("report", "FAILED"),
    ]  # fmt: skip
    assert outcomes(browser, "?reason=paused") == [("mail", "SKIPPED")]
    assert outcomes(browser, "?runner=r2") == [("mail", "SUCCESS")]
    assert outcomes(browser, "?since=4d&until=2d") == [("report", "SUCCESS")]
    assert outcomes(browser, "?job=nothing") == []
    shown = browser.get("/ledger?job=mail&outcome=SKIPPED").text
    assert 'name="job" value="mail"' in shown and 'value="SKIPPED" checked' in shown


def test_an_invalid_filter_is_refused_with_its_remedy(browser: TestClient) -> None:
    for query, message in {
        "outcome=DONE": "outcome is one of SUCCESS, FAILED",
        "since=yesterday": "since: 'yesterday' is neither a time nor a duration; write 2026-",
        "until=0001-01-01": "until: 0001-01-01T00:00:00+00:00 is outside the years",
        "since=1h&until=2h": "is not before until",
        "before=WyIiXQ==": "before is not a place in the ledger",
        "job=%00": "a character that no name can have",
    }.items():
        assert_refused(browser.get(f"/ledger?{query}"), message)


@pytest.mark.parametrize(
    ("limit", "outcome", "words"),
    [("MOST", "", "Older"), ("MOST_READ", "FAILED", "Search on")],
    ids=["pages", "searches_that_read_a_bounded_number_of_rows"],
)
@pytest.mark.long
def test_each_row_is_found_once_in_order_over_all_pages(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch, *, limit: str,
    outcome: str, words: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(page, limit, 20)
    rows.job(db, "many", scope_kind="tenant", scopes=["a", "b", "c"])
    at = rows.now(db).replace(microsecond=5) - timedelta(minutes=1)
    for number in range(60):  # scope a has most of them, and two share each instant
        rows.execution(
            db, "FAILED" if number % 25 == 7 else "SUCCESS", "many", scope_kind="tenant",
            scope_id="abac"[number % 4], plan_time=at - timedelta(minutes=number // 2),
        )  # fmt: skip
    wanted = db.execute(
        "SELECT id, scope_id FROM cronledger.executions WHERE %s IN ('', status)"
        " ORDER BY plan_time DESC, scope_id DESC",
        [outcome],
    ).fetchall()
    for query in ("", "&job=many", "&job=many&scope=a"):
        seen: list[str] = []
        pages = 0
        address = f"/ledger?unfold=yes&outcome={outcome}{query}"
        while address:
            shown = browser.get(address).text
            seen += re.findall(r'/execution/(\d+)"', shown)
            address = next_page(shown, words)
            assert ("Searched back to" in text(shown)) is bool(outcome and address)
            pages += 1
        scopes = "a" if "scope" in query else "abc"
        assert seen == [str(row["id"]) for row in wanted if row["scope_id"] in scopes] != []
        assert pages > 1


def test_an_export_has_the_filtered_rows_and_the_address_of_more(
    browser: TestClient, history: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_EXPORTED", 2)
    first = browser.get("/ledger.csv?job=report")
    assert first.headers["content-type"].startswith("text/csv")
    table = list(csv.DictReader(io.StringIO(first.text)))
    assert [row["outcome"] for row in table] == ["SUCCESS", "SKIPPED"]
    address = re.match(r'<(.*)>; rel="next"', first.headers["link"])
    assert address is not None
    rest = browser.get(address[1])
    assert [row["outcome"] for row in csv.DictReader(io.StringIO(rest.text))] == ["FAILED"]
    assert "link" not in rest.headers
    found: dict[str, Any] = browser.get("/ledger.json?job=report").json()
    assert found["rows"][0]["duration"] == 2.0
    assert browser.get(found["next"]).json()["next"] is None


def test_a_cell_is_no_formula(browser: TestClient, db: Db) -> None:
    rows.job(db, "=cmd()")
    rows.execution(db, "SUCCESS", "=cmd()")
    assert "'=cmd()" in browser.get("/ledger.csv").text
    assert outcomes(browser) == [("=cmd()", "SUCCESS")]


def test_an_export_goes_on_where_its_search_stopped(
    browser: TestClient, history: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_READ_FOR_EXPORT", 2)
    found: list[str] = []
    address: str | None = "/ledger.json?outcome=SUCCESS"
    while address is not None:
        answer = browser.get(address).json()
        found += [row["job_name"] for row in answer["rows"]]
        address = answer["next"]
    assert found == ["report", "mail"]


@pytest.mark.parametrize("reverse", ["DESC", "ASC"])
def test_a_window_of_plan_times_is_read_by_an_index(db: Db, reverse: str) -> None:
    """In every partition, also in one that is created later, and for skips."""
    rows.partitions(db, rows.now(db) + timedelta(days=365))
    db.execute("SET enable_seqscan = off")
    db.execute("SET enable_bitmapscan = off")
    db.execute("SET enable_sort = off")
    plan = "\n".join(
        row["QUERY PLAN"]
        for row in db.execute(
            "EXPLAIN SELECT * FROM cronledger.ledger WHERE plan_time > now() - interval '1 day'"
            f" ORDER BY plan_time {reverse}, job_name {reverse} LIMIT 9".encode()
        )
    )
    partitions = db.execute("SELECT count(*) AS count FROM cronledger.partitions()").fetchall()
    by_index = re.findall(r"using \w*(?:_plan_time_job_name_scope_kind_scope_id_idx\d*) ", plan)
    assert len(by_index) == partitions[0]["count"]
    assert "using skips_plan_time" in plan and "Sort  " not in plan
