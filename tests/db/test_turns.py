"""The turns of steps: one process at a time runs a step, and only a runner can take its turn."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from psycopg import errors

import cronledger
from cronledger.ledger.migrate import check, directory, migrate, migrations
from tests.db.support.rows import Db, value

STEPS = ("alerts", "channels", "deadlines", "edits", "hosts", "hours", "partitions")
LOCK = "SELECT FROM cronledger.turns FOR NO KEY UPDATE NOWAIT"
TAKE = "SELECT cronledger_internal.take_turn('alerts')"
OTHERS = ("cronledger_viewer", "cronledger_operator", "pg_monitor")


def test_no_statement_takes_an_advisory_lock_because_any_login_may_take_it() -> None:
    sources = [*directory().rglob("*.sql"), *Path(cronledger.__file__).parent.rglob("*.sql")]
    sources += Path(cronledger.__file__).parent.rglob("*.py")
    assert len(sources) > 500
    pattern = re.compile(r"pg_(try_)?advisory")
    assert [path.name for path in sources if pattern.search(path.read_text())] == []


def test_only_the_role_of_runners_can_take_a_turn(db: Db) -> None:
    assert {row["step"] for row in db.execute("SELECT step FROM cronledger.turns")} == {*STEPS}
    for role, statement in product(OTHERS, (LOCK, TAKE)):
        with db.transaction(force_rollback=True):
            db.execute(f"SET LOCAL ROLE {role}")
            with pytest.raises(errors.InsufficientPrivilege):
                db.execute(statement)
    with db.transaction(force_rollback=True):
        db.execute("SET LOCAL ROLE cronledger_runner")
        assert value(db, TAKE)


def test_a_step_whose_turn_is_taken_does_nothing_and_does_not_wait(db: Db, other: Db) -> None:
    db.execute("UPDATE cronledger.alert_progress SET watching = true")
    runs = {
        "alerts": "SELECT count(cronledger_internal.raise_alerts(10))",
        "deadlines": "SELECT count(*) FROM cronledger_internal.lock_deadlines(10)",
        "hours": "SELECT count(cronledger_internal.mark_changed_hours('0', 10))",
        "partitions": "SELECT count(*) FROM cronledger.maintain_partitions(ahead => '60 days')",
    }
    taken = "SELECT taken_at FROM cronledger.turns WHERE step = %s"
    for step, statement in runs.items():
        before = value(db, taken, step)
        with other.transaction():
            other.execute(LOCK)
            assert value(db, statement) == 0
        assert value(db, taken, step) == before
        assert value(db, statement) > 0 or step == "hours"
        assert value(db, taken, step) > before


@pytest.mark.long
def test_processes_that_migrate_an_empty_database_at_once_apply_each_script_once(
    empty_database_url: str,
) -> None:
    with ThreadPoolExecutor(2) as pool:
        applied = [
            name
            for names in pool.map(lambda _: migrate(empty_database_url), range(2))
            for name in names
        ]
    scripts = [name for name in applied if not name.startswith(("GRANT", "REVOKE", "CREATE"))]
    assert sorted(scripts) == sorted(migration.name for migration in migrations())
    assert not check(empty_database_url).pending
