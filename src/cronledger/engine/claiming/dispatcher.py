"""The dispatcher: claims what is due and hands it to the executor, one step at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

import psycopg

from cronledger.engine.claiming.claim import LARGEST_CLAIM, Claim, Claimer
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.lease import Lease
from cronledger.ledger import identity
from cronledger.logger import get_logger

log = get_logger(__name__)

NOT_HERE_SECONDS = 30.0
YIELD_SECONDS = 0.005
BUSY_SECONDS = 0.02


@dataclass(slots=True)
class Ticks:
    """What the dispatcher did, for people. `lag_s`: how long after its due_at the latest of the
    executions started that the last claim won for the first time; None: none was won yet."""

    steps: int = 0
    won: int = 0
    stolen: int = 0
    retried: int = 0
    skipped: int = 0
    last_step: float = field(default_factory=monotonic)
    lag_s: float | None = None


class Dispatcher:
    """`step` claims at most as many executions as there are free slots.

    `free` returns the number of free slots and of all slots. `start` receives the leases that were
    claimed. `refused`: why the database refused the last claim, because it is not the ledger's own.
    """

    def __init__(
        self,
        claimer: Claimer,
        clock: DatabaseClock,
        *,
        free: Callable[[], tuple[int, int]],
        start: Callable[[Sequence[Lease]], None],
        poll: Callable[[], float],
    ) -> None:
        self._claimer = claimer
        self._clock = clock
        self._free = free
        self._start = start
        self._poll = poll
        self._not_here: dict[str, float] = {}
        self._saturated = False
        self.steal_at: datetime | None = None
        self.refused: str | None = None
        self.ticks = Ticks()
        self.wake = asyncio.Event()

    async def step(self) -> float | None:
        """Claim once. Answers the seconds until the next step; None: when woken.

        Raises psycopg.Error when the database is away; nothing is lost by that.
        """
        await self._claimer.settle_unknown()
        free, slots = self._free()
        if free <= 0:
            self._note_saturation(slots)
            return self._poll()
        self._saturated = False
        # Many runners wake for one instant: the less loaded goes first.
        if free < slots:
            await asyncio.sleep(YIELD_SECONDS * (slots - free) / slots)
        sent = monotonic()
        not_here = self._elsewhere()
        steal = self.steal_at is not None and self._clock.until(self.steal_at) == 0
        try:
            claim = await self._claimer.claim(
                free, min(free, LARGEST_CLAIM), steal=steal, not_here=not_here
            )
        except psycopg.Error as error:
            why = identity.refusal(error)
            if why is None:
                raise
            return self._refuse(why)
        self._admit()
        self._hand_over(claim)
        if steal:
            self.steal_at = None
        self.ticks.steps += 1
        self.ticks.last_step = monotonic()
        if claim.next_due is not None:
            self._clock.observe(claim.next_due.now, max(sent, claim.asked))
        return self._delay(claim)

    @property
    def saturated(self) -> bool:
        """Whether the last step found no free slot."""
        return self._saturated

    def reconsider(self) -> None:
        """Jobs that were left to other runners are looked at again: what this runner can run, or
        what the jobs are, has changed."""
        self._not_here.clear()
        self.wake.set()

    def _refuse(self, why: str) -> float:
        if self.refused is None:
            log.error("other_database", why=why, remedy=identity.ACCEPT)
        self.refused = why
        self.ticks.last_step = monotonic()
        return self._poll()

    def _admit(self) -> None:
        if self.refused is not None:
            log.info("database_accepted")
            self.refused = None

    def _elsewhere(self) -> list[str]:
        now = monotonic()
        self._not_here = {job: until for job, until in self._not_here.items() if until > now}
        return list(self._not_here)

    def _hand_over(self, claim: Claim) -> None:
        until = monotonic() + NOT_HERE_SECONDS
        self._not_here.update((job, until) for job in claim.round.not_here)
        for name in claim.round.no_runner:
            log.warning("job_without_runner", job=name)
        self.ticks.skipped += sum(skip.count for _, skip, _ in claim.round.skips)
        leases = []
        for row in claim.won:
            job = self._claimer.revisions.newest(row.key.job_name).job
            leases.append(Lease(row, job, claim.round.queues[row.token], claim.sent))
            self.ticks.won += row.how == "won"
            self.ticks.stolen += row.how == "stolen"
            self.ticks.retried += row.how == "retried"
        due = {new.token: new.due_at for new in claim.round.new}
        lags = [row.started_at - due[row.token] for row in claim.won if row.token in due]
        if lags:
            self.ticks.lag_s = max(lags).total_seconds()
        if leases:
            self._start(leases)

    def _delay(self, claim: Claim) -> float | None:
        if claim.round.not_here or claim.round.left or (claim.full and claim.round.writes):
            return 0
        due = claim.next_due
        moments = [] if due is None else [x for x in (due.due, due.again) if x is not None]
        if self.steal_at is not None:
            moments.append(self.steal_at)
        waits = [self._poll()]
        if claim.look_again is not None:
            waits.append(claim.look_again)
        if moments:
            waits.append(self._clock.until(min(moments)))
        if min(waits) == 0 and not claim.round.writes:
            return BUSY_SECONDS  # due and locked by another replica
        return min(waits)

    def _note_saturation(self, slots: int) -> None:
        if not self._saturated:
            self._saturated = True
            log.warning("slots_saturated", slots=slots)
