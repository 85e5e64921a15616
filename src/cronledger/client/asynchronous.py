"""`AsyncClient`: the ledger for programs with an event loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload
from uuid import UUID

from cronledger.client import explanations
from cronledger.client.waiting import wait_async
from cronledger.explain.why import Answer
from cronledger.ledger import calls
from cronledger.ledger.access import Access, dsn_of
from cronledger.ledger.callers import AsyncCaller
from cronledger.ledger.calls import Cancelled, Retried
from cronledger.ledger.reports import Reports, Row
from cronledger.ledger.senders import AsyncCallerSender, AsyncOwnSender, AsyncSender, HasSender
from cronledger.ledger.values import Execution, SkippedRange
from cronledger.rules.cron import Firing
from cronledger.rules.model import GLOBAL
from cronledger.settings import Settings
from cronledger.tracing.interface import tracing_of

T = TypeVar("T")


class AsyncClient(HasSender[AsyncSender]):
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
    ) -> None:
        if url is not None and connection is not None:
            raise TypeError("AsyncClient has a url and a connection; pass one of them")
        settings = settings or Settings.load()
        tracing = tracing_of(settings)
        if connection is not None:
            super().__init__(AsyncCallerSender(connection, settings.schema_name, tracing))
            return
        access = Access.from_settings(settings, dsn_of(settings) if url is None else url)
        schema, listens = settings.schema_name, access.for_listening(settings)
        super().__init__(AsyncOwnSender(access, schema, settings.lock_timeout, listens, tracing))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client's own connections. A later call raises RuntimeError."""
        await self.sender.close()

    # --- input ----------------------------------------------------------------------------------

    @overload
    async def enqueue(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        group_id: UUID | None = None,
        due_at: datetime | None = None,
    ) -> int: ...
    @overload
    async def enqueue(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        watermark: int | None,
        group_id: UUID | None = None,
    ) -> int | None: ...
    async def enqueue(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        watermark: int | None = None,
        group_id: UUID | None = None,
        due_at: datetime | None = None,
    ) -> int | None:
        """Enqueue work for a job, and return the id of the execution that does it."""
        return await self.sender.send(
            calls.enqueue(
                job, payload, key=key, scope=scope, scope_kind=scope_kind, watermark=watermark,
                group_id=group_id, due_at=due_at,
            )
        )  # fmt: skip

    @overload
    async def enqueue_many(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        group_id: UUID | None = None,
    ) -> list[int]: ...
    @overload
    async def enqueue_many(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        watermarks: Sequence[int | None] | None,
        group_id: UUID | None = None,
    ) -> list[int | None]: ...
    async def enqueue_many(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        watermarks: Sequence[int | None] | None = None,
        group_id: UUID | None = None,
    ) -> list[Any]:
        """Enqueue an item for each payload in one transaction, and return their ids in order."""
        made = await self.sender.send_all(
            calls.enqueue_many(
                job, payloads, keys=keys, scopes=scopes, scope_kind=scope_kind,
                watermarks=watermarks, group_id=group_id,
            )
        )  # fmt: skip
        return [one for part in made for one in part]

    # --- operator functions ---------------------------------------------------------------------

    async def trigger(
        self,
        job: str,
        payload: object = None,
        *,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        force: bool = False,
        require_runner: bool = False,
    ) -> int:
        """Create one execution of a job, due now, and return its id."""
        return await self.sender.send(
            calls.trigger(
                job, payload, scope=scope, scope_kind=scope_kind, force=force,
                require_runner=require_runner,
            )
        )  # fmt: skip

    async def wait(
        self,
        execution_id: int,
        timeout: float | None = None,  # noqa: ASYNC109 - that of `Client`, which names the execution
    ) -> Execution:
        """Wait until an execution has ended and is not retried by itself, and return it."""
        return await wait_async(self.sender, execution_id, timeout)

    async def pause(
        self, job: str, reason: str | None = None, *, until: datetime | None = None
    ) -> bool:
        """Pause a job until it is resumed, or until an instant. Running executions finish."""
        return await self.sender.send(calls.pause(job, reason, until=until))

    async def resume(self, job: str) -> bool:
        """Resume a job. Return False if it was not paused."""
        return await self.sender.send(calls.resume(job))

    async def cancel(self, execution_id: int) -> Cancelled:
        """Request that an execution ends, and return what became of the request."""
        return await self.sender.send(calls.cancel(execution_id))

    async def retry(self, execution_id: int, *, force: bool = False) -> Retried:
        """Give a FAILED or CANCELLED execution one more attempt, which is due now."""
        return await self.sender.send(calls.retry(execution_id, force=force))

    # --- reports --------------------------------------------------------------------------------

    async def execution(self, execution_id: int) -> Execution:
        """Return one execution. Raises NotFoundError."""
        return await self.sender.send(calls.execution(execution_id))

    async def executions(
        self,
        job: str | None = None,
        *,
        scope: str | None = None,
        statuses: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Return executions with plan_time in [`since`, `until`), the newest rows first."""
        return await self.sender.send(
            calls.executions(
                job, scope=scope, statuses=statuses, since=since, until=until, limit=limit
            )
        )

    async def skips(
        self,
        job: str | None = None,
        *,
        scope: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
    ) -> list[SkippedRange]:
        """Return skips whose range reaches into [`since`, `until`), the latest first."""
        return await self.sender.send(
            calls.skips(job, scope=scope, since=since, until=until, limit=limit)
        )

    async def why(
        self,
        job: str,
        at: datetime,
        *,
        until: datetime | None = None,
        scope: str | None = None,
        limit: int = 20,
    ) -> list[Answer]:
        """Explain why a job ran, or did not run, in [`at`, `until`), with a paragraph per scope."""
        return await self._computed(
            lambda reports: explanations.why(
                reports, job, at=at, until=until, scope=scope, limit=limit
            )
        )

    async def next(
        self,
        job: str,
        count: int = 10,
        *,
        after: datetime | None = None,
        scope: str | None = None,
    ) -> list[Firing]:
        """Return the first `count` firings of a job after an instant, by default after now."""
        return await self._computed(
            lambda reports: explanations.next_firings(
                reports, job, count=count, after=after, scope=scope
            )
        )

    async def _computed(self, compute: Callable[[Reports], T]) -> T:
        """Return what `compute` returns in a thread, whose reports are read on this loop.

        Once a caller has cancelled it, the thread reads nothing more. A connection of the caller
        may then belong to somebody else.
        """
        loop = asyncio.get_running_loop()
        reading: asyncio.Task[Any] | None = None
        cancelled = False

        async def rows(name: str, params: Mapping[str, object]) -> list[Row]:
            nonlocal reading
            if cancelled:
                raise asyncio.CancelledError
            reading = asyncio.current_task()
            return await self.sender.send(calls.report(name, params))

        def read(name: str, params: Mapping[str, object]) -> list[Row]:
            return asyncio.run_coroutine_threadsafe(rows(name, params), loop).result()

        try:
            return await asyncio.to_thread(compute, Reports(read))
        except asyncio.CancelledError:
            cancelled = True
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
            raise
