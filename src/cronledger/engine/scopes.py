"""Scope providers: which scopes a job has, asked from the program that declares it."""

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from cronledger.ledger.database import AsyncPool, step_transaction
from cronledger.ledger.statements import Connection, Statements, array
from cronledger.logger import get_logger
from cronledger.rules.model import Job
from cronledger.rules.outcome import clean_text

log = get_logger(__name__)

EVERY_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
"""A provider is waited for so long: its turn is an open transaction."""
FEW = 1000
"""A longer list is read in a thread: the event loop starts executions meanwhile."""


class Listed(NamedTuple):
    """The scope_ids that a provider answered, as the statements take them. `digest` is what
    compare_scopes computes of the ledger's."""

    ids: str
    digest: str


class Scopes:
    """One step asks every provider and stores what changed.

    A provider that raises, takes too long, or answers something else than names retires nothing.
    One runner asks at a time: the turn is a lock of the transaction in which the answer is stored.
    `providers` may change between two steps and during one.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        providers: Mapping[str, tuple[Job, Callable[[], Any]]],
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._providers = providers

    async def step(self) -> float | None:
        """Answers the seconds until the next round; None: there are no providers."""
        if not self._providers:
            return None
        for job, provider in tuple(self._providers.values()):
            await self._ask(job, provider)
        return EVERY_SECONDS

    async def _ask(self, job: Job, provider: Callable[[], Any]) -> None:
        async with (
            self._pool.connection() as c,
            step_transaction(c, stands_still=2 * PATIENCE_SECONDS),
        ):
            turn = await (await self._statements.take_turn(c, f"scopes of {job.name}")).fetchone()
            if turn is None or not turn[0]:
                return
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    listed = await _listed(await _answer(provider))
            except Exception:
                log.exception("scope_provider_failed", job=job.name)
                return
            if self._providers.get(job.name, (None,))[0] is not job:
                return  # its App went meanwhile
            changed = await self._store(c, job, listed)
        if any(changed):
            appeared, returned, retired = changed
            log.info(
                "scopes_changed",
                job=job.name,
                appeared=appeared,
                returned=returned,
                retired=retired,
            )

    async def _store(self, c: Connection, job: Job, listed: Listed) -> tuple[int, ...]:
        """How many scopes appeared, returned and retired. Where the ledger has this list already,
        the list is not even sent."""
        s = self._statements
        cursor = await s.compare_scopes(c, job.name, job.scope_kind, listed.digest)
        differs = await cursor.fetchone()
        if differs is None or not differs[0]:
            return 0, 0, 0
        changed = await s.set_scopes(c, job.name, job.scope_kind, listed.ids)
        return await changed.fetchone() or (0, 0, 0)


async def _answer(provider: Callable[[], Any]) -> Iterable[str]:
    if inspect.iscoroutinefunction(provider):
        return await provider()  # type: ignore[no-any-return]
    answer = await asyncio.to_thread(provider)
    return await answer if inspect.isawaitable(answer) else answer  # type: ignore[no-any-return]


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
