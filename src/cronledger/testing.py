"""Fixtures for the tests of your jobs: `pytest_plugins = ["cronledger.testing"]`.

    async def test_report_runs_at_nine(ledger):
        ledger.travel(to=datetime(2030, 1, 1, 8, 59, tzinfo=UTC))
        async with ledger.replica(app) as replica:
            ledger.travel(by="1m")
            (ran,) = await replica.step()
        assert ran.status == "SUCCESS"

The database is real, an embedded PostgreSQL that the test session starts and removes (or the server
that CRONLEDGER_TEST_DATABASE_URL names); each test has a fresh ledger. Nothing sleeps: the ledger's
clock travels, and the replica works when it is told to.

PYTEST_DONT_REWRITE: a conftest may import from here before the plugin is loaded.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from cronledger.app import App
from cronledger.embedded.server import Embedded
from cronledger.ledger.migrate import migrate
from cronledger.replica import Ran, Replica
from cronledger.rules import durations
from cronledger.settings import PREFIX, Settings, check_dsn

__all__ = ["Ledger", "Ran", "Replica", "Travel", "cronledger_server", "ledger"]

SERVER = PREFIX + "TEST_DATABASE_URL"
FAST: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

_READABLE = """
SELECT set_config('datestyle', 'ISO', false), set_config('timezone', 'UTC', false),
       set_config('intervalstyle', 'postgres', false)
"""

_INSTALL = """
CREATE TABLE {schema}.time_travel (ahead interval NOT NULL);
INSERT INTO {schema}.time_travel VALUES ('0');
GRANT SELECT ON {schema}.time_travel TO PUBLIC;
CREATE OR REPLACE FUNCTION {schema}.db_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp() + (SELECT t.ahead FROM {schema}.time_travel t)';
CREATE OR REPLACE FUNCTION {schema}.db_clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp() + (SELECT t.ahead FROM {schema}.time_travel t)';
"""


def _connect(url: str) -> psycopg.Connection[Any]:
    """A connection that reads instants and intervals whatever the role is set to."""
    connection = psycopg.connect(url, autocommit=True, client_encoding="UTF8")
    connection.execute(_READABLE)
    return connection


class Travel:
    """The clock of one database. It goes on by itself; `travel` sets it, for every process.

    Installs shifted versions of the schema's two clocks; nothing else of the schema changes. Never
    for a ledger that matters: there is no way back but to drop it.
    """

    def __init__(self, url: str, schema: str = "cronledger") -> None:
        self._schema = sql.Identifier(schema)
        self._connection = _connect(url)
        self._connection.execute(sql.SQL(_INSTALL).format(schema=self._schema))

    def now(self) -> datetime:
        """Answer the database's time."""
        row = self._connection.execute(
            sql.SQL("SELECT {}.db_clock()").format(self._schema)
        ).fetchone()
        assert row is not None
        instant: datetime = row[0]
        return instant

    def travel(self, *, by: timedelta | None = None, to: datetime | None = None) -> datetime:
        """Move the clock `by` so much, or `to` an instant, also back; answers what it says now."""
        if (by is None) == (to is None):
            raise ValueError("travel either by=timedelta or to=datetime")
        if to is not None and to.utcoffset() is None:
            raise ValueError(f"to={to!r} has no zone; write tzinfo=UTC")
        shift = sql.SQL("UPDATE {schema}.time_travel SET ahead = {ahead}")
        ahead = (
            sql.SQL("ahead + {}").format(sql.Literal(by))
            if to is None
            else sql.SQL("{}::timestamptz - clock_timestamp()").format(sql.Literal(to))
        )
        self._connection.execute(shift.format(schema=self._schema, ahead=ahead))
        return self.now()

    def close(self) -> None:
        """Give the connection back; the clock stays as it is."""
        self._connection.close()


class Ledger:
    """A fresh ledger for one test: `url`, a clock that travels, and what is written in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._clock = Travel(url)
        self._connection = _connect(url)
        self._connection.row_factory = dict_row
        # A clone of a database with a ledger in it; replicas would take it for another's.
        self.rows(
            "UPDATE identity SET ledger_id = gen_random_uuid(), database_oid ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )

    def replica(self, *apps: App, **settings: Any) -> Replica:
        """A replica that works when a test awaits its `step`: `async with ledger.replica(app) as
        replica`. `settings` are those of `cronledger.settings.Settings`."""
        return Replica(*apps, url=self.url, settings=Settings(**settings), manual=True)

    def travel(self, *, by: timedelta | str | None = None, to: datetime | None = None) -> datetime:
        """Move the ledger's clock `by` a length (`timedelta(hours=1)` or `"1h"`) or `to` an
        instant; answers what it says now. It goes on from there."""
        return self._clock.travel(by=durations.parse(by) if isinstance(by, str) else by, to=to)

    def now(self) -> datetime:
        """Answer the ledger's time."""
        return self._clock.now()

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a statement; what it names without a schema is the ledger's."""
        with self._connection.transaction():
            self._connection.execute("SET LOCAL search_path = cronledger")
            cursor = self._connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def executions(self, job: str | None = None) -> list[dict[str, Any]]:
        """The executions, of one job or all, in the order of their plan_time."""
        return self.rows(
            "SELECT * FROM executions WHERE %s::text IS NULL OR job_name = %s"
            " ORDER BY plan_time, job_name, scope_id",
            job, job,
        )  # fmt: skip

    def skips(self, job: str | None = None) -> list[dict[str, Any]]:
        """What did not run, and why, of one job or all."""
        return self.rows(
            "SELECT * FROM skips WHERE %s::text IS NULL OR job_name = %s"
            " ORDER BY from_plan_time, job_name, scope_id",
            job, job,
        )  # fmt: skip

    def trigger(self, job: str, **arguments: Any) -> int:
        """Request an execution as an operator does, and return its id.

        The arguments are those of the SQL function `trigger`; `payload` is any value that JSON has.
        """
        found: int = self._call("trigger", job, arguments)
        return found

    def enqueue(self, job: str, **arguments: Any) -> int | None:
        """Enqueue work for the job, and return the id of the execution that will do it.

        The arguments are those of the SQL function `enqueue`; `payload` is any value that JSON has.
        None: `watermark` alone was given, and the work has come that far already.
        """
        found: int | None = self._call("enqueue", job, arguments)
        return found

    def _call(self, function: str, job: str, arguments: Mapping[str, Any]) -> Any:
        if arguments.get("payload") is not None:
            arguments = {**arguments, "payload": Jsonb(arguments["payload"])}
        given = sql.SQL("").join(
            sql.SQL(", {} => {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in arguments.items()
        )
        statement = sql.SQL("SELECT cronledger.{}({}{}) AS id").format(
            sql.Identifier(function), sql.Literal(job), given
        )
        row = self._connection.execute(statement).fetchone()
        assert row is not None
        return row["id"]

    def close(self) -> None:
        """Give its connections back."""
        self._connection.close()
        self._clock.close()


class Server:
    """A PostgreSQL server for a test session, with a migrated ledger in it to clone."""

    def __init__(self, url: str) -> None:
        check_dsn(url)
        self._parameters = {k: str(v) for k, v in conninfo_to_dict(url).items() if v is not None}
        self._connection = psycopg.connect(url, autocommit=True)
        self._count = 0
        self._template = self._create("template0")
        migrate(self._url(self._template))

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """A fresh ledger, gone afterwards."""
        name = self._create(self._template)
        try:
            made = Ledger(self._url(name))
            try:
                yield made
            finally:
                made.close()
        finally:
            self._drop(name)

    def close(self) -> None:
        """Nothing of ours is left in the server."""
        self._drop(self._template)
        self._connection.close()

    def _url(self, name: str) -> str:
        query = {k: v for k, v in self._parameters.items() if k != "dbname"}
        return f"postgresql:///{quote(name)}?{urlencode(query, quote_via=quote)}"

    def _create(self, template: str) -> str:
        self._count += 1
        name = f"cronledger_testing_{os.getpid()}_{self._count}"
        self._connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return name

    def _drop(self, name: str) -> None:
        self._connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )


@pytest.fixture(scope="session")
def cronledger_server() -> Iterator[Server]:
    """The server of this test session: that of CRONLEDGER_TEST_DATABASE_URL (the DSN of a role that
    may create databases), else an embedded one in a directory that is removed afterwards."""
    given = os.environ.get(SERVER)
    if given:
        server = Server(given)
        yield server
        server.close()
        return
    directory = Path(tempfile.mkdtemp(prefix="cronledger-testing-"))
    try:
        with Embedded(directory, settings=FAST) as embedded:
            server = Server(embedded.start())
            yield server
            server.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def ledger(cronledger_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A fresh ledger; the CRONLEDGER_ variables of the environment do not reach its replicas."""
    for name in list(os.environ):
        if name.startswith(PREFIX) and name != SERVER:
            monkeypatch.delenv(name)
    with cronledger_server.ledger() as made:
        yield made
