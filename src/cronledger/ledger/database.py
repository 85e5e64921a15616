"""Connections: how they are opened, their settings, and which errors can be retried."""

import asyncio
import os
import re
import select
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Self

import psycopg
from psycopg import (
    AsyncConnection,
    AsyncCursor,
    AsyncPipeline,
    IsolationLevel,
    conninfo,
    errors,
)
from psycopg.rows import Row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cronledger.ledger.identity import ExpectedLedger
from cronledger.ledger.schemas import internal
from cronledger.rules.problems import ConfigurationError, Problem, RefusedError
from cronledger.settings import Settings, check_dsn

HUNG_SECONDS = 90.0
"""Longer than any step of a replica takes on a healthy database, including the wait for a scope
provider."""

HAS_TRANSACTION_TIMEOUT = 170000

STANDS_STILL_SECONDS = 30.0
"""The server ends the transaction of a client that is silent for this long in a step, and releases
its locks. A step computes for a much shorter time: planning one claim takes a second."""

# A network partition is noticed in seconds, not in the two hours of the kernel's defaults.
KEEPALIVES: Mapping[str, str] = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}

# The settings below override those of the server, the database and the role, because the promises
# do not depend on them. Behind a pooler in transaction mode only settings that are local to a
# transaction hold; the pooler keeps datestyle, timezone and client_encoding for each client.
_UTF8 = {"client_encoding": "UTF8"}

# psycopg parses dates by the settings that the server reports for the session.
_DATES = {"datestyle": "ISO", "timezone": "UTC"}

_VALUES = {
    "intervalstyle": "postgres",
    "array_nulls": "on",  # otherwise the NULL of an array literal is the text NULL
    "search_path": "pg_catalog, pg_temp",
}
"""Settings that decide the meaning of values and names."""

# The same as KEEPALIVES for the server, which would otherwise detect a lost host after two hours,
# and keep its locks until then.
_WATCH = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

# For a connection that only we use, and that waits for work.
_SESSION = {
    **_WATCH,
    **_DATES,
    **_VALUES,
    "idle_session_timeout": "0",
    "statement_timeout": f"{HUNG_SECONDS:.0f}s",  # of what runs outside of a step's transaction
    "default_transaction_isolation": "read committed",
    "exit_on_error": "off",
    "extra_float_digits": "1",
}

# Plans of steps are pinned by costs, which have no effect if a kind of plan is disabled.
_ALL_PLANS = """(
SELECT count(set_config(s.name, 'on', false)) FROM pg_settings s
WHERE starts_with(s.name, 'enable_') AND s.setting = 'off' AND s.boot_val = 'on')
"""

# For the transaction of a step. Its statements end long before this limit; a limit of the role
# could end them at any time.
_STEP = {
    **_VALUES,
    "jit": "off",
    "seq_page_cost": "1000",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": f"{HUNG_SECONDS:.0f}s",
}

# For the transaction of a command, which has no time limit.
_COMMAND = {
    **_WATCH,
    **_DATES,
    **_VALUES,
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "jit": "off",
    "statement_timeout": "0",
    "client_min_messages": "notice",
}


# The tables of the ledger set this themselves; this is for everything else that a command writes.
_DURABLE = """
pg_catalog.set_config('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)
"""


def _set(settings: Mapping[str, str], *, local: bool) -> str:
    """Return the expressions that set all of them."""
    return ", ".join(
        # Qualified, because the search_path may begin with a schema that has such a function.
        f"pg_catalog.set_config('{name}', '{value}', {str(local).lower()})"
        for name, value in settings.items()
    )


def _given(settings: Iterable[str]) -> str:
    """Return the same with a parameter for each value, local to the transaction."""
    return ", ".join(f"pg_catalog.set_config('{name}', %s, true)" for name in settings)


VALUES_SET = _set(_VALUES, local=True)
_STEP_SET = _set(_STEP, local=True)
_COMMAND_SET = _set(_COMMAND, local=True)

AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
"""The database did not respond, or the connection is lost."""

RETRYABLE_ERRORS = (
    errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable,
    errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout,
)  # fmt: skip
"""Another transaction was in conflict, or this client was silent. The whole step is retried."""

BAD_VALUE_ERRORS = (errors.DataError, errors.IntegrityError)
"""SQLSTATE classes 22 and 23: a value of one row, not the database, is at fault."""


def is_unreachable(error: BaseException) -> bool:
    """Return whether `error` means that the database is unreachable."""
    # psycopg has more kinds of OperationalError: a full disk, an object in use, a reached limit.
    state = getattr(error, "sqlstate", None)
    return isinstance(error, AWAY) and (
        state is None or state.startswith(("08", "57P")) or state == "53300"
    )


# libpq reports no SQLSTATE for a failed connection, so the texts of the server, of libpq and of
# PgBouncer decide. An unknown text means that waiting may help.
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
    """Return the remedy if a server refuses this connection, so that waiting does not help.

    Return None for any other error.
    """
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return None
    text = str(error)
    return next((remedy for said, remedy in _REFUSALS if re.search(said, text)), None)


def shutdown_socket(connection: AsyncConnection[tuple[Any, ...]]) -> None:
    """Make everything that waits on the connection fail now.

    A request to cancel would wait for the server.
    """
    if not connection.closed:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as s:
            s.shutdown(socket.SHUT_RDWR)


def ended(connection: AsyncConnection[tuple[Any, ...]]) -> bool:
    """Return whether this unused connection was ended from outside. Sends nothing."""
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLIN)
    except (psycopg.Error, OSError):
        return True
    # No statement is running, so readable data is the end, or the last message before it.
    return bool(poll.poll(0))


class StepConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection whose cursors end a round trip with a Sync instead of the Flush of psycopg.

    For the server, a pipeline without a Sync is a statement that continues, so that it does not
    count the silence of its client.

    `expected`: the ledger in which its steps work; each transaction of a step checks it.
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
    """Connections for steps.

    A connection that is in use for longer than HUNG_SECONDS is shut down, because no other timeout
    detects a server that hangs, or a middlebox that acknowledges packets and drops them. A
    connection that ended while it was idle is replaced before a step gets it.

    `moved` is called when a new connection leads to another server process than before: a restarted
    server, or another server. It cannot be detected behind a pooler.
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
        """Record that a new connection leads to the server process that started then."""
        before, self.server_started = self.server_started, server_started
        if before not in (None, server_started):
            self.moved()

    async def wait(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - as in the class above
        """Wait until all connections are open.

        Raise PoolTimeout after `timeout`, or when the pool has given up on one of them. Its cause
        is the error that refuses the connections.
        """
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
        """Return a connection that has not ended.

        Raises PoolTimeout; its cause is the error that refuses new connections.
        """
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
            timer = asyncio.get_running_loop().call_later(HUNG_SECONDS, shutdown_socket, connection)
            try:
                yield connection
            finally:
                timer.cancel()


def _reporting(note: Callable[[psycopg.Error | None], None]) -> type[StepConnection]:
    """Return a class of connections that reports why one could not be opened.

    The pool only logs the error.

    `note` gets the error, or None after a success.
    """

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
    """The options with which one process connects to its database. The DSN overrides the defaults.

    `prepare` false: no server-side prepares (PgBouncer in transaction mode). `expected`: the ledger
    in which steps on these connections work, wherever the DSN leads later.
    """

    url: str = field(repr=False)
    prepare: bool = True
    connect_timeout: timedelta = timedelta(seconds=5)
    lock_timeout: timedelta = timedelta(seconds=5)
    tcp_user_timeout: timedelta = timedelta(seconds=10)
    expected: ExpectedLedger | None = None

    @classmethod
    def from_settings(
        cls, settings: Settings, url: str, expected: ExpectedLedger | None = None
    ) -> Self:
        """Return the access of a process with these settings to the database at `url`."""
        return cls(
            url,
            prepare=not settings.pgbouncer,
            connect_timeout=settings.connect_timeout,
            lock_timeout=settings.lock_timeout,
            tcp_user_timeout=settings.tcp_user_timeout,
            expected=expected,
        )

    def parameters(self, name: str) -> dict[str, Any]:
        """Return the parameters of a connection with the application name `name`.

        Raises ConfigurationError, which contains no part of the DSN, if the DSN is invalid.
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
            **_UTF8,
        }

    @property
    def prepare_threshold(self) -> int | None:
        return 1 if self.prepare else None

    def connect(self, name: str = "cronledger", *, for_handler: bool = False) -> psycopg.Connection:
        """Return a blocking connection in autocommit mode, for commands, migrations and handlers.

        Its transactions are READ COMMITTED; `transaction` and `bound` set what else a command
        needs. `for_handler`: see `connect_async`.
        """
        made = psycopg.connect(
            **self.parameters(name), autocommit=True, prepare_threshold=self.prepare_threshold
        )
        try:
            made.isolation_level = IsolationLevel.READ_COMMITTED
            settings = self._kept(_WATCH if for_handler else _SESSION)
            if settings:
                made.execute(f"SELECT {_set(settings, local=False)}".encode())
        except BaseException:
            made.close()
            raise
        return made

    def _kept(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        """Return the settings that can hold for the whole connection.

        Behind a pooler these are only the settings that it keeps for each of its clients.
        """
        if self.prepare:
            return settings
        return {name: settings[name] for name in _DATES if name in settings}

    async def connect_async(
        self, name: str, *, for_handler: bool = False
    ) -> AsyncConnection[tuple[Any, ...]]:
        """Return a connection in autocommit mode, whose transactions are READ COMMITTED.

        `for_handler`: the other settings are those of the role, because the handler may rely on
        them.
        """
        connection = await StepConnection.connect(
            **self.parameters(name), autocommit=True, prepare_threshold=self.prepare_threshold
        )
        connection.expected = self.expected
        try:
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            if for_handler:
                await self._settle(connection, _WATCH)
            else:
                await self._settle(connection, _SESSION, _ALL_PLANS)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _settle(
        self, connection: AsyncConnection[Any], settings: Mapping[str, str], *more: str
    ) -> Sequence[Any]:
        """Set these for the session. Return the values of the expressions `more`.

        Behind a pooler nothing is returned.
        """
        settings = self._kept(settings)
        if not settings:
            return ()
        timer = asyncio.get_running_loop().call_later(
            self.connect_timeout.total_seconds(), shutdown_socket, connection
        )
        try:
            await connection.execute(f"SELECT {_set(settings, local=False)}".encode())
            if not more or not self.prepare:
                return ()
            # A statement of its own, because now the search_path is set.
            row = await (await connection.execute(f"SELECT {', '.join(more)}".encode())).fetchone()
        finally:
            timer.cancel()
        return row or ()

    async def _configure(self, connection: AsyncConnection[Any], pool: AsyncPool) -> None:
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        # Keepalives do not detect a lost host while data is being sent. Not for the connections of
        # handlers, because it would also end a client that pauses while it reads a result.
        patience = round(self.tcp_user_timeout.total_seconds() * 1000)
        settings = {**_SESSION, "tcp_user_timeout": str(patience)}
        found = await self._settle(connection, settings, "pg_postmaster_start_time()", _ALL_PLANS)
        if found:
            pool.reached(found[0])

    def pool(self, name: str, size: int) -> AsyncPool:
        """Return a closed pool of `size` connections in autocommit mode.

        Open it in the loop that uses it.
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
            # Short, because its waits double. The next request for a connection tries again.
            reconnect_timeout=1,
            configure=lambda connection: self._configure(connection, pool),
            open=False,
            name=name,
        )
        return pool


def connect(url: str, name: str = "cronledger") -> psycopg.Connection:
    """Return a blocking connection in autocommit mode with the default timeouts.

    Without server-side prepares, because a command repeats few statements and may use PgBouncer.
    """
    return Access(url, prepare=False).connect(name)


@contextmanager
def transaction(
    connection: psycopg.Connection[Any], lock_timeout: timedelta = timedelta(0)
) -> Iterator[None]:
    """Run a transaction of a command; see `bound`. `lock_timeout` zero: no limit for lock waits."""
    with connection.transaction():
        bound(connection, STANDS_STILL_SECONDS, lock_timeout.total_seconds())
        yield


def bound(
    connection: psycopg.Connection[Any], stands_still: float, lock_timeout: float = 0.0
) -> None:
    """Limit this transaction of a command.

    It ends if its client is silent for `stands_still` seconds, and soon after its host is lost. Its
    values and its duration do not depend on the settings of the role, the database and the server.
    """
    limits = {
        "idle_in_transaction_session_timeout": _milliseconds(stands_still),
        "lock_timeout": _milliseconds(lock_timeout),
        **_whole(connection, 0.0),
    }
    connection.execute(
        f"SELECT {_COMMAND_SET}, {_given(limits)}, {_DURABLE}".encode(), list(limits.values())
    )


def _whole(
    connection: psycopg.Connection[Any] | AsyncConnection[Any], seconds: float
) -> dict[str, str]:
    """Return the limit of a whole transaction, which servers before PostgreSQL 17 do not have."""
    if connection.info.server_version < HAS_TRANSACTION_TIMEOUT:
        return {}
    return {"transaction_timeout": _milliseconds(seconds)}


@asynccontextmanager
async def step_transaction(
    connection: AsyncConnection[tuple[Any, ...]],
    lock_timeout_ms: int = 5000,
    stands_still: float | None = None,
) -> AsyncIterator[None]:
    """Run a transaction in pipeline mode, with pinned planning and a limited wait for locks.

    It ends if the client is silent in it (`stands_still` seconds; None: STANDS_STILL_SECONDS).

    Statements are planned once per connection, because planning for all partitions costs more than
    most of them. Sequential scans have a high price, because a partition looks empty to the planner
    until it is analyzed (enable_seqscan = off would hide all other costs where a small table
    without an index is read). The settings are part of the pipeline instead of the start of the
    connection, because only those hold behind PgBouncer in transaction mode. The tables that the
    transaction writes make its COMMIT durable (functions/14_transactions.sql).

    Raises psycopg.Error (CL006), and does nothing, if the connection leads to another ledger than
    the expected one. The DSN of a live replica may do so at any time.
    """
    expected = getattr(connection, "expected", None)
    limits = {
        "lock_timeout": str(lock_timeout_ms),
        "idle_in_transaction_session_timeout": _milliseconds(stands_still or STANDS_STILL_SECONDS),
        # A client that is silent between two statements of one round trip is not idle.
        **_whole(connection, HUNG_SECONDS),
    }
    async with connection.pipeline(), connection.transaction():
        await connection.execute(
            f"SELECT {_STEP_SET}, {_given(limits)}"
            + ("" if expected is None else f", {internal(expected.schema)}.require_ledger(%s)"),
            [*limits.values(), *([] if expected is None else [expected.id])],
        )
        yield


def _milliseconds(seconds: float) -> str:
    return str(round(1000 * seconds))
