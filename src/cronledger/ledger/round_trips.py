"""Round trips: statements that are sent together, directly through libpq.

psycopg's pipeline waits for the socket before it sends each statement, and its cursors take more
CPU time than the statements of a small step. The conversion of parameters and rows, the wait for
the socket and the errors are psycopg's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import AsyncConnection, errors, generators, sql
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

Query = str | bytes | sql.Composable
Params = Mapping[str, Any] | Sequence[Any]

_PLACEHOLDER = re.compile(rb"%(?:\((\w+)\)s|s|%)")


@dataclass(slots=True, eq=False)
class Statement:
    """A statement as libpq sends it. `result`: None until it has arrived."""

    text: bytes
    params: Sequence[Buffer | None] | None = None
    types: tuple[int, ...] = ()
    formats: Sequence[Format] | None = None
    prepare: bool = False
    result: PGresult | None = None


class RoundTrips:
    """The round trips of one connection, and the statements that wait for the next one.

    A statement is prepared when it is sent for the second time. An error discards all prepared
    statements: those after it in its round trip were not prepared, and a migration may have changed
    what one of the others returns.
    """

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._transformer = Transformer(connection)
        self._waiting: list[Statement] = []
        self._sent: set[tuple[bytes, tuple[int, ...]]] = set()
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._count = 0
        self._discard = False

    def add(self, query: Query, params: Params | None, *, prepare: bool) -> Statement:
        """Add a statement to the next round trip. Raises an error if a value cannot be sent."""
        text = query if isinstance(query, bytes) else _encoded(query)
        if params:
            text, names = _numbered(text)
            values = [params[name] for name in names] if isinstance(params, Mapping) else params
            dump = self._transformer
            sent = dump.dump_sequence(values, [PyFormat.AUTO] * len(values))
            statement = Statement(text, sent, dump.types or (), dump.formats, prepare)
        else:
            statement = Statement(text, prepare=prepare)
        self._waiting.append(statement)
        return statement

    def drop(self) -> None:
        """Forget the statements that have not been sent."""
        self._waiting.clear()

    async def make(self) -> None:
        """Send the statements that wait, and receive their results.

        Raises the first error. The statements after it were not executed, and have no result. An
        interruption leaves the connection closed, or without a statement that is running.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            await self._connection.wait(self._exchange(waiting))
        finally:
            pgconn = self._connection.pgconn
            if pgconn.pipeline_status != PipelineStatus.OFF:
                pgconn.finish()

    def load(self, result: PGresult, first: int, last: int, make_row: Any) -> list[Any]:
        """Return these rows of a result."""
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(first, last, make_row)

    def _exchange(self, statements: Sequence[Statement]) -> PQGen[None]:
        pgconn = self._connection.pgconn
        if self._discard and pgconn.transaction_status == TransactionStatus.IDLE:
            statements = [Statement(b"DEALLOCATE ALL"), *statements]
            self._discard = False
        pgconn.enter_pipeline_mode()
        prepared = [self._write(pgconn, statement) for statement in statements]
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        failed = None
        try:
            for statement, is_new in zip(statements, prepared, strict=True):
                if is_new:
                    result = yield from _fetch(pgconn)
                    failed = failed or _failure(result)
                result = yield from _fetch(pgconn)
                failed = failed or _failure(result)
                if failed is None:
                    statement.result = result
            yield from _fetch(pgconn)  # of the Sync
            pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:
            if failed is None:  # otherwise the server has sent the reason before it disconnected
                raise
        if failed is not None:
            self._discard = bool(self._names)
            self._names.clear()
            raise errors.error_from_result(failed)

    def _write(self, pgconn: PGconn, statement: Statement) -> bool:
        """Write a statement into libpq's buffer. Return whether it is prepared first."""
        key = text, types = statement.text, statement.types
        name = self._names.get(key)
        is_new = name is None and statement.prepare and key in self._sent
        if is_new:
            self._count += 1  # a name is never used twice
            name = self._names[key] = b"step_%d" % self._count
            pgconn.send_prepare(name, text, types)
        if name is not None:
            pgconn.send_query_prepared(name, statement.params, statement.formats)
        else:
            self._sent.add(key)
            pgconn.send_query_params(text, statement.params, types, statement.formats)
        return is_new


def _fetch(pgconn: PGconn) -> PQGen[PGresult]:
    results: list[PGresult] = yield from generators.fetch_many(pgconn)
    if not results:
        raise psycopg.OperationalError("the connection is lost")
    return results[0]


def _failure(result: PGresult) -> PGresult | None:
    return None if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK) else result


def _encoded(query: str | sql.Composable) -> bytes:
    return query.encode() if isinstance(query, str) else query.as_bytes()


@cache
def _numbered(query: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return the query with $1 for its first parameter, and the names of its parameters."""
    places: dict[bytes, int] = {}

    def place(found: re.Match[bytes]) -> bytes:
        if found[0] == b"%%":
            return b"%"
        name = found[1] or b"%d" % len(places)
        return b"$%d" % places.setdefault(name, len(places) + 1)

    return _PLACEHOLDER.sub(place, query), tuple(name.decode() for name in places)
