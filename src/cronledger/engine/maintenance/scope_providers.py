"""Scope providers: functions of the program that return the scopes of its jobs."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from cronledger.engine.threads import Returned, Threads
from cronledger.ledger.arrays import array
from cronledger.ledger.connections import AsyncPool, StepConnection, Transaction
from cronledger.ledger.database_errors import BAD_VALUE_ERRORS, RETRYABLE_ERRORS
from cronledger.ledger.rows import ScopeChanges
from cronledger.ledger.session_settings import SILENT_CLIENT_SECONDS
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules.masks import masked
from cronledger.rules.model import Job
from cronledger.rules.outcome import clean_text

log = get_logger(__name__)

EVERY_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
"""The longest time that a provider may take, because its turn is an open transaction."""
LONGEST_ERROR = 2000
"""The number of characters of an error that are kept."""
NO_CHANGE = ScopeChanges(0, 0, 0)
FEW = 1000
"""A longer list is read in a thread, so that the event loop can start executions meanwhile."""


Call = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function in a thread."""


class Listed(NamedTuple):
    """The scope_ids that a provider returned, as an array literal.

    `compare_scopes` computes the `digest` of the ledger's scopes in the same way.
    """

    ids: str
    digest: str


class ScopeProviders:
    """Each step calls every provider, and stores the changes and the outcome of each call.

    A provider that raises, takes too long, or returns anything but scope_ids retires no scope and
    does not block the calls of others. One runner at a time calls a provider. Its turn is a lock of
    the transaction in which the result is stored. `providers` may change at any time.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        providers: Mapping[str, tuple[Job, Callable[[], Any]]],
        *,
        runner: str,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._providers = providers
        self._runner = runner
        self._threads = Threads("scope provider")
        self._calls: dict[str, asyncio.Future[Returned]] = {}

    def close(self) -> None:
        """Stop calling providers, and do not wait for a call that still runs."""
        self._threads.close()

    async def step(self) -> float | None:
        """Call every provider. Return the seconds until the next step, None if there are none."""
        if not self._providers:
            return None
        for job, provider in tuple(self._providers.values()):
            await self._refresh(job, provider)
        return EVERY_SECONDS

    async def _refresh(self, job: Job, provider: Callable[[], Any]) -> None:
        """Update the scopes of one job.

        Raises psycopg.Error, except for a refused value and for locks that others hold.
        """
        try:
            changed = await self._update(job, provider)
        except (*BAD_VALUE_ERRORS, *RETRYABLE_ERRORS) as error:
            log.exception("scopes_not_stored", job=job.name)
            async with self._turn(job) as c:
                if c is not None:
                    await self._record(c, job, f"the scopes could not be stored: {error}")
            return
        if any(changed):
            log.info("scopes_changed", job=job.name, **changed._asdict())

    @asynccontextmanager
    async def _turn(self, job: Job) -> AsyncIterator[Connection | None]:
        """Yield the connection of a transaction in which no other runner calls this provider.

        Yield None if another runner does, or if this database is not the ledger's own.
        """
        step = f"scopes of {job.name}"
        async with self._pool.connection() as c:
            async with self._transaction(c):
                taken = await (await self._statements.take_turn(c, step)).fetchone()
                if taken is not None:
                    yield c if taken else None
                    return
            # Committed at once, so that another runner finds the row and does not wait for it.
            async with step_transaction(c):
                await self._statements.add_turn(c, step)
            async with self._transaction(c):
                taken = await (await self._statements.take_turn(c, step)).fetchone()
                yield c if taken else None

    @staticmethod
    def _transaction(c: StepConnection) -> AbstractAsyncContextManager[Transaction]:
        return step_transaction(c, silence=PATIENCE_SECONDS + SILENT_CLIENT_SECONDS)

    async def _update(self, job: Job, provider: Callable[[], Any]) -> ScopeChanges:
        """Call the provider, unless another runner does, and store the changes."""
        async with self._turn(job) as c:
            if c is None:
                return NO_CHANGE
            try:
                async with asyncio.timeout(PATIENCE_SECONDS) as patience:
                    listed = await _listed(await _call(provider, self._thread_of(job)))
            except Exception as error:
                log.exception("scope_provider_failed", job=job.name)
                text = f"{type(error).__name__}: {error}"
                if patience.expired():
                    text = f"it did not return within {PATIENCE_SECONDS:g} s"
                await self._record(c, job, text)
                return NO_CHANGE
            if self._providers.get(job.name, (None,))[0] is not job:
                return NO_CHANGE  # its App was removed meanwhile
            changed = await self._store(c, job, listed)
            await self._record(c, job, None)
            return changed

    def _thread_of(self, job: Job) -> Call:
        """Return a function that calls a provider in a thread.

        A provider that hangs is not called again until it returns. Otherwise each step would lose
        another thread.
        """

        async def call(provider: Callable[[], Any]) -> Any:
            before = self._calls.get(job.name)
            if before is not None and not before.done():
                raise TimeoutError("an earlier call has not returned yet")
            self._calls[job.name] = self._threads.call(provider)
            result, error = await asyncio.shield(self._calls[job.name])
            if error is None:
                return result
            if isinstance(error, Exception):
                raise error
            raise RuntimeError(f"it raised {error!r}") from error  # such as SystemExit

        return call

    async def _store(self, c: Connection, job: Job, listed: Listed) -> ScopeChanges:
        """Store the list. It is not sent if the ledger has the same one."""
        s = self._statements
        differs = await s.compare_scopes(c, job.name, job.scope_kind, listed.digest)
        if not await differs.fetchone():
            return NO_CHANGE
        changed = await s.set_scopes(c, job.name, job.scope_kind, listed.ids)
        return await changed.fetchone() or NO_CHANGE

    async def _record(self, c: Connection, job: Job, error: str | None) -> None:
        """Record the outcome of a call. `error` is None if the provider returned scopes."""
        text = None if error is None else masked(clean_text(error, LONGEST_ERROR))
        await self._statements.record_scopes_asked(c, job.name, self._runner, text)


async def _call(provider: Callable[[], Any], in_thread: Call) -> Iterable[str]:
    """Call the provider and return its result. A sync function is called with `in_thread`."""
    if not inspect.iscoroutinefunction(provider):
        result = await in_thread(provider)
        return await result if inspect.isawaitable(result) else result  # type: ignore[no-any-return]
    try:
        return await provider()  # type: ignore[no-any-return]
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"it raised {error!r}") from error


async def _listed(result: Iterable[str]) -> Listed:
    if isinstance(result, Collection) and len(result) <= FEW:
        return _read(result)
    return await asyncio.to_thread(_read, result)


def _read(result: Iterable[str]) -> Listed:
    """Return the list. Raises TypeError if it is not iterable, ValueError for other values."""
    if isinstance(result, str):
        raise ValueError(f"{result!r} is a string; return a list of scope_ids")
    for scope in (scopes := list(result)):
        if not isinstance(scope, str) or not 0 < len(scope) <= 200:
            raise ValueError(f"scope_id {scope!r} is not a string of 1 to 200 characters")
        if clean_text(scope) != scope:
            raise ValueError(f"scope_id {scope!r} contains a NUL or a lone surrogate")
    scopes = sorted(set(scopes))
    text = "".join([f"{len(scope)}:{scope}" for scope in scopes])
    return Listed(array(scopes), sha256(text.encode()).hexdigest())
