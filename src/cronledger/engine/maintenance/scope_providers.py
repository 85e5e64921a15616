"""Scope providers: which scopes a job has, asked from the program that declares it."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from cronledger.engine.threads import Returned, Threads
from cronledger.ledger.database import (
    BAD_VALUE_ERRORS,
    RETRYABLE_ERRORS,
    STANDS_STILL_SECONDS,
    AsyncPool,
    step_transaction,
)
from cronledger.ledger.statements import Connection, Statements, array
from cronledger.logger import get_logger
from cronledger.rules.model import Job
from cronledger.rules.outcome import clean_text
from cronledger.settings import masked

log = get_logger(__name__)

EVERY_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
"""A provider is waited for so long: its turn is an open transaction."""
MOST_SAID = 2000
"""Characters of an error that are kept."""
NO_CHANGE = (0, 0, 0)
FEW = 1000
"""A longer list is read in a thread: the event loop starts executions meanwhile."""


Call = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function in a thread."""


class Listed(NamedTuple):
    """The scope_ids that a provider answered, as the statements take them. `digest` is what
    compare_scopes computes of the ledger's."""

    ids: str
    digest: str


class ScopeProviders:
    """One step asks every provider and stores what changed, and how each call ended.

    A provider that raises, takes too long, or answers something else than names retires nothing,
    and keeps no other provider from being asked. One runner asks at a time: the turn is a lock of
    the transaction in which the answer is stored. `providers` may change between two steps and
    during one.
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
        """No provider is asked any more. A call that still runs is not waited for."""
        self._threads.close()

    async def step(self) -> float | None:
        """Answers the seconds until the next round; None: there are no providers."""
        if not self._providers:
            return None
        for job, provider in tuple(self._providers.values()):
            await self._ask(job, provider)
        return EVERY_SECONDS

    async def _ask(self, job: Job, provider: Callable[[], Any]) -> None:
        """Raises psycopg.Error, except for a refused value and for locks that others hold."""
        try:
            changed = await self._update(job, provider)
        except (*BAD_VALUE_ERRORS, *RETRYABLE_ERRORS) as error:
            log.exception("scopes_not_stored", job=job.name)
            async with self._turn(job) as c:
                if c is not None:
                    await self._record(c, job, f"the scopes could not be stored: {error}")
            return
        if any(changed):
            appeared, returned, retired = changed
            log.info(
                "scopes_changed",
                job=job.name,
                appeared=appeared,
                returned=returned,
                retired=retired,
            )

    @asynccontextmanager
    async def _turn(self, job: Job) -> AsyncIterator[Connection | None]:
        """Yield the connection of a transaction in which no other runner asks for these scopes;
        None: one does, or this is another database than the ledger's own.
        """
        async with (
            self._pool.connection() as c,
            step_transaction(c, stands_still=PATIENCE_SECONDS + STANDS_STILL_SECONDS),
        ):
            turn = await (await self._statements.take_turn(c, f"scopes of {job.name}")).fetchone()
            yield c if turn is not None and turn[0] else None

    async def _update(self, job: Job, provider: Callable[[], Any]) -> tuple[int, ...]:
        """Ask, unless another runner does; how many scopes appeared, returned and retired."""
        async with self._turn(job) as c:
            if c is None:
                return NO_CHANGE
            try:
                async with asyncio.timeout(PATIENCE_SECONDS) as patience:
                    listed = await _listed(await _answer(provider, self._thread_of(job)))
            except Exception as error:
                log.exception("scope_provider_failed", job=job.name)
                said = f"{type(error).__name__}: {error}"
                if patience.expired():
                    said = f"it did not return within {PATIENCE_SECONDS:g} s"
                await self._record(c, job, said)
                return NO_CHANGE
            if self._providers.get(job.name, (None,))[0] is not job:
                return NO_CHANGE  # its App went meanwhile
            changed = await self._store(c, job, listed)
            await self._record(c, job, None)
            return changed

    def _thread_of(self, job: Job) -> Call:
        """Return what calls a provider in a thread. A call that hangs is not repeated until it
        returns: a thread more each minute would be lost to it.
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
            raise RuntimeError(f"it raised {error!r}") from error  # SystemExit, say

        return call

    async def _store(self, c: Connection, job: Job, listed: Listed) -> tuple[int, ...]:
        """How many scopes appeared, returned and retired. Where the ledger has this list already,
        the list is not even sent."""
        s = self._statements
        cursor = await s.compare_scopes(c, job.name, job.scope_kind, listed.digest)
        differs = await cursor.fetchone()
        if differs is None or not differs[0]:
            return NO_CHANGE
        changed = await s.set_scopes(c, job.name, job.scope_kind, listed.ids)
        return await changed.fetchone() or NO_CHANGE

    async def _record(self, c: Connection, job: Job, error: str | None) -> None:
        """`error` None: the provider returned a list of scopes."""
        said = None if error is None else masked(clean_text(error, MOST_SAID))
        await self._statements.record_scopes_asked(c, job.name, self._runner, said)


async def _answer(provider: Callable[[], Any], call: Call) -> Iterable[str]:
    """What the provider returns; `call` calls one that is no coroutine function."""
    if not inspect.iscoroutinefunction(provider):
        answer = await call(provider)
        return await answer if inspect.isawaitable(answer) else answer  # type: ignore[no-any-return]
    try:
        return await provider()  # type: ignore[no-any-return]
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"it raised {error!r}") from error


async def _listed(answer: Iterable[str]) -> Listed:
    if isinstance(answer, Collection) and len(answer) <= FEW:
        return _read(answer)
    return await asyncio.to_thread(_read, answer)


def _read(answer: Iterable[str]) -> Listed:
    """Raises ValueError for something else than names, TypeError for what is not iterable."""
    if isinstance(answer, str):
        raise ValueError(f"{answer!r} is one text, not a list of scope_ids")
    for scope in (scopes := list(answer)):
        if not isinstance(scope, str) or not 0 < len(scope) <= 200:
            raise ValueError(f"scope_id {scope!r} is not a text of 1 to 200 characters")
        if clean_text(scope) != scope:
            raise ValueError(f"scope_id {scope!r} has a NUL or a lone surrogate in it")
    scopes = sorted(set(scopes))
    text = "".join([f"{len(scope)}:{scope}" for scope in scopes])
    return Listed(array(scopes), sha256(text.encode()).hexdigest())
