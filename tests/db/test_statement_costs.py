"""What each statement, function and view reads, beside what it reads in an analyzed ledger.

`test_query_plans` measures the statements of claims, finishes, heartbeats and sweeps.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor

import cronledger
from cronledger.ledger.session_settings import set_expressions
from tests.bench import dataset, plans
from tests.database import Databases
from tests.db.support.every_statement import LEFT_OUT, MORE, Case, cases
from tests.db.support.late_rows import rows_come_later, without_autovacuum

pytestmark = pytest.mark.own_database  # plans depend on sizes and statistics

SIZE = dataset.Size(400, 8_000, 30_000, 1_000, 8_000, 1_000, 400)
RUNNING = 10_000
Connection = psycopg.Connection[Any]
Blocks = dict[str, float]


def _fill(c: Connection) -> None:
    dataset.fill(c, SIZE, analyzed=False)
    for statement in MORE:
        c.execute(statement)


class Session:
    """A session of a program: it keeps the plans of what it has sent."""

    def __init__(self, c: Connection) -> None:
        self.cursor = ClientCursor(c)
        self._prepared: set[str] = set()

    def read(self, *, views: bool = True) -> Blocks:
        """Return how many blocks each case reads; infinity: it took longer than a minute.

        It is the lesser number of two runs: a session that is behind with the invalidations of a
        busy server reads the catalog once more. Changes nothing. Raises psycopg.Error for a case
        that the ledger refuses.
        """
        found = cases(self.cursor.connection, views=views)
        return {case.name: min(self.blocks(case) for _ in range(2)) for case in found}

    def read_early(self) -> None:
        """Plan each case on a ledger that lacks most rows, and so may refuse some."""
        for case in cases(self.cursor.connection, views=False):
            try:
                self.blocks(case)
            except psycopg.Error as error:
                assert error.sqlstate is not None, error

    def blocks(self, case: Case) -> float:
        cursor = self.cursor
        try:
            with cursor.connection.transaction(force_rollback=True):
                settings = {**case.settings, "statement_timeout": "60s"}
                cursor.execute(f"SELECT {set_expressions(settings, local=True)}".encode())
                run = self._run(case)
                cursor.execute(b"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) " + run)
                plan = cursor.fetchall()[0][0][0]["Plan"]
        except psycopg.errors.QueryCanceled:
            return inf
        return float(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def _run(self, case: Case) -> bytes:
        """Return the statement with its parameters, or the execution of its plan for all."""
        statement = case.statement
        if case.settings.get("plan_cache_mode") != "force_generic_plan":
            return self.cursor.mogrify(statement.text, statement.params or None).encode()
        name = case.name.replace("/", "_")
        if name not in self._prepared:
            plans.prepare(self.cursor, name, statement)
            self._prepared.add(name)
        return plans.execution(self.cursor, name, statement).encode()


@pytest.mark.slow
def test_no_statement_reads_the_ledger_again_for_each_row(databases: Databases) -> None:
    """As it would if its plan rested on statistics from before the rows came, and was kept from
    then, or made after they came."""
    usual, size = _usual(databases)
    # Without statistics a plan may read the whole ledger, and the RUNNING executions in each of a
    # few joins.
    most = {name: 2 * blocks + size + 4 * RUNNING for name, blocks in usual.items()}
    faults = {
        (name, *found): blocks
        for state in ("repaired", "new_week_repaired")
        for found, costs in _late(databases, state).items()
        for name, blocks in costs.items()
        if blocks > most[name]
    }
    assert faults == {}


def _usual(databases: Databases) -> tuple[Blocks, float]:
    """Return what each case reads in a ledger that was analyzed, and the blocks of its tables."""
    with _ledger(databases) as (c, _):
        dataset.create_partitions(c)
        without_autovacuum(c)
        _fill(c)
        c.execute("VACUUM ANALYZE")
        ((size,),) = c.execute(
            "SELECT sum(pg_table_size(oid)) / 8192 FROM pg_class"
            " WHERE relnamespace = 'cronledger'::regnamespace AND relkind = 'r'"
        ).fetchall()
        return Session(c).read(), float(size)


def _late(databases: Databases, state: str) -> dict[tuple[str, str], Blocks]:
    """Return what each case reads with its early plan, and with a plan made after the rows came."""
    with _ledger(databases) as (c, program):
        session = Session(program)
        with rows_come_later(c, state, _fill):
            session.read_early()
        kept = session.read()
        program.execute("DISCARD PLANS")
        return {(state, "kept"): kept, (state, "anew"): session.read(views=False)}


@contextmanager
def _ledger(databases: Databases) -> Iterator[tuple[Connection, Connection]]:
    """Yield connections of the test and of a program to an empty ledger."""
    name = databases.create(databases.template())
    url = databases.url(name)
    with (
        psycopg.connect(url, autocommit=True) as c,
        psycopg.connect(url, autocommit=True) as program,
    ):
        yield c, program
    databases.drop(name)


def test_each_statement_and_function_has_a_case_or_a_reason_against_it(database_url: str) -> None:
    """A new one raises KeyError if it has a parameter that is not known yet."""
    with psycopg.connect(database_url, autocommit=True) as c:
        assert len(list(cases(c))) > 200
        functions = c.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'cronledger'::regnamespace"
        ).fetchall()
    statements = {file.stem for file in Path(cronledger.__file__).parent.glob("*/sql/*.sql")}
    assert statements.union(name for (name,) in functions) >= LEFT_OUT
