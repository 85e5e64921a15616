"""docs/operations.md: a viewer may run every query that it names for alerts."""

import re
from pathlib import Path

import pytest

from cronledger.ledger import migrate
from tests.db.support.rows import connected, execution, job
from tests.marks import first_fast

DOC = Path(__file__).parents[2] / "docs" / "operations.md"


def alerts() -> dict[str, str]:
    """The queries of the table of alerts, by what each is about."""
    section = DOC.read_text("utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    table = section.partition("\n\n`overdue.reason`")[0]
    rows = re.findall(r"^\| ([^|]+) \| `(SELECT [^`]+)`", table, re.MULTILINE)
    assert len(rows) == len([line for line in table.splitlines() if line.startswith("|")]) - 2
    return dict(rows)


@pytest.mark.parametrize("alert", first_fast(alerts()))
def test_a_viewer_runs_the_query_of_an_alert(database_url: str, alert: str) -> None:
    with connected(database_url) as db:
        job(db)
        execution(db, "FAILED")
        db.execute("SET ROLE cronledger_viewer")
        db.execute(alerts()[alert].encode())


PLAN_TIMES = "0019_pre_plan_times"
LOST = "0028_pre_lost_attempts"


def beforehand(migration: str) -> str:
    """The statements that build the indexes of a migration."""
    section = DOC.read_text("utf-8").partition("\n## Indexes that a migration builds\n")[2]
    return section.partition(f"`{migration}`:")[2].partition("```sql\n")[2].partition("```")[0]


def test_migrate_takes_over_indexes_that_were_built_beforehand(database_url: str) -> None:
    partitioned, _, skips = beforehand(PLAN_TIMES).partition("\\gexec")
    with connected(database_url) as db:
        job(db)
        execution(db, "SUCCESS")
        db.execute(
            "DROP INDEX cronledger.executions_plan_time, cronledger.skips_plan_time,"
            " cronledger.rolled_up_hours_job"
        )
        db.execute(
            "DELETE FROM cronledger.schema_migrations WHERE name = ANY (%s)",
            [[PLAN_TIMES, migrate.REPEATED]],
        )
        for row in db.execute(partitioned.encode()).fetchall():
            db.execute(row["format"].encode())
        db.execute(skips.encode())
        built = (
            "SELECT count(*) AS count FROM pg_class"
            " WHERE relname ~ '^(executions|skips).*_plan_time$'"
        )
        before = db.execute(built.encode()).fetchall()
        migrate.migrate(database_url)
        made = db.execute(
            "SELECT count(*) AS count, bool_and(x.indisvalid) AS valid FROM pg_inherits i"
            " JOIN pg_index x ON x.indexrelid = i.inhrelid JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'cronledger.executions_plan_time'::regclass"
            " AND c.relname ~ '_plan_time$'"
        ).fetchall()
        after = db.execute(built.encode()).fetchall()
    assert made == [{"count": before[0]["count"] - 1, "valid": True}]  # one is that of skips
    assert after[0]["count"] == before[0]["count"] + 1  # only the parent of the partitions' is new


def test_f69_migrate_takes_over_the_index_of_lost_attempts(database_url: str) -> None:
    with connected(database_url) as db:
        job(db)
        execution(db, "SUCCESS")
        db.execute("DROP INDEX cronledger.executions_lost")
        db.execute(
            "DELETE FROM cronledger.schema_migrations WHERE name = ANY (%s)",
            [[LOST, migrate.REPEATED]],
        )
        for row in db.execute(beforehand(LOST).removesuffix("\\gexec\n").encode()).fetchall():
            db.execute(row["format"].encode())
        built = "SELECT count(*) AS count FROM pg_class WHERE relname ~ '^executions_p.*_lost$'"
        before = db.execute(built.encode()).fetchall()
        migrate.migrate(database_url)
        made = db.execute(
            "SELECT count(*) AS count, bool_and(x.indisvalid) AS valid FROM pg_inherits i"
            " JOIN pg_index x ON x.indexrelid = i.inhrelid JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'cronledger.executions_lost'::regclass AND c.relname ~ '_lost$'"
        ).fetchall()
    assert before[0]["count"] > 0
    assert made == [{"count": before[0]["count"], "valid": True}]
