"""A lease, the right to write one execution, and the set of leases that a runner holds.

A lease is created when an execution is claimed. Heartbeats extend it, and it ends when the outcome
is written. `Leases` is the only object that threads share, under one lock.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Literal
from uuid import UUID

from cronledger.ledger.claim_rows import Claimed
from cronledger.logs.loggers import get_logger
from cronledger.rules.model import Job
from cronledger.rules.progress import Progress

log = get_logger(__name__)

Stop = Literal["timeout", "cancelled", "lease_lost", "shutdown"]

MARGIN_SHARE = 0.1
MARGIN_MOST = 2.0
NEVER = float("inf")
PROGRESS_SECONDS = 2.0
"""The least time between two heartbeats of a lease that store its progress."""


def margin(stale_timeout: float) -> float:
    """Return the seconds before the end of a lease by which its handler must have ended."""
    return min(MARGIN_MOST, stale_timeout * MARGIN_SHARE)


@dataclass(eq=False, slots=True)
class Lease:
    """The right to write one execution, until `deadline` has passed.

    `sent`: when the claim or the last successful heartbeat was sent. `deadline` counts from there,
    so it lies before the database's stale_after by the network delay and the margin. `next_beat`:
    when the next heartbeat is due. All three are monotonic seconds.
    `stop` requests the end of the handler, from any thread. The executor sets it before it adds the
    lease to `Leases`.
    `stopped`: the deadline has passed, and the handler was requested to end. The deadline does not
    move any more, but the lease is kept until the handler has ended.
    `held`: the lease is in `Leases`, or will be added to it.
    `ended`: the handler has ended, and the finisher has the outcome.
    `expired`: how long it had not been renewed when its deadline passed, in seconds, and the error
    of the heartbeats.
    `traceparent`: that of the span that enqueued the execution. `trace_id`: that of the attempt.
    Both are None without traces.
    `progress`: what the handler has reported last. `stored`: the last report that a
    heartbeat took along.
    """

    claimed: Claimed
    job: Job
    sent: float
    traceparent: str | None = None
    deadline: float = field(init=False)
    next_beat: float = field(init=False)
    stop: Callable[[Stop], None] = field(init=False, repr=False)
    stopped: bool = field(default=False, init=False)
    held: bool = field(default=True, init=False)
    ended: bool = field(default=False, init=False)
    expired: tuple[float, str | None] | None = field(default=None, init=False)
    trace_id: str | None = field(default=None, init=False)
    progress: Progress | None = field(default=None, init=False)
    stored: Progress | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.renew(self.sent)

    @property
    def token(self) -> UUID:
        return self.claimed.token

    @property
    def queue(self) -> str:
        return self.claimed.queue

    @property
    def length(self) -> float:
        return self.job.stale_timeout.total_seconds()

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of a log line about this execution."""
        return {
            "job": self.claimed.key.job_name,
            "scope": self.claimed.key.scope_id,
            "execution_id": self.claimed.id,
            "attempt": self.claimed.attempt,
        }

    @property
    def usable(self) -> bool:
        """Return whether the handler may continue. Any thread may read this."""
        return self.held and not self.stopped and monotonic() < self.deadline

    @property
    def unstored(self) -> Progress | None:
        """Return the progress that no heartbeat has taken along yet, or None."""
        return None if self.progress is self.stored else self.progress

    def renew(self, sent: float) -> None:
        """Restart the lease at `sent`, the monotonic instant before its statement was sent."""
        self.sent, self.next_beat = sent, sent + self.length / 3
        if not self.stopped:
            self.deadline = sent + self.length - margin(self.length)


class Leases:
    """The set of held leases. Every method may be called from any thread.

    `failing`: the error of the last round of heartbeats, or None if it succeeded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Lease] = {}
        self._renew_requested = 0.0
        self.failing: str | None = None
        self.lost = 0

    def add(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._held[lease.token] = lease
                self._apply_renew_now(lease)

    def _apply_renew_now(self, lease: Lease) -> None:
        # A heartbeat that was sent before `renew_now` may not have seen the reason for it. A claim
        # may have been visible to others before its reply arrived and its lease was added here.
        if lease.sent < self._renew_requested:
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
        """Return the leases whose heartbeat is due: a third of their length after the last one."""
        with self._lock:
            return [lease for lease in self._held.values() if now >= lease.next_beat]

    def renew_now(self) -> None:
        """Make every heartbeat due now, even if the reply to the last one is outstanding."""
        with self._lock:
            self._renew_requested = monotonic()
            for lease in self._held.values():
                lease.next_beat = 0.0

    def report(self, lease: Lease, progress: Progress) -> bool:
        """Let the next heartbeat take this progress along.

        Return whether the heartbeat comes earlier therefore. It does not for the next reports, so
        that a handler may report as often as it likes.
        """
        with self._lock:
            is_first = lease.unstored is None
            lease.progress = progress
            earliest = 0.0 if lease.stored is None else lease.sent + PROGRESS_SECONDS
            if not is_first or lease.next_beat <= earliest:
                return False
            lease.next_beat = earliest
            return True

    def renew(
        self,
        tokens: Iterable[UUID],
        sent: float,
        stored: Mapping[UUID, Progress] = MappingProxyType({}),
    ) -> dict[UUID, float]:
        """Extend these leases. Return the new deadlines of those still held and not stopped.

        `stored`: the progress that the heartbeats took along.
        """
        with self._lock:
            renewed = {}
            for token in tokens:
                lease = self._held.get(token)
                if lease is None:
                    continue
                lease.renew(sent)
                lease.stored = stored.get(token, lease.stored)
                if lease.unstored is not None:  # reported meanwhile
                    lease.next_beat = min(lease.next_beat, sent + PROGRESS_SECONDS)
                self._apply_renew_now(lease)
                if not lease.stopped:
                    renewed[token] = lease.deadline
            return renewed

    def postpone(self, tokens: Iterable[UUID], until: float) -> None:
        """Delay the next heartbeat of these leases, because other transactions hold their rows."""
        with self._lock:
            for token in tokens:
                if token in self._held:
                    self._held[token].next_beat = until

    def lose(self, token: UUID) -> Lease | None:
        """Remove a lease that belongs to another holder now, and return it.

        Return None if it was not held: it was finished between the heartbeat and its reply.
        """
        with self._lock:
            lease = self._held.pop(token, None)
            if lease is not None:
                lease.held = False
                self.lost += 1
            return lease

    def expired(self, now: float) -> list[Lease]:
        """Mark the leases past their deadline as stopped. Log and return the newly marked ones."""
        with self._lock:
            over = [x for x in self._held.values() if now >= x.deadline and not x.stopped]
            for lease in over:
                self._mark(lease, now)
        for lease in over:
            _log_expired(lease, now)
        return over

    def expire(self, lease: Lease) -> None:
        """Mark a lease as stopped, and log it, unless it was marked or lost before.

        A handler calls this when it sees the end of its lease before the heartbeat thread does.
        """
        now = monotonic()
        with self._lock:
            if lease.stopped or not lease.held:
                return
            self._mark(lease, now)
        _log_expired(lease, now)

    def _mark(self, lease: Lease, now: float) -> None:
        lease.stopped = True  # a heartbeat that succeeds later does not extend it
        lease.expired = now - lease.sent, self.failing

    def next_moment(self, *, beats: bool) -> float:
        """Return the monotonic instant of the next deadline, or (`beats`) of the next heartbeat.

        NEVER if there is none.
        """
        with self._lock:
            moments = [x.deadline for x in self._held.values() if not x.stopped]
            if beats:
                moments += [x.next_beat for x in self._held.values()]
        return min(moments, default=NEVER)


def _log_expired(lease: Lease, now: float) -> None:
    overdue = max(0.0, now - lease.deadline)  # the supervisor's deadline may lie before it
    log.warning("lease_expired", **lease.log_fields, overdue_s=round(overdue, 3))
