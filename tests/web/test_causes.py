"""From an alert to its cause: every job leads to its executions, its ledger and explanations."""

import re
from datetime import timedelta
from html import unescape

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import text

SECOND = timedelta(seconds=1)
SCOPE = {"scope_kind": "global", "scope_id": "global"}


def links(html: str, part: str) -> list[str]:
    """The addresses to which one panel leads."""
    found = re.search(rf'(?s)<section[^>]*id="{part}".*?</section>', html)
    assert found is not None
    return [unescape(address) for address in re.findall(r'href="([^"]*)"', found[0])]


def failing(db: Db, times: int = 3) -> int:
    """A job that fires each second has failed so often; return the newest failure."""
    rows.job(db, "ticks", schedule="@every 1s")
    at = rows.now(db).replace(microsecond=0)
    for seconds in range(times, 0, -1):
        row = rows.execution(db, "FAILED", "ticks", plan_time=at - seconds * SECOND)
    found: int = row["id"]
    return found


def test_an_alert_links_its_execution(browser: TestClient, db: Db) -> None:
    execution = failing(db)
    at = rows.now(db)
    rows.insert(
        db, "tracked_states", channel="ops", event="failed", job_name="ticks", since=at, count=320,
        last_alert_at=at, execution_id=execution, summary="it failed", **SCOPE,
    )  # fmt: skip
    address = f"/execution?id={execution}"
    for page in ("/", "/job?name=ticks"):
        assert address in links(browser.get(page).text, "alerts")
    assert "it broke" in text(browser.get(address).text)


def test_an_alert_without_an_execution_links_its_explanation(browser: TestClient, db: Db) -> None:
    rows.job(db, "late")
    at = rows.now(db)
    rows.insert(
        db, "tracked_states", channel="ops", event="overdue", job_name="late", since=at, count=1,
        last_alert_at=at, plan_time=at, summary="it is overdue", **SCOPE,
    )  # fmt: skip
    rows.insert(
        db, "tracked_states", channel="ops", event="runner_lost", runner_id="r1", since=at, count=1,
        last_alert_at=at, summary="r1 is lost",
    )  # fmt: skip
    found = links(browser.get("/").text, "alerts")
    (why,) = [address for address in found if address.startswith("/why?")]
    assert browser.get(why).status_code == 200
    assert "/runners" in found


def test_a_job_of_many_firings_leads_to_executions_the_ledger_and_why(
    browser: TestClient, db: Db
) -> None:
    execution = failing(db, 320)
    page = browser.get("/job?name=ticks").text
    assert "/execution?" not in " ".join(links(page, "day"))  # too many for the picture
    newest = links(page, "newest")
    assert f"/execution?id={execution}" in newest
    whys = [address for address in newest if address.startswith("/why?")]
    assert "failed" in text(browser.get(whys[0]).text)
    beside = [unescape(address) for address in re.findall(r'href="(/(?:ledger|why)\?[^"]*)"', page)]
    assert "/ledger?job=ticks&scope=global" in beside
    assert "/why?job=ticks&scope=global" in beside
    for address in beside:
        assert browser.get(address).status_code == 200
