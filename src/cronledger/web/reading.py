"""Reading for the page: bounded, read-only statements, and the last data while there is no new.

A *panel* is one statement with its parameters. However many people watch, a panel is read at most
once within its `fresh` seconds. A panel that takes long is read less often, and people have its
last rows meanwhile.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg.rows import dict_row

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import explained, is_unreachable
from cronledger.ledger.queries import calendar_keys
from cronledger.ledger.reports import ReadRows, Row, in_thread
from cronledger.ledger.senders import AsyncConnections
from cronledger.ledger.session_settings import COMMAND, set_expressions
from cronledger.logs.loggers import get_logger
from cronledger.rules.calendars import Calendars, by_key, named_in
from cronledger.rules.remedies import Surface

log = get_logger(__name__)

T = TypeVar("T")

PACKAGE = "cronledger.web"
NAME = "cronledger web"
MOST_CONNECTIONS = 4
MOST_PANELS = 300
"""Panels whose data is kept. The one that nobody has read for longest goes first."""
STATEMENT_SECONDS = 3
PATIENCE = 8.0
"""The longest time in seconds that a person waits for a panel, also if nothing answers."""
SLOW = 0.1
"""A panel that takes more seconds to read is slow."""
RESTS = 10
"""A slow panel is read again once it is this many times as old as its reading took."""
STALE = 30.0
"""The rows of a slow panel are returned for so many seconds more while it is read again. Older ones
are waited for."""
RETRY = 1.0
"""Seconds between two attempts to reach a database that is away."""

# A plan for all parameters would read all partitions, and could not use an index for a filter that
# may be NULL.
_SETTINGS = {
    **COMMAND,
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "plan_cache_mode": "force_custom_plan",
    # The planner underestimates the rows of a scope, and would sort its history instead of reading
    # the newest rows in the order of the key. The sorts that a page needs remain.
    "enable_sort": "off",
    # What a page reads is new, so it is in memory. With the default, a window of an hour would be
    # searched in the whole partition.
    "random_page_cost": "1.1",
}
_BEGIN = (
    "SELECT "
    + set_expressions(_SETTINGS, local=True)
    + ", {schema}.db_now() AS now, CASE WHEN pg_is_in_recovery()"
    " THEN coalesce(clock_timestamp() - pg_last_xact_replay_timestamp(), '0') END AS behind"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The data of one panel.

    `rows`: the last rows that were read; None: none were read yet. `now`: the database's time when
    they were read. `age`: seconds since then. `behind`: the age of the last change that a standby
    had then; None: it is no standby. `problem`: why there are no newer rows; None: there is nothing
    newer.
    """

    rows: list[Row] | None = None
    now: datetime | None = None
    age: float = 0.0
    behind: Any = None
    problem: str | None = None

    @property
    def known(self) -> list[Row]:
        """The last rows, or none."""
        return self.rows or []

    def first(self, most: int) -> list[Row]:
        """Return the rows without the one that was read to see whether there are more."""
        return self.known[:most]

    def has_more(self, most: int) -> bool:
        """Return whether there are more rows than `most`."""
        return len(self.known) > most


@dataclass(frozen=True, slots=True)
class Away:
    """A database that does not respond. `since`: on the clock of `time.monotonic`."""

    since: float
    reason: str


Fetch = Callable[[AsyncConnection[Any]], Awaitable[Reading]]


@dataclass(frozen=True, slots=True)
class Computed(Generic[T]):
    """What was computed from several statements, as in a Reading. `value` None: nothing yet."""

    value: T | None
    now: datetime | None
    age: float
    problem: str | None


@dataclass(slots=True, eq=False)
class _Panel:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tried_at: float = float("-inf")
    began_at: float = float("-inf")
    read_at: float = float("-inf")
    last: Reading = field(default_factory=Reading)
    problem: str | None = None

    def is_due(self, fresh: float, expired_at: float) -> bool:
        """Return whether its rows are older than `fresh`, or may be older than the expiry."""
        least = max(fresh, RESTS * self._took) if self.is_slow else fresh
        return monotonic() - self.tried_at >= least or self.began_at <= expired_at

    def may_be_shown(self, fresh: float, expired_at: float) -> bool:
        """Return whether a person need not wait while it is read again."""
        is_recent = monotonic() - self.read_at < fresh + STALE
        return self.is_slow and is_recent and self.began_at > expired_at

    @property
    def is_slow(self) -> bool:
        return self.problem is None and self._took > SLOW

    @property
    def _took(self) -> float:
        return self.read_at - self.began_at

    def reading(self) -> Reading:
        age = monotonic() - self.read_at if self.last.rows is not None else 0.0
        return Reading(self.last.rows, self.last.now, age, self.last.behind, self.problem)


class Reader:
    """Reads the statements of `web/sql`. The tasks of one event loop share it."""

    def __init__(self, access: Access, schema: str) -> None:
        self._connections = AsyncConnections(access, NAME, MOST_CONNECTIONS)
        self._schema = schema
        self._begin = _BEGIN.replace("{schema}", schema).encode()
        self._panels: OrderedDict[tuple[str, str], _Panel] = OrderedDict()
        self._renewals: set[asyncio.Task[None]] = set()
        self._expired_at = float("-inf")
        self._away: tuple[float, str] = (float("-inf"), "")
        self.away: Away | None = None
        """Since when, and why, the database does not respond; None: it responded last."""

    async def read(self, statement: str, *, fresh: float = 1.0, **params: object) -> Reading:
        """Return the rows of `sql/STATEMENT.sql`, which are at most `fresh` seconds old.

        Raises nothing that the database reports: it is the `problem` of the reading.
        """
        key = (statement, repr(sorted(params.items())))
        return await self._current(key, fresh, self._statement(statement, params))

    async def calendars(self, rows: Sequence[Row]) -> Calendars:
        """Return the revisions of calendars that these rows of jobs name."""
        keys = named_in(rows)
        if not keys:
            return {}
        return by_key((await self.read("read_calendars", fresh=60.0, **calendar_keys(keys))).known)

    async def compute(
        self, name: str, work: Callable[[ReadRows], T], *, fresh: float = 1.0, **params: object
    ) -> "Computed[T]":
        """Return what `work` makes of several statements of `ledger/sql` in one transaction.

        `work` runs in a thread, and its argument returns the rows of a statement. `name` and
        `params` identify the panel. Raises what `work` raises, except errors of the database, which
        are the `problem`.
        """
        key = (name, repr(sorted(params.items())))
        reading = await self._current(key, fresh, lambda c: self._worked(c, work))
        value = reading.known[0]["value"] if reading.known else None
        return Computed(value, reading.now, reading.age, reading.problem)

    async def read_once(self, statement: str, **params: object) -> Reading:
        """Return the rows of `sql/STATEMENT.sql` without keeping them, because they are many."""
        panel = _Panel()
        await self._refresh(panel, statement, self._statement(statement, params))
        return panel.reading()

    def lend(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Lend a connection to read several statements as one. Raises psycopg.Error."""
        return self._connections.lend()

    def expire(self) -> None:
        """Read every panel again when it is next asked for, because something was changed."""
        self._expired_at = monotonic()

    async def close(self) -> None:
        """Close the connections. A later `read` raises RuntimeError."""
        for renewal in self._renewals:
            renewal.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)
        await self._connections.close()

    def _panel(self, key: tuple[str, str]) -> _Panel:
        panel = self._panels.setdefault(key, _Panel())
        self._panels.move_to_end(key)
        while len(self._panels) > MOST_PANELS:
            self._panels.popitem(last=False)
        return panel

    async def _current(self, key: tuple[str, str], fresh: float, fetch: Fetch) -> Reading:
        """Return the rows of a panel, which are read if they are due."""
        panel = self._panel(key)
        if not panel.is_due(fresh, self._expired_at):
            return panel.reading()
        if panel.may_be_shown(fresh, self._expired_at):
            if not panel.lock.locked():
                renewal = asyncio.create_task(self._renew(panel, key[0], fresh, fetch))
                self._renewals.add(renewal)
                renewal.add_done_callback(self._renewed)
            return panel.reading()
        await self._renew(panel, key[0], fresh, fetch)
        return panel.reading()

    async def _renew(self, panel: _Panel, statement: str, fresh: float, fetch: Fetch) -> None:
        async with panel.lock:
            if panel.is_due(fresh, self._expired_at):
                await self._refresh(panel, statement, fetch)

    def _renewed(self, renewal: "asyncio.Task[None]") -> None:
        self._renewals.discard(renewal)
        if not renewal.cancelled():
            renewal.exception()  # what `work` raised is raised again once the rows are too old

    async def _refresh(self, panel: _Panel, statement: str, fetch: Fetch) -> None:
        if monotonic() < self._away[0]:
            panel.problem = self._away[1]
            return
        began = monotonic()
        try:
            async with asyncio.timeout(PATIENCE), self._connections.lend() as connection:
                panel.last = await fetch(connection)
        except (psycopg.Error, OSError, TimeoutError) as error:
            if panel.problem is None:
                log.warning("web_read_failed", statement=statement, error=str(error))
            panel.problem = self._problem(error)
        else:
            panel.problem, panel.read_at = None, monotonic()
            self.away = None
        panel.began_at, panel.tried_at = began, monotonic()

    def _statement(self, statement: str, params: Mapping[str, object]) -> Fetch:
        text = queries.text(statement, self._schema, PACKAGE).encode()

        async def rows(cursor: AsyncCursor[Row]) -> list[Row]:
            await cursor.execute(text, params or None, binary=True)
            return await cursor.fetchall()

        return lambda connection: self._in_transaction(connection, rows)

    async def _worked(
        self, connection: AsyncConnection[Any], work: Callable[[ReadRows], T]
    ) -> Reading:
        """Run `work` in a thread, which leaves its statements to this event loop."""

        async def run(cursor: AsyncCursor[Row]) -> list[Row]:
            async def rows(name: str, params: Mapping[str, object]) -> list[Row]:
                text = queries.text(name, self._schema).encode()
                await cursor.execute(text, params or None, binary=True)
                return await cursor.fetchall()

            return [{"value": await in_thread(rows, work)}]

        return await self._in_transaction(connection, run)

    async def _in_transaction(
        self, connection: AsyncConnection[Any],
        fetch: Callable[[AsyncCursor[Row]], Awaitable[list[Row]]],
    ) -> Reading:  # fmt: skip
        await connection.set_read_only(True)
        async with connection.transaction(), AsyncCursor(connection, row_factory=dict_row) as c:
            await c.execute(self._begin)
            begun = await c.fetchone()
            rows = await fetch(c)
        assert begun is not None
        return Reading(rows, begun["now"], 0.0, begun["behind"])

    def _problem(self, error: Exception) -> str:
        if isinstance(error, psycopg.Error) and not is_unreachable(error):
            self.away = None
            if isinstance(error, errors.QueryCanceled):
                return f"Reading this took longer than {STATEMENT_SECONDS} s, so it was stopped."
            return str(explained(error, Surface.PAGE))
        reason = f"nothing responded within {PATIENCE:.0f} s"
        if isinstance(error, psycopg.Error):
            reason = explained(error, Surface.PAGE).message
        self.away = Away(monotonic() if self.away is None else self.away.since, reason)
        text = "The database does not respond."
        self._away = (monotonic() + RETRY, text)
        return text
