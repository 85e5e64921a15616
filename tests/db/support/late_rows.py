"""Ledgers whose statistics are from before their rows came: a new installation, a new week."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.bench import dataset
from tests.waiting import until

Connection = psycopg.Connection[Any]

_AUTOVACUUM = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'autovacuum worker'
"""
# Not the partitions ahead or of this hour: autovacuum analyzes no table that stays empty.
_TABLES = """
SELECT 'cronledger.' || c.relname FROM pg_class c
WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind = 'r' AND NOT c.relispartition
UNION ALL
(SELECT 'cronledger.' || p.name FROM cronledger.partitions() p
 WHERE p.from_plan_time < cronledger.db_now() - interval '1 h' ORDER BY p.from_plan_time)
"""


@contextmanager
def rows_come_later(
    c: Connection, state: str, fill: Callable[[Connection], object]
) -> Iterator[str]:
    """Yield the names of the tables that `fill` fills at the end of the block.

    `state` repaired: somebody analyzes the whole database before it, and maintenance repairs that.
    new_week_repaired: so, and only the newest partition is empty at first.
    """
    dataset.create_partitions(c)
    tables = without_autovacuum(c)
    new_week, all_tables = tables[-1], ", ".join(tables)
    if state == "new_week_repaired":
        fill(c)
        c.execute(f"CREATE TEMP TABLE later AS SELECT * FROM {new_week}".encode())
        c.execute(f"TRUNCATE {new_week}".encode())
    if state.endswith("repaired"):
        c.execute(f"VACUUM (ANALYZE) {all_tables}".encode())
        c.execute("SELECT FROM cronledger.maintain_partitions()")
    yield all_tables
    if state == "new_week_repaired":
        c.execute(f"INSERT INTO {new_week} SELECT * FROM later".encode())
    else:
        fill(c)


def without_autovacuum(c: Connection) -> list[str]:
    """Let only the test vacuum and analyze the tables that it fills, which are returned."""
    tables = [name for (name,) in c.execute(_TABLES).fetchall()]
    for table in tables:
        c.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
    until("autovacuum is done", lambda: not c.execute(_AUTOVACUUM).fetchall())
    return tables
