"""docs/operations.md: a viewer may run every query that it names for alerts."""

import re
from pathlib import Path

from tests.db.support.rows import connected, execution, job

DOC = Path(__file__).parents[2] / "docs" / "operations.md"


def alerts() -> dict[str, str]:
    """The queries of the table of alerts, by what each is about."""
    section = DOC.read_text("utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    table = section.partition("\n\n`overdue.reason`")[0]
    rows = re.findall(r"^\| ([^|]+) \| `(SELECT [^`]+)`", table, re.MULTILINE)
    assert len(rows) == len([line for line in table.splitlines() if line.startswith("|")]) - 2
    return dict(rows)


def test_a_viewer_runs_the_query_of_each_alert(database_url: str) -> None:
    with connected(database_url) as db:
        job(db)
        execution(db, "FAILED")
        db.execute("SET ROLE cronledger_viewer")
        for query in alerts().values():
            db.execute(query.encode())
