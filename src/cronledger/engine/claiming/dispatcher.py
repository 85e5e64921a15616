"""The dispatcher: claims what is due, step by step, and passes the leases to the executor."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

import psycopg

from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.claiming.request import ClaimResult
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.event import Event
from cronledger.engine.lease import Lease
from cronledger.engine.log_throttle import LogThrottle
from cronledger.ledger import identity
from cronledger.ledger.rows import CheckInReply
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

EXCLUDED_SECONDS = 30.0
"""The time for which the dispatcher ignores a job that is broken, or left to other runners."""
YIELD_SECONDS = 0.005
"""The wait of a fully loaded runner before a claim; the wait of others is proportional to their
load. Many runners wake at the same instant, and the least loaded one claims first. A claim that
follows a full one does not wait, so that the server reads while the handlers of the full one
run."""
BUSY_SECONDS = 0.02
"""The wait when another replica has locked everything that is due."""

REARMED_SECONDS = 0.2
"""The wait after a claim that parked a schedule and then found it unblocked. Not zero: a claim that
parks and a query that re-arms would repeat each other at once if they ever disagreed."""


@dataclass(slots=True)
class DispatcherStats:
    """The counters of the dispatcher since its start.

    `lag_s`: the longest time from due_at to start, in seconds, in the last claim with new
    executions. None before the first such claim.
    """

    steps: int = 0
    won: int = 0
    stolen: int = 0
    retried: int = 0
    skipped: int = 0
    last_step: float = field(default_factory=monotonic)
    lag_s: float | None = None


class Dispatcher:
    """Each `step` claims at most as many executions as there are free slots.

    `free` returns the number of free slots and of all slots. `rest` returns the longest time
    between two steps, in seconds; whatever comes due without the knowledge of this runner is found
    by its polls, which wake it. `steal_at`: when the next lease
    is stale, in database time. `next_at`: the database time for which the next step is planned;
    None during a step, and if nothing is known to come due. `refused`: the reason why the database
    refused the last claim as not the ledger's own, or None. `saturated`: the last step found no
    free slot. `starved`: it left no free slot; also true during a step, and after one that
    failed.

    Events: `claimed`, the result of a claim, and its time in seconds; `leased`, the leases that it
    has won; `gated`, executions wait for other jobs; `due_within`, the seconds in which a step has
    to begin.
    """

    def __init__(
        self,
        claimer: Claimer,
        clock: DatabaseClock,
        *,
        free: Callable[[], tuple[int, int]],
        rest: Callable[[], float],
    ) -> None:
        self._claimer = claimer
        self._clock = clock
        self._free = free
        self._rest = rest
        self._excluded_until: dict[str, float] = {}
        self.saturated = False
        self._goes_on = False
        self._lines = LogThrottle()
        self.starved = True
        self.steal_at: datetime | None = None
        self.next_at: datetime | None = None
        self.refused: str | None = None
        self.stats = DispatcherStats()
        self.wake = asyncio.Event()
        self.claimed = Event[[ClaimResult, float]]()
        self.leased = Event[[Sequence[Lease]]]()
        self.gated = Event[[]]()
        self.due_within = Event[[float]]()

    async def step(self) -> float:
        """Claim once. Return the seconds until the next step, unless the loop is woken.

        Raises psycopg.Error when the database is unreachable. The step can be repeated.
        """
        self.starved = True
        self.next_at = None
        goes_on, self._goes_on = self._goes_on, False
        await self._claimer.unknown_commits.resolve()
        free, slots = self._free()
        if free <= 0:
            self._note_saturation(slots)
            return self._rest()
        self.saturated = False
        if free < slots and not goes_on:
            await asyncio.sleep(YIELD_SECONDS * (slots - free) / slots)
        steal = self.steal_at is not None and self._clock.until(self.steal_at) == 0
        began = monotonic()
        try:
            result = await self._claimer.claim(
                free, steal=steal, excluded_jobs=self.excluded_jobs()
            )
        except psycopg.Error as error:
            why = identity.other_database_reason(error)
            if why is None:
                raise
            return self._note_refusal(why)
        self.claimed(result, monotonic() - began)
        self._note_acceptance()
        self._process(result)
        if steal:
            self.steal_at = None
        delay = self._delay(result)
        self._goes_on = delay == 0 and result.full
        if delay == 0 and self.starved:
            await asyncio.sleep(0)  # a handler that ends at once frees its slot
        return delay

    def reconsider(self) -> None:
        """Consider all ignored jobs again, from the next step on.

        Call this when the jobs or the functions of this runner have changed.
        """
        self._excluded_until.clear()
        self.search_all()

    def search_all(self) -> None:
        """Search for all due schedules in the next claim.

        Call this when one may have become due in the past.
        """
        self._claimer.low_water.forget()

    @property
    def due_from(self) -> datetime | None:
        """The instant before which this runner knows of no due schedule; None: unknown."""
        return self._claimer.low_water.instant(self.excluded_jobs())

    def slot_freed(self) -> None:
        """Claim again if the last claim left no free slot."""
        if self.starved:
            self.wake.set()

    def checked_in(self, reply: CheckInReply) -> None:
        """Claim what a check-in has found, perhaps without a notification."""
        self.steal_at = reply.stale
        if (reply.refused is None) != (self.refused is None):
            self.wake.set()  # the database was replaced or accepted
        elif reply.refused is None:
            if reply.stale is not None and reply.stale <= reply.now:
                self.wake.set()
            if reply.due is not None and self.due_from is not None and reply.due < self.due_from:
                self.search_all()
            # The clock is better known than when the next step was planned.
            for instant in (reply.due, self.next_at):
                if instant is not None:
                    self.due_within(self._clock.until(instant))

    def _note_refusal(self, why: str) -> float:
        if self.refused is None:
            log.error("other_database_found", reason=why, remedy=identity.ACCEPT)
        self.refused = why
        self.stats.last_step = monotonic()
        return self._rest()

    def _note_acceptance(self) -> None:
        if self.refused is not None:
            log.info("database_accepted")
            self.refused = None

    def _note_saturation(self, slots: int) -> None:
        if not self.saturated:
            self.saturated = True
            if self._lines.due("saturated"):
                log.warning("slots_saturated", slots=slots)

    def excluded_jobs(self) -> list[str]:
        """Return the jobs that this runner ignores for now."""
        now = monotonic()
        self._excluded_until = {job: x for job, x in self._excluded_until.items() if x > now}
        return list(self._excluded_until)

    def _process(self, result: ClaimResult) -> None:
        """Start the executions, and update the exclusions, the counters and the clock."""
        until = monotonic() + EXCLUDED_SECONDS
        self._excluded_until.update((job, until) for job in result.excluded_jobs)
        for job, host in result.decision.no_runner:
            where = {} if host is None else {"host": host}
            log.warning("job_without_runner", job=job, **where)
        self._count(result)
        if result.leases:
            self.leased(result.leases)
        if any(new.gated for new in result.decision.pending):
            self.gated()
        if result.next_due is not None:
            self._clock.observe(result.next_due.now, result.read_at)
        self.starved = self._free()[0] <= 0

    def _count(self, result: ClaimResult) -> None:
        stats = self.stats
        stats.steps += 1
        stats.last_step = monotonic()
        stats.skipped += sum(new.skip.count for new in result.decision.skips)
        for lease in result.leases:
            stats.won += lease.claimed.how == "won"
            stats.stolen += lease.claimed.how == "stolen"
            stats.retried += lease.claimed.how == "retried"
        if result.lateness:
            stats.lag_s = max(late for _, late in result.lateness).total_seconds()

    def _delay(self, result: ClaimResult) -> float:
        """Return the seconds until the next step."""
        left_to_others = result.excluded_jobs or result.decision.delegated
        if left_to_others or (result.full and result.writes):
            # Claim again at once. The jobs that were left to others took places in this claim, and
            # the next claim excludes them.
            return 0
        due = result.next_due
        waits = [self._rest()]
        if result.reconsider_after is not None:
            waits.append(result.reconsider_after)
        if result.rearmed:
            progress = result.leases or result.decision.pending
            waits.append(0.0 if progress else REARMED_SECONDS)
        moments = [self.steal_at, result.pause_at]
        if due is not None:
            moments += [self._planned(due.due, result), due.again]
        self.next_at = min((moment for moment in moments if moment is not None), default=None)
        if self.next_at is not None:
            waits.append(self._clock.until(self.next_at))
        if min(waits) == 0 and not result.writes:
            return BUSY_SECONDS
        return min(waits)

    def _planned(self, due: datetime | None, result: ClaimResult) -> datetime | None:
        """Return when to claim a schedule that is due then."""
        # Without progress, it was too early for what is due next, or another replica has it.
        lead = self._claimer.lead.time
        if due is None or not (self._clock.until(due) > lead.total_seconds() or result.writes):
            return due
        return due - lead
