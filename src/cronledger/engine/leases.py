"""The leases a runner holds: the one object that threads share, under one lock.

The heartbeat thread has an event loop and a connection of its own, so that a handler that blocks
the main loop does not cost the other executions their leases.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Literal
from uuid import UUID

import psycopg

from cronledger.engine.trouble import Sparing, reason
from cronledger.ledger.database import Access, ended, sever, step_transaction
from cronledger.ledger.rows import Claimed, LeaseKey
from cronledger.ledger.statements import Connection, Statements
from cronledger.logger import get_logger
from cronledger.rules.model import Job

log = get_logger(__name__)

Stop = Literal["timeout", "cancelled", "lease_lost", "shutdown"]

MARGIN_SHARE = 0.1
MARGIN_MOST = 2.0
LARGEST_BATCH = 1000
LONGEST_SPAN = timedelta(days=1)
NEVER = float("inf")


def margin(stale_timeout: float) -> float:
    """Seconds before the end of its lease by which a handler must be dead."""
    return min(MARGIN_MOST, stale_timeout * MARGIN_SHARE)


@dataclass(eq=False, slots=True)
class Lease:
    """The right to write one execution, as long as `deadline` (monotonic) has not passed.

    The deadline counts from before the last good heartbeat was sent, so it lies before the
    database's stale_after by the way there and the margin. `next_beat` (monotonic): when the next
    heartbeat is due. `sent` (monotonic): when the claim or heartbeat that it counts from was sent.
    `stopped`: the deadline passed and the handler was told; it is not moved any
    more, though the row is kept until the handler has ended.
    """

    claimed: Claimed
    job: Job
    queue: str
    deadline: float
    next_beat: float
    stop: Callable[[Stop], None] = field(repr=False)
    sent: float = 0.0
    stopped: bool = False
    held: bool = True

    @property
    def token(self) -> UUID:
        return self.claimed.token

    @property
    def length(self) -> float:
        return self.job.stale_timeout.total_seconds()

    @property
    def usable(self) -> bool:
        """Whether the handler may go on. Any thread may ask."""
        return self.held and not self.stopped and monotonic() < self.deadline

    def renew(self, sent: float) -> None:
        """The lease counts from `sent`, monotonic, when its claim or heartbeat was sent."""
        self.sent, self.next_beat = sent, sent + self.length / 3
        if not self.stopped:
            self.deadline = sent + self.length - margin(self.length)


class Leases:
    """The set of held leases. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Lease] = {}
        self._hurried = 0.0
        self.lost = 0

    def add(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._held[lease.token] = lease
                self._catch_up(lease)

    def _catch_up(self, lease: Lease) -> None:
        # Asked before the hurry, it may not have seen what the hurry is about; and a claim whose
        # COMMIT others saw before its answer came here was not among the held ones to be hurried.
        if lease.sent < self._hurried:
            lease.next_beat = 0.0

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
            return [lease for lease in self._held.values() if now >= lease.next_beat]

    def hurry(self) -> None:
        """Every heartbeat is due now; those whose answer, or whose claim's, is under way too."""
        with self._lock:
            self._hurried = monotonic()
            for lease in self._held.values():
                lease.next_beat = 0.0

    def renew(self, tokens: Iterable[UUID], sent: float) -> dict[UUID, float]:
        """Move the deadlines of those still held and not stopped; answers their new deadlines."""
        with self._lock:
            renewed = {}
            for token in tokens:
                lease = self._held.get(token)
                if lease is None:
                    continue
                lease.renew(sent)
                self._catch_up(lease)
                if not lease.stopped:
                    renewed[token] = lease.deadline
            return renewed

    def postpone(self, tokens: Iterable[UUID], until: float) -> None:
        """The next heartbeat of these is due then: their rows are busy."""
        with self._lock:
            for token in tokens:
                if token in self._held:
                    self._held[token].next_beat = until

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

    def next_moment(self, *, beats: bool) -> float:
        """When the next deadline passes or (`beats`) a heartbeat is due, monotonic; inf: never."""
        with self._lock:
            moments = [x.deadline for x in self._held.values() if not x.stopped]
            if beats:
                moments += [x.next_beat for x in self._held.values()]
        return min(moments, default=NEVER)


def batches(due: Sequence[Lease]) -> Iterator[list[Lease]]:
    """`due` in statements: one lease that lies weeks back would make the server open every
    partition between for all the others."""
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
    """Renews all leases of a runner from a thread of its own, and tells the handlers of lost ones.

    `extend` is told the new deadlines by token (for the supervisor of commands); `stop` of a
    lease is called in this thread. `failing`: why the last round failed; None if it did not.
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
        self._lines = Sparing()
        self.failing: str | None = None
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
            try:
                delay = self.step()
            except Exception:
                # Without this thread every lease would end.
                log.exception("heartbeats_broke")
                delay = self.RETRY
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
        if self._busy is not None:
            self._sever()
            await asyncio.wait([self._busy], timeout=1)
            self._busy.cancel()  # it is connecting, or asleep
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
                self._busy.add_done_callback(lambda _: self.wake())
            elif not len(self._leases):
                self.failing = None  # there is nothing to renew any more
        busy = self._busy is not None and not self._busy.done()
        following = self._leases.next_moment(beats=not busy)
        return max(0.0, min(following - monotonic(), self.IDLE))

    async def _round(self, due: list[Lease]) -> None:
        patience = max(1.0, min(lease.length for lease in due) / 3)
        # Cancelling a statement would wait for the server once more; a cut socket ends it at once.
        timer = asyncio.get_running_loop().call_later(patience, self._sever)
        try:
            for batch in batches(due):
                await self._beat(batch, patience)
            if self.failing is not None:
                log.info("heartbeats_resumed", leases=len(due))
            self.failing = None
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round comes
            self._failed(error)
            await self._disconnect()
            await asyncio.sleep(self.RETRY)
        finally:
            timer.cancel()

    def _failed(self, error: Exception) -> None:
        why = reason(error)
        begins, self.failing = self.failing is None, why
        if self._lines.due(why) or begins:
            self._lines.note(why)
            known = isinstance(error, psycopg.Error | OSError)
            log.warning("heartbeats_failing", error=why, exc_info=None if known else error)

    async def _beat(self, batch: list[Lease], patience: float) -> None:
        connection = await self._connected(patience)
        keys = [LeaseKey(x.claimed.key, x.token, x.job.stale_timeout) for x in batch]
        sent = monotonic()
        async with step_transaction(connection, 2000):
            answer = await self._statements.heartbeat_leases(connection, keys)
        rows = await answer.fetchall()
        renewed = self._leases.renew((token for token, _ in rows), sent)
        if renewed:
            self._extend({str(token): deadline for token, deadline in renewed.items()})
        silent = {lease.token: lease for lease in batch}
        for token, cancel_requested in rows:
            lease = silent.pop(token)
            if cancel_requested:
                lease.stop("cancelled")
        if silent:
            await self._read_silent(connection, list(silent.values()))

    async def _read_silent(self, connection: Connection, silent: list[Lease]) -> None:
        """Rows that were not renewed are busy or lost; reading them tells which."""
        answer = await self._statements.read_leases(
            connection, [x.claimed.key for x in silent], [x.token for x in silent]
        )
        ours = {
            state.token: state
            for state in await answer.fetchall()
            # Only its holder writes SUCCESS: our own finish, whose answer is under way.
            if state.ours and state.status in ("RUNNING", "SUCCESS")
        }
        self._leases.postpone(ours, monotonic() + self.RETRY)
        for lease in silent:
            if lease.token in ours:
                if ours[lease.token].cancel_requested:
                    lease.stop("cancelled")
            elif self._leases.lose(lease.token) is not None:
                log.warning("lease_lost", **_bound(lease))
                lease.stop("lease_lost")

    def _sever(self) -> None:
        if self._connection is not None:
            sever(self._connection)

    async def _connected(self, patience: float) -> Connection:
        if self._connection is not None and ended(self._connection):
            await self._disconnect()  # it was idle for too long
        if self._connection is None:
            async with asyncio.timeout(patience):
                self._connection = await self._access.connect_async("cronledger heartbeats")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()


def _bound(lease: Lease) -> dict[str, object]:
    claimed = lease.claimed
    return {
        "job": claimed.key.job_name,
        "scope": claimed.key.scope_id,
        "execution_id": claimed.id,
        "attempt": claimed.attempt,
    }
