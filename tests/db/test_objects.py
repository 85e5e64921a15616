"""The record of what the migrations of the ledger have created."""

from psycopg.conninfo import make_conninfo

from cronledger.ledger.migrate import check
from tests.db.support.rows import Db, value

OBJECTS = ("table jobs", "table executions", "column jobs.name", "column job_status.job_name",
           "index executions.uq_execution", "index schedules.schedules_due",
           "trigger undated.date_at_commit", "type locked_schedule", "sequence execution_id",
           "view job_status", "function db_now()", "function job_definition(jobs)",
           "function finish(bigint, uuid, jsonb)")  # fmt: skip


def test_the_record_has_each_kind_of_object_and_no_partition(db: Db, database_url: str) -> None:
    found = db.execute(
        "SELECT o.object FROM cronledger.schema_migrations, unnest(objects) o(object)"
    ).fetchall()
    recorded = [row["object"] for row in found]
    assert len(recorded) == len(set(recorded))
    assert set(OBJECTS) - set(recorded) == set()
    partition = value(db, "SELECT name FROM cronledger.partitions() LIMIT 1")
    assert [name for name in recorded if partition in name] == []
    state = check(database_url)
    assert (state.lost, state.damaged) == ((), ())


def test_the_names_do_not_depend_on_settings(database_url: str) -> None:
    for setting in ("search_path=cronledger", "search_path=public", "quote_all_identifiers=on"):
        state = check(make_conninfo(database_url, options=f"-c{setting}"))
        assert (state.lost, state.damaged) == ((), ()), setting
