"""Connections: how they are opened, what they are set to, and which errors pass by themselves."""

import asyncio
import os
import re
import select
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncPipeline, conninfo, errors
from psycopg.rows import Row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cronledger.ledger.identity import ExpectedLedger
from cronledger.rules.errors import ConfigurationError, Problem, RefusedError
from cronledger.settings import check_dsn

HUNG_SECONDS = 90.0
"""Longer than any step of a replica takes on a database that answers, patience with a scope
provider included."""

STANDS_STILL_SECONDS = 30.0
"""A client that says nothing for so long in the middle of a step has lost its transaction, and with
it the locks. Much longer than a step computes: what a claim plans at once takes a second."""

# A network partition is noticed in seconds, not in the two hours of the kernel's defaults.
KEEPALIVES: Mapping[str, str] = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}

# The same for the server, which would find out after two hours that a host is gone, and keep its
# locks until then.
_WATCH = """
SELECT set_config('tcp_keepalives_idle', '5', %(local)s),
       set_config('tcp_keepalives_interval', '2', %(local)s),
       set_config('tcp_keepalives_count', '3', %(local)s)
"""

# A connection of ours waits for work; a limit for idle sessions would end it each time.
_WAITS = "SELECT set_config('idle_session_timeout', '0', false)"

AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
"""The database did not answer, or the connection is gone."""

PASSING = (
    errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable,
    errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout,
)  # fmt: skip
"""Another transaction was in the way, or this client stood still; the step is tried again as a
whole."""

POISON = (errors.DataError, errors.IntegrityError)
"""SQLSTATE classes 22 and 23: a value of one row, not the database, is at fault."""


def is_away(error: BaseException) -> bool:
    """Whether `error` says that the database is unreachable rather than that a statement is bad."""
    # psycopg calls much more an OperationalError: a full disk, an object in use, a limit reached.
    state = getattr(error, "sqlstate", None)
    return isinstance(error, AWAY) and (
        state is None or state.startswith(("08", "57P")) or state == "53300"
    )


# libpq reports no SQLSTATE for a connection that failed: the texts of the server, of libpq and of
# PgBouncer decide, and waiting is right for one that is not known here.
_REFUSALS = (
    (
        r"authentication failed|no password supplied|wrong password",
        "correct the user and the password in the connection string, PGPASSWORD or ~/.pgpass",
    ),
    (r'role ".*" does not exist|no such user', "create the role, or use another one"),
    (r"is not permitted to log in", "run ALTER ROLE … LOGIN, or use another role"),
    (
        r'database ".*" does not exist|no such database',
        "create the database, or correct its name in the connection string",
    ),
    (r"permission denied for database", "run GRANT CONNECT ON DATABASE … TO this role"),
    (r"pg_hba\.conf", "allow this host, role and database in pg_hba.conf of the server"),
    (
        r"server does not support SSL, but SSL was required",
        "enable SSL in the server, or lower sslmode in the connection string",
    ),
)


def refusal(error: BaseException) -> str | None:
    """Return the remedy if a server answered and refuses this connection: waiting does not help.
    None for any other error."""
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return None
    text = str(error)
    return next((remedy for said, remedy in _REFUSALS if re.search(said, text)), None)


def sever(connection: AsyncConnection[tuple[Any, ...]]) -> None:
    """Whatever waits on the connection fails now: asking the server to cancel would wait for it."""
    if not connection.closed:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as s:
            s.shutdown(socket.SHUT_RDWR)


def ended(connection: AsyncConnection[tuple[Any, ...]]) -> bool:
    """Return whether the server, or what is in between, has ended this connection, which nobody
    uses. Sends nothing."""
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLIN)
    except (psycopg.Error, OSError):
        return True
    # Nobody waits for an answer: what can be read is the end, or the server's last words before it.
    return bool(poll.poll(0))


class StepConnection(AsyncConnection[tuple[Any, ...]]):
    """Its cursors end a round trip with a Sync, not with a Flush as psycopg's do: to the server a
    pipeline without one is a statement that goes on, and its client's silence is not counted.

    `expected`: the ledger that its steps work in; each transaction of a step makes sure of it.
    """

    pipelined: AsyncPipeline | None = None
    expected: ExpectedLedger | None = None

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[AsyncPipeline]:
        async with super().pipeline() as pipeline:
            outer, self.pipelined = self.pipelined, pipeline
            try:
                yield pipeline
            finally:
                self.pipelined = outer


class StepCursor(AsyncCursor[Row]):
    async def _answered(self) -> None:
        pipeline = getattr(self.connection, "pipelined", None)
        if pipeline is not None and self.pgresult is None:
            await pipeline.sync()

    async def fetchone(self) -> Row | None:
        await self._answered()
        return await super().fetchone()

    async def fetchall(self) -> list[Row]:
        await self._answered()
        return await super().fetchall()


class AsyncPool(AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]]):
    """Connections for steps. One that is held for longer than HUNG_SECONDS is severed: no other
    timeout notices a server that hangs, or a middlebox that acknowledges and passes nothing on.
    One that ended while it was idle is replaced before a step gets it.

    `moved` is called when a new connection leads to another server process than those before: a
    restarted server, or another one. Behind a pooler that cannot be seen.
    """

    def __init__(self, expected: ExpectedLedger | None = None, **parameters: Any) -> None:
        self.expected = expected
        self.moved: Callable[[], None] = lambda: None
        self.server_started: datetime | None = None
        self._failure: psycopg.Error | None = None
        self._gave_up = asyncio.Event()
        super().__init__(
            connection_class=_reporting(self._note),
            reconnect_failed=lambda _: self._gave_up.set(),
            **parameters,
        )

    def _note(self, failure: psycopg.Error | None) -> None:
        self._failure = failure

    def reached(self, server_started: datetime) -> None:
        """A new connection leads to the server process that started then."""
        before, self.server_started = self.server_started, server_started
        if before not in (None, server_started):
            self.moved()

    async def wait(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - as in the class above
        """Raise PoolTimeout, with what refuses the connections as its cause, unless all are open
        within `timeout`; at once when the pool has given up on one."""
        opening = asyncio.ensure_future(super().wait(timeout))
        giving_up = asyncio.ensure_future(self._gave_up.wait())
        try:
            await asyncio.wait([opening, giving_up], return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise PoolTimeout("no connection")
            await opening
        except PoolTimeout as error:
            raise self._explained(error) from self._failure or error
        finally:
            opening.cancel()
            giving_up.cancel()

    async def getconn(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the class above
    ) -> AsyncConnection[tuple[Any, ...]]:
        """Return a connection that has not ended. Raises PoolTimeout, with what refuses new
        connections as its cause."""
        until = monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                connection = await super().getconn(max(0.0, until - monotonic()))
            except PoolTimeout as error:
                raise self._explained(error) from self._failure or error
            if not ended(connection):
                return connection
            await connection.close()
            await self.putconn(connection)

    def _explained(self, error: PoolTimeout) -> PoolTimeout:
        return error if self._failure is None else PoolTimeout(str(self._failure))

    @asynccontextmanager
    async def connection(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the class above
    ) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
        async with super().connection(timeout) as connection:
            assert isinstance(connection, StepConnection)
            connection.expected = self.expected
            timer = asyncio.get_running_loop().call_later(HUNG_SECONDS, sever, connection)
            try:
                yield connection
            finally:
                timer.cancel()


def _reporting(note: Callable[[psycopg.Error | None], None]) -> type[StepConnection]:
    """Return a class of connections that notes why one could not be opened, or None; the pool only
    logs it."""

    class Reporting(StepConnection):
        @classmethod
        async def connect(cls, *arguments: Any, **parameters: Any) -> Self:
            try:
                made = await super().connect(*arguments, **parameters)
            except psycopg.Error as error:
                note(error)
                raise
            note(None)
            return made

    return Reporting


@dataclass(frozen=True, slots=True)
class Access:
    """How one process reaches its database. What the DSN itself says wins over the defaults.

    `prepare` false: no server-side prepares (PgBouncer in transaction mode). `expected`: the ledger
    that steps on these connections work in, wherever the DSN leads by then.
    """

    url: str = field(repr=False)
    prepare: bool = True
    connect_timeout: timedelta = timedelta(seconds=5)
    lock_timeout: timedelta = timedelta(seconds=5)
    tcp_user_timeout: timedelta = timedelta(seconds=10)
    expected: ExpectedLedger | None = None

    def parameters(self, name: str) -> dict[str, Any]:
        """Connection parameters, for a connection that calls itself `name`.

        Raises ConfigurationError, which shows nothing of the DSN, if that cannot be read.
        """
        try:
            check_dsn(self.url)
        except RefusedError as error:
            problem = Problem(None, None, "url", None, error.problem, error.remedy)
            raise ConfigurationError([problem]) from None
        return {
            **KEEPALIVES,
            "connect_timeout": str(max(2, round(self.connect_timeout.total_seconds()))),
            "tcp_user_timeout": str(round(self.tcp_user_timeout.total_seconds() * 1000)),
            "application_name": name,
            **conninfo.conninfo_to_dict(self.url),
        }

    @property
    def prepare_threshold(self) -> int | None:
        return 1 if self.prepare else None

    def connect(self, name: str = "cronledger") -> psycopg.Connection:
        """A blocking connection in autocommit mode, for commands and migrations."""
        return psycopg.connect(
            **self.parameters(name), autocommit=True, prepare_threshold=self.prepare_threshold
        )

    async def connect_async(self, name: str) -> AsyncConnection[tuple[Any, ...]]:
        """A connection in autocommit mode."""
        connection = await StepConnection.connect(
            **self.parameters(name), autocommit=True, prepare_threshold=self.prepare_threshold
        )
        connection.expected = self.expected
        try:
            await self._watch(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _watch(self, connection: AsyncConnection[Any], pool: AsyncPool | None = None) -> None:
        if not self.prepare:  # behind a pooler the server's client is the pooler
            return
        timer = asyncio.get_running_loop().call_later(
            self.connect_timeout.total_seconds(), sever, connection
        )
        try:
            await connection.execute(_WATCH, {"local": False})
            await connection.execute(_WAITS)
            if pool is not None:
                # While an answer is under way, keepalives do not tell that a host is gone. Not for
                # handlers' connections: it also ends whoever rests in the middle of an answer.
                patience = round(self.tcp_user_timeout.total_seconds() * 1000)
                answer = await connection.execute(
                    "SELECT pg_postmaster_start_time(), set_config('tcp_user_timeout', %s, false)",
                    [str(patience)],
                )
                row = await answer.fetchone()
                assert row is not None
                pool.reached(row[0])
        finally:
            timer.cancel()

    def pool(self, name: str, size: int) -> AsyncPool:
        """A closed pool of `size` connections in autocommit mode; open it in the loop that uses
        it.
        """
        pool: AsyncPool = AsyncPool(
            expected=self.expected,
            kwargs={
                **self.parameters(name),
                "cursor_factory": StepCursor,
                "autocommit": True,
                "prepare_threshold": self.prepare_threshold,
            },
            min_size=size,
            max_size=size,
            timeout=self.connect_timeout.total_seconds() + 5,
            # Short, because its waits double: whoever asks next for a connection tries anew.
            reconnect_timeout=1,
            configure=lambda connection: self._watch(connection, pool),
            open=False,
            name=name,
        )
        return pool


def connect(url: str, name: str = "cronledger") -> psycopg.Connection:
    """A blocking connection in autocommit mode with the default timeouts. No server-side prepares:
    a command sends little twice, and may come through PgBouncer.
    """
    return Access(url, prepare=False).connect(name)


@contextmanager
def transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction of a command; see `bound`."""
    with connection.transaction():
        bound(connection, STANDS_STILL_SECONDS)
        yield


def bound(connection: psycopg.Connection[Any], stands_still: float) -> None:
    """This transaction ends if its client stands still for so many seconds, and soon after its host
    is gone.
    """
    connection.execute(_WATCH, {"local": True})
    connection.execute(
        "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
        [_milliseconds(stands_still)],
    )


@asynccontextmanager
async def step_transaction(
    connection: AsyncConnection[tuple[Any, ...]],
    lock_timeout_ms: int = 5000,
    stands_still: float | None = None,
) -> AsyncIterator[None]:
    """A transaction in pipeline mode with pinned planning, a bounded wait for locks, and an end if
    the client stands still in it (`stands_still` seconds; None: STANDS_STILL_SECONDS).

    Planned once per connection, not for every batch: planning for all partitions costs more than
    most of these statements. Sequential scans at a deterring price: a new week's partition looks
    empty to the planner until it is analyzed (enable_seqscan = off would drown all other costs
    where a small table without an index is read). SET LOCAL rides in the pipeline instead of the
    connection's start, because behind PgBouncer in transaction mode nothing else holds.

    Raises psycopg.Error (CL006), and does nothing, where the connection leads to another ledger
    than the expected one: the DSN of a live replica may do so at any time.
    """
    expected = getattr(connection, "expected", None)
    async with connection.pipeline(), connection.transaction():
        await connection.execute(
            "SELECT set_config('jit', 'off', true), set_config('seq_page_cost', '1000', true), "
            "set_config('plan_cache_mode', 'force_generic_plan', true), "
            "set_config('lock_timeout', %s, true), "
            "set_config('idle_in_transaction_session_timeout', %s, true), "
            # Who stands still between two statements of one round trip does not count as idle.
            "CASE WHEN current_setting('server_version_num')::int >= 170000"
            " THEN set_config('transaction_timeout', %s, true) END"
            + ("" if expected is None else f", {expected.schema}.require_ledger(%s)"),
            [
                str(lock_timeout_ms),
                _milliseconds(stands_still or STANDS_STILL_SECONDS),
                _milliseconds(HUNG_SECONDS),
                *([] if expected is None else [expected.id]),
            ],
        )
        yield


def _milliseconds(seconds: float) -> str:
    return str(round(1000 * seconds))
