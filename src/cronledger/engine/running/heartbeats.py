"""The heartbeats of a runner: they extend leases, and stop the handlers of lost or expired ones.

The heartbeat thread has its own event loop and its own connection. Otherwise a handler that blocks
the main loop would cost the other executions their leases.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import psycopg

from cronledger.engine.event import Event
from cronledger.engine.lease import NEVER, Lease, Leases
from cronledger.engine.log_throttle import LogThrottle, reason
from cronledger.ledger.access import Access
from cronledger.ledger.connections import is_disconnected, shutdown_socket
from cronledger.ledger.rows import LeaseKey
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

LARGEST_BATCH = 1000
LONGEST_SPAN = timedelta(days=1)


def batches(due: Sequence[Lease]) -> Iterator[list[Lease]]:
    """Split the due leases into one batch for each statement.

    The leases of a batch are close in time, because the server opens every partition between the
    first and the last one.
    """
    batch: list[Lease] = []
    for lease in sorted(due, key=lambda x: x.claimed.key.plan_time):
        plan_time = lease.claimed.key.plan_time
        if batch and (
            len(batch) >= LARGEST_BATCH or plan_time - batch[0].claimed.key.plan_time > LONGEST_SPAN
        ):
            yield batch
            batch = []
        batch.append(lease)
    if batch:
        yield batch


class Heartbeats:
    """Extends all leases of a runner from a thread of its own, and stops the handlers of lost ones.

    Event, which this thread emits: `extended`, the new deadlines by token. `stop` of a lease is
    called in this thread, too. `errors`: the rounds that failed since the start.
    """

    RETRY = 0.25
    IDLE = 5.0

    def __init__(self, access: Access, statements: Statements, leases: Leases) -> None:
        self._access = access
        self._statements = statements
        self._leases = leases
        self.extended = Event[[Mapping[str, float]]]()
        self._connection: Connection | None = None
        self._busy: asyncio.Task[None] | None = None
        self._steps_at = NEVER
        self._stopping = False
        self._lines = LogThrottle()
        self.errors = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def wake(self) -> None:
        """Make the thread step now."""
        loop, event = self._loop, self._wake
        if loop is not None and event is not None and not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    def added(self, leases: Iterable[Lease]) -> None:
        """Make the thread step now if a heartbeat of these new leases is due before its next step.

        Mostly none is, and a change of threads for each claim would take more time than the claim.
        """
        if any(lease.next_beat < self._steps_at for lease in leases):
            self.wake()

    def reported(self, lease: Lease) -> None:
        """Make the thread step now if the progress is to be stored before its next step.

        Thread-safe: handlers report from their threads.
        """
        self.added([lease])

    def renew_now(self) -> None:
        """Extend every lease now. The replies show which executions have a cancel request."""
        self._leases.renew_now()
        self.wake()

    def close(self, timeout: float = 5.0) -> None:
        """Stop the thread and wait for its end. Idempotent."""
        self._stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        while not self._stopping:
            self._steps_at = NEVER  # this step may not see a lease that is added meanwhile
            try:
                delay = self.step()
            except Exception:
                # The thread has to survive, because without it every lease would end.
                self.errors += 1
                log.exception("heartbeats_crashed")
                delay = self.RETRY
            self._steps_at = monotonic() + delay
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
        if self._busy is not None:
            self._shut_down_socket()
            await asyncio.wait([self._busy], timeout=1)
            self._busy.cancel()  # it is connecting or sleeping
            await asyncio.wait([self._busy])
        await self._disconnect()

    def step(self) -> float:
        """Stop the handlers whose lease expired, and begin a round of heartbeats if one is due.

        The round is a task beside the steps, because a connection that hangs must not delay the
        deadlines. Return the seconds until the next step.
        """
        now = monotonic()
        for lease in self._leases.expired(now):
            lease.stop("lease_lost")
        if self._busy is None or self._busy.done():
            due = self._leases.due(now)
            if due:
                self._busy = asyncio.ensure_future(self._round(due))
                self._busy.add_done_callback(lambda _: self.wake())
            elif not len(self._leases):
                self._leases.failing = None  # there is nothing left to extend
        busy = self._busy is not None and not self._busy.done()
        following = self._leases.next_moment(beats=not busy)
        return max(0.0, min(following - monotonic(), self.IDLE))

    async def _round(self, due: list[Lease]) -> None:
        patience = max(1.0, min(lease.length for lease in due) / 3)
        # A cancelled statement would wait for the server again. A closed socket ends it at once.
        timer = asyncio.get_running_loop().call_later(patience, self._shut_down_socket)
        try:
            for batch in batches(due):
                await self._beat(batch, patience)
            if self._leases.failing is not None:
                log.info("heartbeats_resumed", leases=len(due))
            self._leases.failing = None
        except Exception as error:  # noqa: BLE001 - the next round has to follow in any case
            self._failed(error)
            await self._disconnect()
            await asyncio.sleep(self.RETRY)
        finally:
            timer.cancel()

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        why = reason(error)
        begins, self._leases.failing = self._leases.failing is None, why
        if self._lines.due(why) or begins:
            self._lines.note(why)
            known = isinstance(error, psycopg.Error | OSError)
            log.warning("heartbeats_failed", error=why, exc_info=None if known else error)

    async def _beat(self, batch: list[Lease], patience: float) -> None:
        connection = await self._connected(patience)
        keys = [LeaseKey(x.claimed.key, x.token, x.job.stale_timeout) for x in batch]
        reported = {x.token: found for x in batch if (found := x.unstored) is not None}
        progress = [reported.get(x.token) for x in batch] if reported else ()
        sent = monotonic()
        async with step_transaction(connection):
            result = await self._statements.heartbeat_leases(connection, keys, progress)
        rows = await result.fetchall()
        deadlines = self._leases.renew((row.token for row in rows), sent, reported)
        if deadlines:
            self.extended({str(token): deadline for token, deadline in deadlines.items()})
        missing = {lease.token: lease for lease in batch}
        for row in rows:
            lease = missing.pop(row.token)
            if row.cancel_requested:
                lease.stop("cancelled")
        if missing:
            await self._check_missing(connection, list(missing.values()))

    async def _check_missing(self, connection: Connection, missing: list[Lease]) -> None:
        """Determine whether the rows that were not returned are locked, or their lease is lost."""
        result = await self._statements.read_leases(
            connection, [x.claimed.key for x in missing], [x.token for x in missing]
        )
        ours = {
            state.token: state
            for state in await result.fetchall()
            # Only the holder writes SUCCESS, so this runner finished it and has no reply yet.
            if state.ours and state.status in ("RUNNING", "SUCCESS")
        }
        # An outcome may be committed, and its reply under way. The finisher looks for it itself.
        ended = {lease.token for lease in missing if lease.ended}
        self._leases.postpone(ours.keys() | ended, monotonic() + self.RETRY)
        for lease in missing:
            if lease.token in ours:
                if ours[lease.token].cancel_requested:
                    lease.stop("cancelled")
            elif lease.token not in ended and self._leases.lose(lease.token) is not None:
                log.warning("lease_lost", **lease.log_fields)
                lease.stop("lease_lost")

    def _shut_down_socket(self) -> None:
        if self._connection is not None:
            shutdown_socket(self._connection)

    async def _connected(self, patience: float) -> Connection:
        if self._connection is not None and is_disconnected(self._connection):
            await self._disconnect()  # the server closed it while it was idle
        if self._connection is None:
            async with asyncio.timeout(patience):
                self._connection = await self._access.connect_async("cronledger heartbeats")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()
