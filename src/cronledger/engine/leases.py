"""The leases a runner holds: the one object that threads share, under one lock.

The heartbeat thread has an event loop and a connection of its own, so that a handler that blocks
the main loop does not cost the other executions their leases.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal
from uuid import UUID

import psycopg
import structlog

from cronledger.ledger.database import Access, step_transaction
from cronledger.ledger.rows import Claimed, LeaseKey
from cronledger.ledger.statements import Connection, Statements
from cronledger.rules.model import Job

log = structlog.get_logger(__name__)

Stop = Literal["timeout", "cancelled", "lease_lost", "shutdown"]

MARGIN_SHARE = 0.1
MARGIN_MOST = 2.0
LARGEST_BATCH = 1000


def margin(stale_timeout: float) -> float:
    """Seconds before the end of its lease by which a handler must be dead."""
    return min(MARGIN_MOST, stale_timeout * MARGIN_SHARE)


@dataclass(eq=False, slots=True)
class Lease:
    """The right to write one execution, as long as `deadline` (monotonic) has not passed.

    The deadline counts from before the last good heartbeat was sent, so it lies before the
    database's stale_after by the way there and the margin.
    """

    claimed: Claimed
    job: Job
    queue: str
    deadline: float
    beat_at: float
    stop: Callable[[Stop], None] = field(repr=False)
    stopped: bool = False
    held: bool = True

    @property
    def token(self) -> UUID:
        return self.claimed.token

    @property
    def length(self) -> float:
        return self.job.stale_timeout.total_seconds()

    def renew(self, sent: float) -> None:
        self.beat_at = sent
        self.deadline = sent + self.length - margin(self.length)


class Leases:
    """The set of held leases. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Lease] = {}
        self.lost = 0

    def add(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            self._held.update((lease.token, lease) for lease in leases)

    def remove(self, token: UUID) -> None:
        with self._lock:
            lease = self._held.pop(token, None)
            if lease is not None:
                lease.held = False

    def tokens(self) -> list[UUID]:
        with self._lock:
            return list(self._held)

    def all(self) -> list[Lease]:
        with self._lock:
            return list(self._held.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def due(self, now: float) -> list[Lease]:
        """Leases whose heartbeat is due: a third of their length since the last good one."""
        with self._lock:
            return [
                lease for lease in self._held.values() if now >= lease.beat_at + lease.length / 3
            ]

    def hurry(self) -> None:
        """Every heartbeat is due now."""
        with self._lock:
            for lease in self._held.values():
                lease.beat_at = min(lease.beat_at, monotonic() - lease.length / 3)

    def renew(self, tokens: Iterable[UUID], sent: float) -> dict[UUID, float]:
        """Move the deadlines of those still held; answers their new deadlines."""
        with self._lock:
            renewed = {}
            for token in tokens:
                lease = self._held.get(token)
                if lease is not None and not lease.stopped:
                    lease.renew(sent)
                    renewed[token] = lease.deadline
            return renewed

    def lose(self, token: UUID) -> Lease | None:
        """Forget a lease that is not ours any more; None if it was not held (its finish came
        between the heartbeat and its answer)."""
        with self._lock:
            lease = self._held.pop(token, None)
            if lease is not None:
                lease.held = False
                self.lost += 1
            return lease

    def expired(self, now: float) -> list[Lease]:
        """Leases past their deadline whose handler was not told yet; marks them as told."""
        with self._lock:
            over = [x for x in self._held.values() if now >= x.deadline and not x.stopped]
            for lease in over:
                lease.stopped = True
            return over

    def next_moment(self) -> float | None:
        """The next monotonic time at which a heartbeat or a deadline is due."""
        with self._lock:
            moments = [
                min(x.beat_at + x.length / 3, float("inf") if x.stopped else x.deadline)
                for x in self._held.values()
            ]
        return min(moments, default=None)


class Heartbeats:
    """Renews all leases of a runner from a thread of its own, and tells the handlers of lost ones.

    `extend` is told the new deadlines by token (for the supervisor of commands); `stop` of a
    lease is called in this thread.
    """

    RETRY = 0.25
    IDLE = 5.0

    def __init__(
        self,
        access: Access,
        statements: Statements,
        leases: Leases,
        extend: Callable[[Mapping[str, float]], None],
    ) -> None:
        self._access = access
        self._statements = statements
        self._leases = leases
        self._extend = extend
        self._connection: Connection | None = None
        self._busy: asyncio.Task[None] | None = None
        self._stopping = False
        self._away = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def wake(self) -> None:
        """Look again now: a lease was added whose moments come earlier."""
        loop, event = self._loop, self._wake
        if loop is not None and event is not None and not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    def look_now(self) -> None:
        """Renew every lease now: somebody asked for the end of an execution."""
        self._leases.hurry()
        self.wake()

    def close(self, timeout: float = 5.0) -> None:
        """The thread has ended. Idempotent."""
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
            delay = self.step()
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), delay)
        if self._busy is not None:
            self._busy.cancel()
            await asyncio.wait([self._busy])
        await self._disconnect()

    def step(self) -> float:
        """Stop what ran out, begin a round of heartbeats if one is due; answers the seconds until
        the next look. The round runs beside the looks: a hanging connection must not delay the
        deadlines."""
        now = monotonic()
        for lease in self._leases.expired(now):
            log.warning("lease_expired", **_bound(lease), overdue_s=round(now - lease.deadline, 3))
            lease.stop("lease_lost")
        if self._busy is None or self._busy.done():
            due = self._leases.due(now)
            if due:
                self._busy = asyncio.ensure_future(self._round(due))
        following = self._leases.next_moment()
        if following is None:
            return self.IDLE
        return max(0.01, min(following - monotonic(), self.IDLE)) if following > now else 0.05

    async def _round(self, due: list[Lease]) -> None:
        # The oldest lease may lie weeks back; it would widen the bounds of everybody's partitions.
        due.sort(key=lambda lease: lease.claimed.key.plan_time)
        timeout = max(1.0, min(lease.length for lease in due) / 3)
        try:
            async with asyncio.timeout(timeout):
                for start in range(0, len(due), LARGEST_BATCH):
                    await self._beat(due[start : start + LARGEST_BATCH])
            if self._away:
                self._away = False
                log.info("heartbeats_resumed", leases=len(due))
        except (psycopg.Error, TimeoutError, OSError) as error:
            if not self._away:
                self._away = True
                log.warning("heartbeats_failing", error=str(error) or type(error).__name__)
            await self._disconnect()
            await asyncio.sleep(self.RETRY)

    async def _beat(self, batch: list[Lease]) -> None:
        connection = await self._connected()
        keys = [LeaseKey(x.claimed.key, x.token, x.job.stale_timeout) for x in batch]
        sent = monotonic()
        async with step_transaction(connection, 2000):
            answer = await self._statements.heartbeat_leases(connection, keys)
        rows = await answer.fetchall()
        renewed = self._leases.renew((token for token, _ in rows), sent)
        if renewed:
            self._extend({str(token): deadline for token, deadline in renewed.items()})
        by_token = {lease.token: lease for lease in batch}
        for token, cancel_requested in rows:
            if cancel_requested:
                by_token.pop(token).stop("cancelled")
            else:
                by_token.pop(token)
        if by_token:
            await self._read_silent(connection, list(by_token.values()), sent)

    async def _read_silent(self, connection: Connection, silent: list[Lease], sent: float) -> None:
        """Rows that were not renewed are busy or lost; reading them tells which."""
        answer = await self._statements.read_leases(
            connection, [x.claimed.key for x in silent], [x.token for x in silent]
        )
        ours = {
            state.token: state
            for state in await answer.fetchall()
            if state.ours and state.status == "RUNNING"
        }
        for lease in silent:
            if lease.token in ours:
                if ours[lease.token].cancel_requested:
                    lease.stop("cancelled")
            elif self._leases.lose(lease.token) is not None:
                log.warning("lease_lost", **_bound(lease))
                lease.stop("lease_lost")

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._access.connect_async("cronledger heartbeats")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, TimeoutError, OSError):
                async with asyncio.timeout(1):
                    await connection.close()


def _bound(lease: Lease) -> dict[str, object]:
    claimed = lease.claimed
    return {
        "job": claimed.key.job_name,
        "scope": claimed.key.scope_id,
        "execution_id": claimed.id,
        "attempt": claimed.attempt,
    }
