"""The worker's database is as fresh as a clone for each test, whatever an earlier test has done."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg import sql

from cronledger.ledger.time_travel import Travel
from tests.database import Databases
from tests.db.support import rows
from tests.db.support.rows import connected
from tests.kept_database import SESSION, KeptDatabase
from tests.waiting import until

pytestmark = pytest.mark.tools


CHANGES = {
    "a view": "CREATE VIEW cronledger.leftover AS SELECT 1",
    "a replaced function": "CREATE OR REPLACE FUNCTION cronledger_internal.is_valid_zone(text)"
    " RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "row security": "ALTER TABLE cronledger.jobs ENABLE ROW LEVEL SECURITY",
    "a dropped index": "DROP INDEX cronledger.schedules_due",
    "a changed sequence": "ALTER SEQUENCE cronledger.execution_id INCREMENT 2",
    "a large object": "SELECT lo_create(0)",
    "a right on a clock": "GRANT EXECUTE ON FUNCTION cronledger.db_now() TO pg_monitor",
    "a right on the database": "GRANT TEMPORARY ON DATABASE {} TO PUBLIC",
    "a setting of the database": "ALTER DATABASE {} SET work_mem = '64kB'",
    "a setting of a role": "ALTER ROLE CURRENT_USER IN DATABASE {} SET work_mem = '64kB'",
}
"""An example of each kind of catalog: it is compared as a whole."""


def content(databases: Databases, name: str) -> dict[str, Any]:
    """Return all rows of the ledger, except its identity, and the names of its objects."""
    with connected(databases.url(name)) as db:
        relations = db.execute(
            "SELECT c.relname AS name, c.relkind AS kind FROM pg_class c"
            " WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind IN ('r', 'p', 'S')"
            " AND c.relname <> 'identity'"
        ).fetchall()
        found: dict[str, Any] = {
            row["name"]: db.execute(
                sql.SQL("SELECT {} FROM cronledger.{} t").format(
                    sql.SQL("last_value, is_called" if row["kind"] == "S" else "t::text"),
                    sql.Identifier(row["name"]),
                )
            ).fetchall()
            for row in relations
        }
        found["clocks"] = db.execute(
            "SELECT pg_get_functiondef(p.oid), p.proacl FROM pg_proc p"
            " WHERE p.proname IN ('db_now', 'db_clock') ORDER BY p.proname"
        ).fetchall()
        found["statistics"] = db.execute(
            "SELECT c.relname, c.reltuples, c.relpages FROM pg_class c"
            " LEFT JOIN pg_statistic s ON s.starelid = c.oid"
            " WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384 ORDER BY c.relname"
        ).fetchall()
        found["ledger"] = rows.one(db.execute("SELECT ledger_id FROM cronledger.identity"))
    return found


def test_rows_ids_tables_statistics_and_the_clock_are_those_of_a_clone(
    databases: Databases,
) -> None:
    clone = databases.create(databases.template())
    fresh = content(databases, clone)
    databases.drop(clone)
    with databases.lend() as first:
        with connected(databases.url(first)) as db:
            rows.job(db, "job")
            rows.execution(db, "SUCCESS")
            done = db.execute("SELECT * FROM cronledger.maintain_partitions()").fetchall()
            assert "analyzed" in [row["action"] for row in done]
            travel = Travel(databases.url(first))
            travel.travel(by=timedelta(days=40))
            travel.close()
            rows.execution(db, "SUCCESS")  # its partition is a new one
            db.execute("SELECT cronledger.trigger('job')")
            db.execute("DELETE FROM cronledger.turns")
            db.execute("UPDATE cronledger.alert_progress SET watching = true")
            db.execute(
                "INSERT INTO cronledger.queues (name)"
                " SELECT 'q' || n FROM generate_series(1, 5000) n"
            )
            db.execute("CREATE TABLE cronledger.leftover AS SELECT 1 AS one")
            db.execute("CREATE TABLE public.leftover ()")
        used = content(databases, first)
        # A database with a session that is slow to end is replaced instead of restored.
        left = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name <> %s"
        until("the sessions have ended", lambda: databases._value(left, first, SESSION) == 0)
    with databases.lend() as second, connected(databases.url(second)) as db:
        size = rows.value(db, "SELECT pg_relation_size('cronledger.queues')")
        counted = rows.value(
            db,
            "SELECT sum(n_dead_tup + n_mod_since_analyze) FROM pg_stat_all_tables"
            " WHERE schemaname = 'cronledger'",
        )
        again = content(databases, second)
    assert (second, size, counted) == (first, 0, 0)
    assert used["ledger"] != again.pop("ledger") != fresh.pop("ledger")
    assert again == fresh
    assert used.keys() > fresh.keys()


def test_any_other_difference_is_detected(databases: Databases) -> None:
    name = databases.clone(databases.template())
    kept = KeptDatabase(databases.url(name))
    for what, change in CHANGES.items():
        with kept._connection.transaction(force_rollback=True):
            for statement in change.split("; "):
                kept._execute(sql.SQL(statement).format(sql.Identifier(name)))
            assert kept.restore() is not None, what
    assert kept.restore() is None
    kept.close()
    databases.drop(name)
