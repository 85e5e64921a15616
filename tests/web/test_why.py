"""The page Why: the paragraph of `cronledger why`, with links to the rows that it names."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import panel, text
from tests.web.support.history import planned

HOUR = timedelta(hours=1)


def page(browser: TestClient, status: int = 200, **query: str) -> str:
    found = browser.get("/why", params=query, follow_redirects=True)
    assert found.status_code == status, text(found.text)
    return found.text


def hourly(db: Db) -> datetime:
    """An hourly job since yesterday; return the last full hour."""
    rows.job(db, schedule="0 * * * *")
    now = rows.now(db)
    planned(db, now - 24 * HOUR, now)
    return now.replace(minute=0, second=0, microsecond=0)


def test_why_an_execution_failed(browser: TestClient, db: Db) -> None:
    at = hourly(db)
    id = rows.execution(
        db, "FAILED", plan_time=at, due_at=at, error_msg="see execution 9 <b>\nand revision 1"
    )["id"]
    # The day of the job leads to the page.
    assert 'href="/why/job/20' in browser.get("/job/job").text
    shown = page(browser, job="job", time=at.isoformat())
    answer = panel(shown, "answer-1")
    assert f"is execution {id} (the schedule, revision 1 ): attempt 1 of 3" in answer
    assert "see execution 9 <b>" in answer
    assert f'<a href="/execution/{id}">execution {id}</a>' in shown
    assert '<a href="/job/job?before=2#revisions">revision 1</a>' in shown
    assert "id=9" not in shown and "<b>" not in shown
    assert "/ledger?job=job" in shown and "/job/job" in shown


def test_the_address_for_a_ticket_has_the_date_of_a_time_of_day(
    browser: TestClient, db: Db
) -> None:
    at = hourly(db)
    for time in (f"{at:%H:%M}", f"{at:%H:%M:%S}"):
        address = f"/why/job/{at:%Y-%m-%d}T{time}Z"
        assert f'href="{address}"' in page(browser, job="job", time=time)
        assert f'href="{address}"' in browser.get(address).text


def test_the_times_of_the_paragraph_are_in_the_zone_of_the_page(
    browser: TestClient, db: Db
) -> None:
    at = hourly(db)
    db.execute("UPDATE cronledger.jobs SET timezone = 'Asia/Kolkata'")
    errors = ("execution 1 of 2026-01-01T00:00:00Z", "2026-01-01 00:00:00 UTC")
    before = {
        "attempt": 1, "runner_id": "r0", "started_at": at.isoformat(), "error_code": "boom",
        "error_msg": errors[1],
    }  # fmt: skip
    by = "2026-01-02T00:00:00Z"
    rows.execution(
        db, "FAILED", plan_time=at, due_at=at, attempts=Jsonb([before]), error_msg=errors[0],
        trigger="manual", requested_by=by, id=1,
    )  # fmt: skip
    for chosen, zone in (("", "Asia/Kolkata"), ("Asia/Tokyo", "Asia/Tokyo")):
        browser.cookies.set("cronledger_times", chosen)
        answer = panel(page(browser, job="job", time=at.isoformat()), "answer-1")
        there = f"{at.astimezone(ZoneInfo(zone)):%H:%M:%S %Z}"
        assert f"{there} is execution" in answer
        # With a date, if the day has changed in that zone since.
        assert re.search(rf"on r0, started [\w -]*{re.escape(there)} , ended", answer)
        assert f"(boom: {errors[0]})" in answer and f"boom ({errors[1]})" in answer
        assert set(re.findall(r"[\d-]+T[\d:]+Z", answer)) == {by, errors[0][-20:]}
    browser.cookies.clear()
    rows.job(db, "berlin", timezone="Europe/Berlin")
    shown = text(page(browser, job="berlin", time="2025-10-26T02:30"))
    assert "the second is 2025-10-26 02:30:00 CET" in shown


def test_the_reasons_of_people_in_the_paragraph_stay_as_they_are(
    browser: TestClient, db: Db
) -> None:
    at = hourly(db)
    reason = "until 2026-01-01T00:00:00Z, see execution 1"
    browser.cookies.set("cronledger_times", "Asia/Tokyo")

    def answer(time: datetime) -> str:
        return panel(page(browser, job="job", time=time.isoformat()), "answer-1")

    later = at + 2 * HOUR
    rows.skip(db, at, reason="operator", detail=reason)
    assert f"JST was skipped: an operator skipped it ({reason})." in answer(at)
    db.execute("SELECT cronledger.skip('job', %s, %s, requested_by => 'alice')", [later, reason])
    assert f"JST is in the future: planned skip 1 of alice ({reason}) skips it." in answer(later)
    db.execute("SELECT cronledger.pause('job', %s, requested_by => 'alice')", [reason])
    reached = rows.now(db).replace(microsecond=0) - 2 * HOUR
    due = at - HOUR
    db.execute("DELETE FROM cronledger.executions WHERE plan_time >= %s", [due])
    rows.schedule(
        db, planned_through=reached, parked="paused", next_due_at=None, next_plan_time=due
    )
    there = f"{reached.astimezone(ZoneInfo('Asia/Tokyo')):%H:%M:%S} JST"
    assert re.search(
        rf"has reached [\w -]*{there} \. paused: paused by alice: {re.escape(reason)}\.",
        answer(due),
    )


def test_a_question_that_cannot_be_answered_says_why(browser: TestClient, db: Db) -> None:
    assert "A time without an offset is read in the job" in text(page(browser))
    hourly(db)
    assert "has never existed" in text(page(browser, 400, job="none", time="03:00"))
    assert "is not a time; write it like" in text(page(browser, 400, job="job", time="noon"))
    assert "has no scope other" in text(page(browser, 400, job="job", time="03:00", scope="other"))
    rows.job(db, "berlin", timezone="Europe/Berlin")
    shown = text(page(browser, job="berlin", time="2026-10-25T02:30"))
    assert "2026-10-25 02:30 occurred twice in Europe/Berlin" in shown
