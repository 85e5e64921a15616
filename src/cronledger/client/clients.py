"""`Client` and `AsyncClient`: the ledger for programs, without and with an event loop."""

from typing import Self

from cronledger.client.verbs import Verbs
from cronledger.ledger.access import Access, dsn_of
from cronledger.ledger.callers import AsyncCaller, SyncCaller
from cronledger.ledger.senders import AsyncSender, R, Sender
from cronledger.settings import Settings
from cronledger.tracing.interface import tracing_of


class Client(Verbs[Sender]):
    """The ledger for a program: `with Client(url) as client: client.enqueue("ship", {"id": 7})`.

    With `url`, each call is a transaction of its own. The client opens a connection when a call
    needs one, keeps it for the next call, and has at most ten. Threads may share the client. A
    forked process opens connections of its own; fork while no call is in progress. `close`, and
    the end of a `with` block, close the connections.

    With `connection`, each call is part of the transaction of the caller, and the client commits
    nothing. It is a psycopg connection, or a connection or session of SQLAlchemy or Django that
    uses psycopg 3.

    `actor` names who acts, such as `"ann@example.com"` or the name of the program. The audit trail
    records it for calls of operator functions, in place of the role of the session.

    Without either, the url is that of `settings`, which are by default those of the environment.

    Each method raises LedgerError if the ledger refuses the call (NotFoundError: an unknown job,
    scope or execution). Its text has the remedy. It raises psycopg.Error for a connection that
    fails, and for a conflict with another transaction. A refusal on `connection` aborts the
    transaction of the caller, as each statement does that fails.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: SyncCaller | None = None,
        settings: Settings | None = None,
        actor: str | None = None,
    ) -> None:
        super().__init__(_sender(Sender, url, connection, settings))
        self.sender.actor = actor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's own connections. A later call raises RuntimeError."""
        self.sender.close()


class AsyncClient(Verbs[AsyncSender]):
    """`Client` for an event loop: `async with AsyncClient(url) as client: await client.enqueue(…)`.

    The arguments, the results and the errors are those of `Client`. The tasks of one event loop may
    share it, and another loop may use it after the first one is closed. `connection` is a psycopg
    AsyncConnection, or an AsyncConnection or AsyncSession of SQLAlchemy that uses psycopg 3.

    `why` and `next` compute in a thread, so that they do not block the loop. Their statements run
    on the loop and on the connection of the client, as those of the other methods.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: AsyncCaller | None = None,
        settings: Settings | None = None,
        actor: str | None = None,
    ) -> None:
        super().__init__(_sender(AsyncSender, url, connection, settings))
        self.sender.actor = actor

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client's own connections. A later call raises RuntimeError."""
        await self.sender.close()


def _sender(
    kind: type[R], url: str | None, connection: object | None, settings: Settings | None
) -> R:
    if url is not None and connection is not None:
        raise TypeError("the client has a url and a connection; pass one of them")
    settings = settings or Settings.load()
    schema, tracing = settings.schema_name, tracing_of(settings)
    if connection is not None:
        return kind.of_caller(connection, schema, tracing)
    access = Access.from_settings(settings, dsn_of(settings) if url is None else url)
    return kind.connecting(access, schema, access.for_listening(settings), tracing)
