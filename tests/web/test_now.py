"""The page Now: what needs a person, what is held, what runs, and what comes next."""

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from cronledger.web import glance
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import expire, links, panel, text

HOUR, WEEK = timedelta(hours=1), timedelta(days=7)


@pytest.mark.long
def test_a_ledger_without_replica_or_jobs_states_how_to_begin(browser: TestClient, db: Db) -> None:
    page = browser.get("/").text
    assert "No replica runs, so nothing starts." in panel(page, "runners")
    assert 'class="calm"' not in page
    rows.runner(db)
    expire(browser)
    page = browser.get("/").text
    assert "cronledger check cronledger.toml" in panel(page, "begin")
    assert 'class="calm"' not in page
    assert "The page Now shows how to begin." in panel(browser.get("/jobs").text, "jobs")
    rows.job(db, schedule=None)
    expire(browser)
    page = browser.get("/").text
    assert 'id="begin"' not in page and 'class="calm"' in page


def test_an_empty_page_is_the_good_state(browser: TestClient, db: Db) -> None:
    rows.job(db, schedule=None)
    rows.runner(db, "replica-1")
    response = browser.get("/")
    assert response.status_code == 200
    assert panel(response.text, "attention") == (
        "Needs attention No job needs attention."
        " The history has not been checked yet: run cronledger verify daily. Checks"
    )
    assert panel(response.text, "held").endswith("none waits for a limit or for another job.")
    assert "0 failing 0 overdue 0 with alerts 0 running 0 paused" in text(response.text)
    assert panel(response.text, "running") == "Running Nothing is running."
    assert panel(response.text, "next") == "Next hour Nothing is due within an hour."
    assert "replica-1 alive 0 10" in panel(response.text, "runners")
    calm = (
        "Nothing is overdue, nothing is failing, no alert is open,"
        " no deadline was missed within a day, no promise is known to be broken."
    )
    assert calm in text(response.text)


@pytest.mark.long
def test_now_shows_what_needs_a_person(browser: TestClient, db: Db) -> None:
    rows.runner(db)
    rows.job(db, "report", timezone="Europe/Berlin")
    rows.job(db, "stuck", queue="nowhere")
    at = rows.now(db)
    for hours in (3, 2, 1):
        rows.execution(db, "FAILED", "report", plan_time=at - timedelta(hours=hours))
    rows.execution(db, "SUCCESS", "report", plan_time=at - timedelta(hours=4))
    rows.job(db, "again")  # it succeeded after a failure
    rows.execution(db, "FAILED", "again", plan_time=at - HOUR)
    rows.execution(db, "SUCCESS", "again", plan_time=at - timedelta(minutes=30))
    rows.execution(db, "RUNNING", "stuck", attempt=2, plan_time=at - timedelta(minutes=5))
    due = at - timedelta(minutes=2)
    rows.schedule(db, "stuck", parked="no_runner", next_due_at=None, next_plan_time=due)
    for name in ("never", "missed"):
        rows.job(db, name)
        db.execute("UPDATE cronledger.jobs SET spec_error = 'no such zone' WHERE name = %s", [name])
    rows.schedule(db, "missed", parked="spec_error", next_due_at=None, next_plan_time=due)
    rows.job(db, "lost", handler="python", allow_stale_reentry=True)
    ended = at - timedelta(minutes=1)
    lost = rows.execution(db, "RUNNING", "lost", plan_time=at, stale_after=ended)["id"]
    page = browser.get("/").text
    shown = panel(page, "attention")
    assert re.search(r"stuck overdue: no runner .* no live runner has queue nowhere", shown)
    assert re.search(r"lost overdue: lease expired .* 1 min its lease ended at", shown)
    assert re.search(r"report failed 3 times in a row .* (2 h 5\d min|3 h) boom: it broke", shown)
    assert "again" not in shown
    assert re.search(r"missed overdue: spec error .* 2 min no such zone", shown)
    assert re.search(r"never broken no such zone Job", shown)  # nothing of it is due
    assert "1 failing 3 overdue 0 with alerts 2 running 0 paused" in text(page)
    assert f"/execution/{lost}" in links(page, "running")
    assert "stuck" in panel(page, "running") and "r1 2 of 3" in panel(page, "running")
    selected = panel(browser.get("/?only=overdue").text, "attention")
    assert "stuck" in selected and "report" not in selected
    refused = browser.get("/?only=late")
    assert (refused.status_code, "only is one of failing" in refused.text) == (400, True)
    assert 'class="calm"' not in page


@pytest.mark.long
def test_a_failure_is_shown_whatever_its_age_and_however_many_another_job_has(
    browser: TestClient, db: Db
) -> None:
    at = rows.now(db)
    for name, ago in (("monthly", timedelta(days=8)), ("daily", timedelta(hours=12))):
        rows.job(db, name)
        rows.execution(db, "FAILED", name, plan_time=at - ago)
    rows.job(db, "busy")
    rows.copies(db, rows.execution(db, "FAILED", "busy"), 501)  # minutes
    failing = panel(browser.get("/").text, "attention")
    for name in ("monthly", "daily", "busy"):
        assert name in failing


@pytest.mark.long
def test_with_more_scopes_than_it_looks_at_the_page_says_so(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "MOST_SCOPES", 2)
    rows.runner(db)
    for name in ("a", "b"):
        rows.job(db, name)
    rows.schedule(db, next_due_at=rows.now(db) + HOUR)
    assert 'class="calm"' in browser.get("/").text
    for name in ("c", "d"):
        rows.job(db, name)
    monkeypatch.setattr(glance, "MOST_SCOPES", 3)  # another panel, which is read at once
    page = browser.get("/").text
    assert "The list has the failures of the first 3 scopes" in panel(page, "attention")
    assert 'class="calm"' not in page


def test_the_causes_have_their_times_in_the_zone_of_the_page(browser: TestClient, db: Db) -> None:
    """Except those that people and handlers wrote."""
    written = "2026-01-01T00:00:00Z, 2026-01-01 00:00:00 UTC"
    for name in ("lost", "held", "bad", "broken"):
        rows.job(db, name, timezone="Asia/Kolkata", allow_stale_reentry=True)
    db.execute("UPDATE cronledger.jobs SET spec_error = %s WHERE name = 'broken'", [written])
    ended = rows.now(db).replace(microsecond=0) - timedelta(minutes=9)
    for name in ("lost", "held"):
        rows.execution(db, "RUNNING", name, plan_time=ended, stale_after=ended)
    db.execute("SELECT cronledger.pause('held', %s, requested_by => 'alice')", [written])
    rows.execution(db, "FAILED", "bad", plan_time=ended, error_msg=written)
    for chosen, zone in (("", "Asia/Kolkata"), ("Asia/Tokyo", "Asia/Tokyo")):
        browser.cookies.set("cronledger_times", chosen)
        page = browser.get("/").text
        there = rf"its lease ended at [\w -]*{ended.astimezone(ZoneInfo(zone)):%H:%M:%S %Z} \("
        shown, held = panel(page, "attention"), panel(page, "held")
        assert re.search(rf"lost overdue: lease expired .*{there}", shown)
        assert re.search(rf'title="{there}', page)
        assert f"boom: {written}" in shown and f"broken {written}" in shown
        assert re.search(rf"{there}attempt 1 on r1\); paused by alice: {written}", held)


@pytest.mark.long
def test_a_panel_is_bounded_and_states_that_there_is_more(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "MOST", 3)
    rows.job(db, "many", overlap="allow")
    at = rows.now(db)
    for number in range(5):
        rows.execution(db, "RUNNING", "many", plan_time=at - timedelta(seconds=number))
    page = browser.get("/").text
    assert panel(page, "running").startswith("Running 3+")
    assert panel(page, "running").endswith("There are more than 3; these are the first.")
    assert panel(page, "running").count("many") == 3


def test_text_of_others_is_escaped(browser: TestClient, db: Db) -> None:
    rows.job(db, "<script>alert(1)</script>")
    rows.execution(
        db, "FAILED", "<script>alert(1)</script>", error_msg="\x1b[31m\u202ereversed <b>"
    )
    page = browser.get("/").text
    assert "<script>alert" not in page and "<b>" not in page
    assert "\\x1b[31m\\u202ereversed" in page


@pytest.mark.long
def test_violations_of_the_history_stay_until_a_run_has_checked_their_plan_times_again(
    browser: TestClient, db: Db
) -> None:
    rows.runner(db)
    rows.job(db, schedule=None)

    def found(since: timedelta | None = None, outcome: str = "finished", **kinds: int) -> None:
        """A run over all jobs since so long ago; None: all kept history, which is a week."""
        at = rows.now(db)
        rows.verification(
            db, outcome=outcome, violations=sum(kinds.values()), kinds=Jsonb(kinds),
            from_plan_time=None if since is None else at - since,
            checked_after=at - (since or WEEK), checked_through=at,
        )  # fmt: skip

    def history(is_calm: bool = False) -> str:
        expire(browser)
        page = browser.get("/").text
        assert ('class="calm"' in page) is is_calm
        return panel(page, "attention")

    found(missing=2, early=1)
    assert re.search(
        r"No job needs attention\. 3 violations in the history: 1 early, 2 missing\."
        r" Last checked .*, plan times from .* on\.",
        history(),
    )
    found(since=timedelta(days=1))
    assert "3 violations in the history: 1 early, 2 missing. Run 1 found them" in history()
    found(outcome="interrupted", missing=5)
    shown = history()
    assert "5 violations in the history: 5 missing. Run 3 found them" in shown
    assert "no later run has checked these plan times again." in shown
    for since in (timedelta(days=8), None):
        found(since=WEEK, missing=2)
        found(since=since)
        assert re.search(
            r"No violation in the history that was checked\. Last checked .*, plan times from",
            history(is_calm=True),
        )


@pytest.mark.long
def test_a_job_has_one_row_whatever_number_of_its_scopes_is_in_trouble(
    browser: TestClient, db: Db
) -> None:
    rows.runner(db)
    at = rows.now(db)
    scopes = [f"s{number:02}" for number in range(12)]
    rows.job(db, "shards", scope_kind="shard", scopes=scopes, owner="data")
    rows.schedule(db, next_due_at=at + HOUR)
    for number, scope in enumerate(scopes):
        rows.execution(
            db, "FAILED" if number % 6 == 0 else "SUCCESS", "shards", scope_kind="shard",
            scope_id=scope, plan_time=at - timedelta(minutes=number + 1),
        )  # fmt: skip
    shown = panel(browser.get("/").text, "attention")
    assert re.match(r"Needs attention 1 .*shards failed 2 of 12 scopes .* data Failures", shown)
    assert shown.count("shards") == 1


@pytest.mark.long
def test_what_is_held_on_purpose_needs_no_attention(browser: TestClient, db: Db) -> None:
    rows.runner(db)
    at = rows.now(db)
    due = at - timedelta(minutes=2)
    for name, parked in (("frozen", "paused"), ("limited", "limit")):
        rows.job(db, name)
        rows.schedule(db, name, parked=parked, next_due_at=None, next_plan_time=due)
    db.execute("SELECT cronledger.pause('frozen', reason => 'year-end freeze')")
    page = browser.get("/").text
    assert "No job needs attention." in panel(page, "attention")
    held = panel(page, "held")
    assert re.match(r"Held on purpose 2 .*frozen paused .* year-end freeze", held)
    assert re.search(r"limited limit ", held)
    assert "1 paused" in text(page)


def test_a_running_execution_shows_its_progress_and_usual_duration_F87(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "report")
    at = rows.now(db) - timedelta(minutes=10)
    row = rows.execution(db, "RUNNING", "report", plan_time=at)
    db.execute(
        "SELECT cronledger.progress(%s, %s, 50, 100, '<b>pages')", [row["id"], row["lease_token"]]
    )
    rows.execution(db, "SUCCESS", "report", plan_time=at - HOUR, duration_ms=60_000)
    for path, name in (
        ("/", "running"), (f"/execution/{row['id']}", "execution"),
        ("/job/report", "newest"),
    ):  # fmt: skip
        shown = panel(browser.get(path).text, name)
        assert "50 of 100 (50 %): &lt;b&gt;pages" in shown or "50 of 100 (50 %): <b>pages" in shown
        assert "ends about" in shown
        assert "usually 1m, 95 % within 1m" in shown
        assert "takes longer" in shown


def test_the_runbook_of_a_job_is_on_its_page_and_beside_its_trouble(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "report", runbook="https://wiki.example.org/?a=1&b=2")
    rows.execution(db, "FAILED", "report")
    link = '<a href="https://wiki.example.org/?a=1&amp;b=2" rel="noopener noreferrer">'
    assert link + "Runbook</a>" in browser.get("/").text
    assert f"Runbook: {link}" in browser.get("/job/report").text
