"""Fixtures for the tests of your jobs: `pytest_plugins = ["cronledger.testing"]`.

    async def test_report_runs_at_nine(ledger):
        ledger.travel(to=datetime(2030, 1, 1, 8, 59, tzinfo=UTC))
        async with ledger.replica(app) as replica:
            ledger.travel(by="1m")
            (ran,) = await replica.step()
        assert ran.status == "SUCCESS"

The database is a real one: an embedded PostgreSQL that the test session starts and removes, or the
server of CRONLEDGER_TEST_DATABASE_URL. Each test has a fresh ledger. Nothing sleeps: the clock of
the ledger travels, and the replica works when the test calls `step`.

PYTEST_DONT_REWRITE: a conftest may import this module before the plugin is loaded.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from cronledger.client import Client
from cronledger.declaring.app import App
from cronledger.embedded.server import Embedded
from cronledger.ledger.migrate import migrate
from cronledger.ledger.time_travel import Travel, connect_plainly
from cronledger.replica import Ran, Replica
from cronledger.rules import durations
from cronledger.settings import PREFIX, Settings, check_dsn
from cronledger.testing.assertions import assert_fires
from cronledger.testing.contexts import FakeContext, context

__all__ = [
    "Client", "FakeContext", "Ledger", "Ran", "Replica", "Travel", "assert_fires", "client",
    "context", "cronledger_server", "ledger",
]  # fmt: skip

SERVER = PREFIX + "TEST_DATABASE_URL"
FAST: Mapping[str, str] = {
    "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "jit": "off",
}  # fmt: skip


class Ledger:
    """A fresh ledger for one test: its `url`, its clock, and its rows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._clock = Travel(url)
        self._connection = connect_plainly(url)
        self._connection.row_factory = dict_row

    def replica(self, *apps: App, **settings: Any) -> Replica:
        """Return a replica that works when a test awaits its `step`.

        Use it as `async with ledger.replica(app) as replica`. `settings` are those of
        `cronledger.settings.Settings`.
        """
        return Replica(*apps, url=self.url, settings=Settings(**settings), manual=True)

    def travel(self, *, by: timedelta | str | None = None, to: datetime | None = None) -> datetime:
        """Move the clock by a length (`timedelta(hours=1)` or `"1h"`), or to an instant.

        Return its new time, from which it runs on. Work can be enqueued there, because the
        partition of that time exists.
        """
        now = self._clock.travel(by=durations.parse(by) if isinstance(by, str) else by, to=to)
        self._connection.execute(
            "SELECT cronledger_internal.create_missing_partitions(ARRAY[%s])", [now]
        )
        return now

    def now(self) -> datetime:
        """Return the time of the ledger."""
        return self._clock.now()

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a statement. Names without a schema are those of the ledger."""
        with self._connection.transaction():
            self._connection.execute("SET LOCAL search_path = cronledger")
            cursor = self._connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def executions(self, job: str | None = None) -> list[dict[str, Any]]:
        """Return the executions of one job or of all jobs, by plan_time."""
        return self.rows(
            "SELECT * FROM executions WHERE %s::text IS NULL OR job_name = %s"
            " ORDER BY plan_time, job_name, scope_id",
            job, job,
        )  # fmt: skip

    def skips(self, job: str | None = None) -> list[dict[str, Any]]:
        """Return the skips of one job or of all jobs, by their first plan_time."""
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
        None: only `watermark` was given, and the work has already reached it.
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
        """Close its connections."""
        self._connection.close()
        self._clock.close()


class Server:
    """A PostgreSQL server for a test session, with a migrated ledger that tests clone."""

    def __init__(self, url: str) -> None:
        check_dsn(url)
        self._parameters = {k: str(v) for k, v in conninfo_to_dict(url).items() if v is not None}
        self._connection = psycopg.connect(url, autocommit=True)
        self._count = 0
        self._template = self._create("template0")
        migrate(self._url(self._template))

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Create a ledger for the block, and drop it afterwards."""
        name = self._create(self._template)
        try:
            with closing(Ledger(self._url(name))) as made:
                # A clone gets an identity of its own, because replicas refuse to work in a copy.
                made.rows(
                    "UPDATE identity SET ledger_id = gen_random_uuid(), database_oid ="
                    " (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
                yield made
        finally:
            self._drop(name)

    def close(self) -> None:
        """Drop the template database, and close the connection."""
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
    """The server of this test session.

    It is the one of CRONLEDGER_TEST_DATABASE_URL, the DSN of a role that may create databases.
    Otherwise it is an embedded one, in a directory that is removed afterwards.
    """
    if given := os.environ.get(SERVER):
        with closing(Server(given)) as server:
            yield server
        return
    with (
        TemporaryDirectory(prefix="cronledger-testing-", ignore_cleanup_errors=True) as directory,
        Embedded(Path(directory), settings=FAST) as embedded,
        closing(Server(embedded.start())) as server,
    ):
        yield server


@pytest.fixture
def ledger(cronledger_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A fresh ledger. Its replicas ignore the CRONLEDGER_ variables of the environment."""
    for name in list(os.environ):
        if name.startswith(PREFIX) and name != SERVER:
            monkeypatch.delenv(name)
    with cronledger_server.ledger() as made:
        yield made


@pytest.fixture
def client(ledger: Ledger) -> Iterator[Client]:
    """A client of the ledger of this test."""
    with Client(ledger.url) as made:
        yield made
