"""What handlers write in the transaction that holds their SUCCESS, and that it is there exactly
when the SUCCESS is.

`ctx.transaction()` of production on a simulated connection; workers in other languages do the same
with assert_lease and finish. Sync handlers, whose threads are real, are not simulated.
"""

from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import UUID

import psycopg
from psycopg import sql

from cronledger.engine.running.handlers import transaction
from tests.simulation.support.network import Connection
from tests.simulation.support.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.support.cluster import Cluster

WRITE = "INSERT INTO cronledger.sim_effects (token) VALUES (%s)"
_INSTALL = """
CREATE TABLE cronledger.sim_effects (token uuid NOT NULL);
CREATE FUNCTION cronledger.sim_effect_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM cronledger.executions e
                   WHERE e.lease_token = NEW.token AND e.status = 'SUCCESS') THEN
        RAISE EXCEPTION 'an effect is committed without its SUCCESS' USING ERRCODE = 'SIM05';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER sim_effect_counts AFTER INSERT ON cronledger.sim_effects
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cronledger.sim_effect_counts();
"""


def install_effects(connection: psycopg.Connection) -> None:
    """The table of effects is there; committing one asks for its SUCCESS."""
    connection.execute(_INSTALL)


class EffectConnection(Connection):
    """A connection as ctx.transaction() has it: with composed SQL, closed like a block."""

    def send(self, query: Any, params: Any, row_factory: Any = None) -> Request:
        text = query.as_bytes() if isinstance(query, sql.Composable) else query
        return super().send(text, params, row_factory)

    def transaction(self) -> Any:
        return _Transaction(self)

    async def __aenter__(self) -> "EffectConnection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Transaction:
    """Left behind it needs no end: no generator waits for its turn when it is collected."""

    def __init__(self, connection: EffectConnection) -> None:
        self._connection = connection

    async def __aenter__(self) -> None:
        await self._connection.execute("BEGIN")

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


@contextmanager
def simulated_transactions() -> "Iterator[None]":
    """ctx.transaction() takes the simulator's connections and cursors for psycopg's."""

    def cursor(connection: Connection, row_factory: Any) -> Any:
        return connection.cursor(row_factory)

    module = SimpleNamespace(**{**vars(psycopg), "AsyncCursor": cursor})
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(transaction, "psycopg", module))
        stack.enter_context(mock.patch.object(transaction, "AsyncConnection", EffectConnection))
        yield


class Effects:
    """What was written, and what is to be seen of it in the end."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.wrote: set[UUID] = set()
        """Tokens of those who left their block normally: their SUCCESS has an effect."""

    def judge(self) -> None:
        """An effect is there exactly once iff its execution is SUCCESS under that token."""
        rows = self._cluster.database.eye.execute(
            "SELECT coalesce(f.token, e.lease_token), coalesce(f.times, 0), e.status"
            " FROM (SELECT token, count(*) AS times FROM sim_effects GROUP BY 1) f"
            " FULL JOIN (SELECT lease_token, status FROM executions WHERE status = 'SUCCESS') e"
            " ON e.lease_token = f.token"
        ).fetchall()
        for token, times, status in rows:
            if token in self.wrote and times != 1 and status is not None:
                self._cluster.wrong(f"a SUCCESS whose effect is there {times} times")
            elif times > 1 or (times and status is None):
                self._cluster.wrong(f"an effect is there {times} times, its execution is {status}")
