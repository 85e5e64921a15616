"""A lease, the right to write one execution, and the set of leases that a runner holds.

A lease is created when an execution is claimed, extended by heartbeats, checked while the handler
runs, and ended when the outcome is written. `Leases` is the one object that threads share, under
one lock.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal
from uuid import UUID

from cronledger.ledger.rows import Claimed
from cronledger.rules.model import Job

Stop = Literal["timeout", "cancelled", "lease_lost", "shutdown"]

MARGIN_SHARE = 0.1
MARGIN_MOST = 2.0
NEVER = float("inf")


def margin(stale_timeout: float) -> float:
    """Seconds before the end of its lease by which a handler must be dead."""
    return min(MARGIN_MOST, stale_timeout * MARGIN_SHARE)


@dataclass(eq=False, slots=True)
class Lease:
    """The right to write one execution, as long as `deadline` has not passed.

    `sent`: when the claim or the last good heartbeat was sent. `deadline` counts from there, so it
    lies before the database's stale_after by the way there and the margin. `next_beat`: when the
    next heartbeat is due. All three are monotonic seconds.
    `stopped`: the deadline has passed and the handler was stopped. The deadline does not move any
    more, though the lease is kept until the handler has ended.
    `stop` asks the handler to end, from any thread. The executor sets it before it adds the lease
    to those that are held.
    """

    claimed: Claimed
    job: Job
    sent: float
    deadline: float = field(init=False)
    next_beat: float = field(init=False)
    stop: Callable[[Stop], None] = field(init=False, repr=False)
    stopped: bool = field(default=False, init=False)
    held: bool = field(default=True, init=False)

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
        self._renew_asked = 0.0
        self.lost = 0

    def add(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._held[lease.token] = lease
                self._catch_up(lease)

    def _catch_up(self, lease: Lease) -> None:
        # A heartbeat sent before `renew_now` may not have seen the reason for it. Nor was a claim
        # held yet whose COMMIT others saw before its answer arrived here.
        if lease.sent < self._renew_asked:
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

    def renew_now(self) -> None:
        """Every heartbeat is due now; those whose answer, or whose claim's, is under way too."""
        with self._lock:
            self._renew_asked = monotonic()
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
