"""New names that people cannot tell from others are refused, wherever they enter the ledger."""

from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import errors

from cronledger.rules.names import problem_of
from tests.db.support.rows import Db, insert, value

BAD = ("a ", " a", "\u00a0a", "a\u2003", "a\tb", "a\x1b", "a\x85b", " ")
INSERT = "INSERT INTO cronledger.jobs (name, handler, queue, scope_kind, scopes)"
ENTRIES = {
    "a job": INSERT + " VALUES (%s, 'external', 'q', 'global', NULL)",
    "a queue of a job": INSERT + " VALUES ('j', 'external', %s, 'global', NULL)",
    "a kind of scope": INSERT + " VALUES ('j', 'external', 'q', %s, NULL)",
    "scopes": INSERT + " VALUES ('j', 'external', 'q', 'k', ARRAY[%s])",
    "enqueue": "SELECT cronledger.enqueue('open', %s)",
    "enqueue_many": "SELECT cronledger.enqueue_many('open', scope_ids => ARRAY['x', %s])",
    "claim": "SELECT * FROM cronledger.claim('open', 'worker', %s)",
    "set_scopes": "SELECT * FROM cronledger_internal.set_scopes('open', 'k', ARRAY[%s])",
    "a schedule": "INSERT INTO cronledger.schedules (job_name, scope_kind, scope_id, queue,"
    " planned_through, planned_revision, next_due_at)"
    " VALUES ('open', 'k', %s, 'q', now(), 1, now())",
    "a queue": "INSERT INTO cronledger.queues (name) VALUES (%s)",
}


def test_a_questionable_name_is_refused_at_every_entry(db: Db) -> None:
    db.execute(  # its scopes appear when they are named
        "INSERT INTO cronledger.jobs (name, handler, scope_kind) VALUES ('open', 'external', 'k')"
    )
    for (entry, statement), name in product(ENTRIES.items(), BAD):
        with pytest.raises(psycopg.DatabaseError) as refused:
            db.execute(statement.encode(), [name])
        assert isinstance(refused.value, errors.InvalidParameterValue), (entry, name, refused.value)
    for name in BAD:
        with pytest.raises(errors.NoDataFound, match="has no scope"):
            db.execute("SELECT cronledger.trigger('open', 'k', %s)", [name])
    assert value(db, "SELECT count(*) FROM cronledger.jobs") == 1
    assert value(db, "SELECT count(*) FROM cronledger.schedules") == 0


def test_python_and_sql_refuse_the_same_names(db: Db) -> None:
    names = [f(chr(code)) for code in (*range(1, 0x3100), 0xFEFF, 0x1F600)
             for f in ("{}a".format, "a{}".format, "a{}b".format)]  # fmt: skip
    found = db.execute(
        "SELECT u.name, cronledger_internal.name_problem(u.name) AS problem"
        " FROM unnest(%s::text[]) u(name)",
        [names],
    ).fetchall()
    assert [row for row in found if row["problem"] != problem_of(row["name"])] == []


def questionable(db: Db, name: str, **columns: Any) -> None:
    """A job that is older than the rule."""
    db.execute("ALTER TABLE cronledger.jobs DISABLE TRIGGER check_values")
    db.execute("ALTER TABLE cronledger.schedules DISABLE TRIGGER check_new_name")
    insert(db, "jobs", name=name, handler="external", **columns)
    db.execute("ALTER TABLE cronledger.jobs ENABLE TRIGGER check_values")
    db.execute("ALTER TABLE cronledger.schedules ENABLE TRIGGER check_new_name")
