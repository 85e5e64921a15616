"""Gates on the page: what a job requires, what an execution waits for, and its cancel."""

from datetime import timedelta

from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import panel, text


def test_the_page_of_a_job_links_what_it_requires(browser: TestClient, db: Db) -> None:
    rows.job(db, "extract", schedule="0 3 * * *")
    rows.job(db, "load", schedule=None, after=Jsonb([{"job": "extract"}]))
    page = browser.get("/job/load").text
    assert "0 3 * * *" in text(page)
    assert "after extract" in text(page)
    assert 'href="/job/extract"' in page


def test_an_execution_names_what_it_waits_for_and_can_be_cancelled(
    browser: TestClient, db: Db
) -> None:
    rows.job(db)
    at = rows.now(db).replace(minute=0, second=0, microsecond=0)
    row = rows.execution(
        db, "PENDING", plan_time=at, due_at=at, gated_at=at, next_attempt_at=None,
        waits_until=at + timedelta(hours=2),
    )  # fmt: skip
    rows.insert(
        db, "gates", job_name="job", scope_kind="global", scope_id="global", plan_time=at,
        upstream_job="extract", upstream_kind="global", upstream_id="global",
        missing="extract <03:00>",
    )  # fmt: skip
    page = browser.get(f"/execution/{row['id']}").text
    shown = panel(page, "execution")
    assert "Waits for extract <03:00>" in shown
    assert "Waits until" in shown
    assert "Cancel" in text(page)
