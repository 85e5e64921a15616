"""One whole replica in the test's own process, and what a test asks of it and of the ledger."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from cronledger.declaring.app import App
from cronledger.replica import Replica
from cronledger.rules.model import Job
from cronledger.settings import Settings
from cronledger.sources.apply import apply
from tests.waiting import eventually

FINAL = ("SUCCESS", "FAILED", "CANCELLED")


class Whole:
    """Jobs on a database: those of `app`, and others as `declare` was told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App()
        self.jobs: list[Job] = []
        self.documented: dict[str, Any] = {}  # what the snippets of a document define
        self.db = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def declare(self, name: str, handler: str, target: dict[str, Any], **policies: Any) -> None:
        values = {"name": name, "handler": handler, "target": target, **policies}
        self.jobs.append(Job.model_validate(values))

    def job(self, function: Callable[..., Any], **policies: Any) -> str:
        """`function` as the handler of a job of its name."""
        function.__qualname__ = function.__name__
        self.app.job(name=function.__name__, **policies)(function)
        return function.__name__

    @asynccontextmanager
    async def replica(self, **settings: Any) -> AsyncIterator[Replica]:
        apply(self.url, [*self.app.jobs.values(), *self.jobs], source="test")
        async with Replica(
            self.app, url=self.url, settings=Settings(**settings), applied=True
        ) as replica:
            yield replica

    def rows(self, statement: LiteralString, *values: object) -> list[dict[str, Any]]:
        found = self.db.execute(statement, values or None)
        return found.fetchall() if found.description is not None else []

    def one(self, statement: LiteralString, *values: object) -> Any:
        """The only value of the only row."""
        (row,) = self.rows(statement, *values)
        (value,) = row.values()
        return value

    async def trigger(self, job: str, payload: Any = None) -> int:
        """The id of a manual execution. It may wait for a lock that the replica holds, and the
        replica needs this loop: hence a connection that does not block it.
        """
        given = None if payload is None else Jsonb(payload)
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            answer = await connection.execute(
                "SELECT cronledger.trigger(%s, payload => %s)", [job, given]
            )
            row = await answer.fetchone()
        assert row is not None
        found: int = row[0]
        return found

    def get(self, execution: int) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM cronledger.executions WHERE id = %s", execution)
        return row

    def ended(self, execution: int) -> dict[str, Any] | None:
        """The execution once it is over and will not be tried again."""
        row = self.get(execution)
        return row if row["status"] in FINAL and row["next_attempt_at"] is None else None

    async def end(self, execution: int) -> dict[str, Any]:
        found: dict[str, Any] = await eventually("it has ended", lambda: self.ended(execution))
        return found

    async def run(self, job: str, payload: Any = None) -> dict[str, Any]:
        """The execution of `job`, triggered and over."""
        return await self.end(await self.trigger(job, payload))

    def sessions(self, name: str) -> int:
        """Connections to this database that call themselves so."""
        count: int = self.one(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s", name,
        )  # fmt: skip
        return count

    def close(self) -> None:
        self.db.close()
