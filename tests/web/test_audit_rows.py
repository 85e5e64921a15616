"""The page's actions, and what the ledger refuses it, in the audit trail."""

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import SAME_ORIGIN


def actions(db: Db) -> list[tuple[str, str, str, str | None]]:
    found = db.execute(
        "SELECT verb, object, outcome, error FROM cronledger.audit"
        " WHERE verb NOT IN ('add', 'edit') ORDER BY id"
    ).fetchall()
    return [(row["verb"], row["object"], row["outcome"], row["error"]) for row in found]


def test_f63_the_page_records_actions_and_refusals(browser: TestClient, db: Db) -> None:
    rows.job(db)
    number = str(rows.execution(db, "RUNNING")["id"])
    for execution in (number, "42"):
        browser.post("/execution/cancel", data={"id": execution}, headers=SAME_ORIGIN)
    assert actions(db) == [
        ("cancel", number, "requested", None),
        ("cancel", "42", "refused", "execution 42 does not exist"),
    ]
    people = db.execute("SELECT DISTINCT requested_by FROM cronledger.audit WHERE verb = 'cancel'")
    assert len(people.fetchall()) == 1


def test_f63_a_refused_action_on_several_jobs_is_one_row_for_each(
    browser: TestClient, db: Db
) -> None:
    for name in ("a", "b"):
        rows.job(db, name)
    chosen = {"job": ["a", "b"], "confirmed": "yes", "reason": "moving", "until": "2020-01-01"}
    browser.post("/jobs/pause", data=chosen, headers=SAME_ORIGIN)
    assert [row[:3] for row in actions(db)] == [
        ("pause", "a", "refused"), ("pause", "b", "refused"),
    ]  # fmt: skip
