"""How a process reaches its database: the DSN, its timeouts, and the connections that it opens."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, IsolationLevel, conninfo

from cronledger.ledger import session_settings
from cronledger.ledger.connections import AsyncPool, StepConnection, StepCursor, shutdown_socket
from cronledger.ledger.identity import ExpectedLedger
from cronledger.rules.problems import ConfigurationError, Problem, RefusedError
from cronledger.settings import EMBEDDED, Settings, check_dsn


@dataclass(frozen=True, slots=True)
class Access:
    """The options with which one process connects to its database. The DSN overrides the defaults.

    `direct`: no pooler in transaction mode is in between. Behind one, each transaction may run in
    another session, so that nothing is prepared and few settings of a session hold. `expected`: the
    ledger in which steps on these connections work, wherever the DSN leads later.
    """

    url: str = field(repr=False)
    direct: bool = True
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
            direct=not settings.pgbouncer,
            connect_timeout=settings.connect_timeout,
            lock_timeout=settings.lock_timeout,
            tcp_user_timeout=settings.tcp_user_timeout,
            expected=expected,
        )

    def for_listening(self, settings: Settings) -> Self | None:
        """Return the access for LISTEN of a process with these settings and this access.

        None: it leads through a pooler in transaction mode, which does not support LISTEN.
        """
        if settings.listen_url is not None:
            return type(self)(settings.listen_url.get_secret_value())
        return None if settings.pgbouncer else self

    def parameters(self, name: str) -> dict[str, Any]:
        """Return the parameters of a connection in autocommit mode with this application name.

        Raises ConfigurationError, which contains no part of the DSN, if the DSN is invalid.
        """
        try:
            check_dsn(self.url)
        except RefusedError as error:
            problem = Problem(field="url", message=error.problem, remedy=error.remedy)
            raise ConfigurationError([problem]) from None
        return {
            **session_settings.CONNECTION,
            "connect_timeout": str(max(2, round(self.connect_timeout.total_seconds()))),
            "tcp_user_timeout": self._tcp_user_timeout,
            "application_name": name,
            **conninfo.conninfo_to_dict(self.url),
            "client_encoding": "UTF8",
            "autocommit": True,
            "prepare_threshold": 1 if self.direct else None,
        }

    @property
    def _tcp_user_timeout(self) -> str:
        return str(round(self.tcp_user_timeout.total_seconds() * 1000))

    def connect(
        self, name: str = "cronledger", *, role_settings: bool = False
    ) -> psycopg.Connection:
        """Return a blocking connection in autocommit mode, for commands, migrations and handlers.

        Its transactions are READ COMMITTED; `transaction` sets what else a command needs.
        `role_settings`: see `connect_async`.
        """
        connection = psycopg.connect(**self.parameters(name))
        try:
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            if settings := self._session_settings(role_settings=role_settings):
                connection.execute(_select(settings))
        except BaseException:
            connection.close()
            raise
        return connection

    async def connect_async(self, name: str, *, role_settings: bool = False) -> StepConnection:
        """Return a connection in autocommit mode, whose transactions are READ COMMITTED.

        `role_settings`: the other settings are those of its role. A handler may rely on them, and
        behind a pooler a client shares its sessions with other programs.
        """
        connection = await StepConnection.connect(**self.parameters(name))
        try:
            settings = self._session_settings(role_settings=role_settings)
            await self._configure(connection, settings, for_steps=not role_settings)
        except BaseException:
            await connection.close()
            raise
        return connection

    def pool(self, name: str, size: int) -> AsyncPool:
        """Return a closed pool of `size` connections in autocommit mode.

        Open it in the loop that uses it.
        """

        async def configure(connection: AsyncConnection[Any]) -> None:
            settings = self._session_settings(role_settings=False)
            if self.direct:
                # Keepalives do not detect a lost host while data is being sent. Not for handlers,
                # because it would also end a client that pauses while it reads a result.
                settings = {**settings, "tcp_user_timeout": self._tcp_user_timeout}
            started = await self._configure(connection, settings, for_steps=True)
            if started is not None:
                pool.note_server(started)

        pool = AsyncPool(
            kwargs=self.parameters(name),
            min_size=size,
            max_size=size,
            timeout=self.connect_timeout.total_seconds() + 5,
            # Short, because its waits double. The next request for a connection tries again.
            reconnect_timeout=1,
            configure=configure,
            open=False,
            name=name,
        )
        return pool

    def _session_settings(self, *, role_settings: bool) -> Mapping[str, str]:
        """Return the settings for the whole connection."""
        if not self.direct:  # a pooler keeps only these for each of its clients
            return {} if role_settings else session_settings.DATES
        return session_settings.SERVER_KEEPALIVES if role_settings else session_settings.SESSION

    async def _configure(
        self, connection: AsyncConnection[Any], settings: Mapping[str, str], *, for_steps: bool
    ) -> datetime | None:
        """Set up a new connection.

        Return when its server process started, if it is `for_steps` and leads to no pooler.
        """
        assert isinstance(connection, StepConnection)
        connection.expected, connection.lock_timeout = self.expected, self.lock_timeout
        if for_steps:
            connection.cursor_factory = StepCursor  # type: ignore[assignment]
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if not settings:
            return None
        timer = asyncio.get_running_loop().call_later(
            self.connect_timeout.total_seconds(), shutdown_socket, connection
        )
        try:
            await connection.execute(_select(settings))
            if not for_steps or not self.direct:
                return None
            # A statement of its own, because now the search_path is set.
            cursor = await connection.execute(
                f"SELECT pg_postmaster_start_time(), {session_settings.ENABLE_ALL_PLANS}".encode()
            )
            row = await cursor.fetchone()
        finally:
            timer.cancel()
        return None if row is None else row[0]


def _select(settings: Mapping[str, str]) -> bytes:
    return f"SELECT {session_settings.set_expressions(settings, local=False)}".encode()


def connect(url: str, name: str = "cronledger") -> psycopg.Connection:
    """Return a blocking connection in autocommit mode with the default timeouts.

    It may lead through PgBouncer. A command repeats few statements, so it does not need prepared
    ones.
    """
    return Access(url, direct=False).connect(name)


def dsn_of(settings: Settings) -> str:
    """Return the DSN of the settings. Raises ConfigurationError if there is none."""
    url = settings.require_database()
    if url != EMBEDDED:
        return url
    raise ConfigurationError(
        [
            Problem(
                None, None, "CRONLEDGER_DATABASE_URL", EMBEDDED,
                "only commands start an embedded server",
                "keep `cronledger dev` or `cronledger run` running in another terminal, and set "
                "CRONLEDGER_DATABASE_URL to the connection string in its first lines",
            )
        ]
    )  # fmt: skip
