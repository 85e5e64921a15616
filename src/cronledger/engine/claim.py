"""One claim: a transaction of three round trips that plans, settles and wins executions.

1. Lock what is due: stale leases, executions due again, schedules. 2. In new statements, read the
jobs, revisions, running executions and limits that belong to them: the locking statement still sees
what was before the locks. 3. Decide (`choose`), then write claims, skips and cursors, and COMMIT.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import structlog
from psycopg import errors

from cronledger.engine.choose import Abilities, Chooser, Held, Round
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.revisions import Revisions
from cronledger.ledger.database import POISON, AsyncPool, is_away, step_transaction
from cronledger.ledger.rows import Claimed, DueAgain, JobFacts, NextDue
from cronledger.ledger.statements import Connection, Rows, Statements
from cronledger.rules.model import ExecutionKey, ScheduleRow, ScopeKey

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim brought. `sent`: monotonic time before its writes were sent: the leases count
    from there. `full`: as many rows came as were asked for, so more may be due."""

    won: Sequence[Claimed]
    round: Round
    next_due: NextDue | None
    sent: float
    full: bool


class Claimer:
    """Claims for one runner. Holds the revisions it has read, and the claims of which it does not
    know whether their COMMIT landed."""

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        clock: DatabaseClock,
        abilities: Abilities,
        *,
        runner: str,
        queues: Sequence[str],
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._abilities = abilities
        self._runner = runner
        self._queues = queues
        self.revisions = Revisions(statements)
        self.in_flight = False
        self._unknown: dict[UUID, ExecutionKey] = {}

    async def claim(
        self, slots: int, max_rows: int, *, steal: bool, not_here: Collection[str]
    ) -> Claim:
        """Claim at most `slots` executions, looking at `max_rows` of each kind of due row.

        Raises psycopg.Error when nothing was committed, or when that is not known: then
        `settle_unknown` has to be called. A row whose values the database refuses does not cost the
        others their claim: its job is in `round.not_here` and says why.
        """
        only: Collection[ScopeKey] | None = None
        refused: set[str] = set()
        self.in_flight = True
        try:
            while True:
                look = _Look(max_rows, steal, {*not_here, *refused}, only)
                try:
                    claim = await self._attempt(slots, look)
                    claim.round.not_here.update(refused)
                    # Not earlier: what is cut off on its way to the caller has to go back, too.
                    self._forget(claim.round)
                    return claim
                except _PoisonError as poison:
                    # Halve the batch until the one schedule with the bad value is alone.
                    if _lacks_partition(poison.error) and await self._make_partitions(poison):
                        continue
                    if len(poison.scopes) > 1:
                        only = poison.scopes[: len(poison.scopes) // 2]
                        continue
                    if not poison.scopes:
                        raise poison.error from poison  # no row of a job is at fault
                    await self._blame(poison)
                    refused.update(scope.job_name for scope in poison.scopes)
                    only = None
        finally:
            self.in_flight = False

    async def _attempt(self, slots: int, look: "_Look") -> Claim:
        begun, sent = Round(), monotonic()
        again: Sequence[DueAgain] = ()
        schedules: Sequence[ScheduleRow] = ()
        writes: list[Any] = []
        try:
            async with self._pool.connection() as c:
                async with step_transaction(c):
                    before = await self._statements.read_clock(c)
                    again, schedules = await self._lock(c, look)
                    (since,) = await before.fetchone() or (None,)
                    if again or schedules:
                        held = await self._read(c, again, schedules)
                        begun = Chooser(held, self._abilities, slots).choose()
                        sent = monotonic()
                        # From here on their fate is not known, whatever cuts this off.
                        self._unknown.update(begun.claims())
                        writes = await self._write(c, begun)
                    assert since is not None
                    next_due = await self._statements.next_due(
                        c,
                        queues=self._queues,
                        not_here=[*look.not_here, *begun.not_here],
                        since=since,
                    )
                won = [row for cursor in writes for row in await cursor.fetchall()]
                due = await next_due.fetchone()
                await self._after(c, begun)
        except POISON as error:
            self._forget(begun)
            raise _PoisonError(_scopes(again, schedules), begun, error) from error
        except psycopg.Error as error:
            if not is_away(error):
                self._forget(begun)
            raise
        full = look.only is not None or max(len(again), len(schedules)) >= look.max_rows
        return Claim(won, begun, due, sent, full)

    def _forget(self, begun: Round) -> None:
        for token, _ in begun.claims():
            self._unknown.pop(token, None)

    async def _lock(self, c: Connection, look: "_Look") -> tuple[list[DueAgain], list[ScheduleRow]]:
        s, queues, known, most = self._statements, self._queues, list(look.not_here), look.max_rows
        stale = None
        if look.steal and self._clock.known:
            stale = await s.lock_stale(
                c, queues=queues, not_here=known,
                trusted_since=self._clock.trusted_since, max_rows=most,
            )  # fmt: skip
        again = await s.lock_due_again(c, queues=queues, not_here=known, max_rows=most)
        due = await s.lock_due_schedules(c, queues=queues, not_here=known, max_rows=most)
        stolen = await stale.fetchall() if stale is not None else []
        executions, schedules = [*stolen, *await again.fetchall()], await due.fetchall()
        if look.only is None:
            return executions, schedules
        return (
            [x for x in executions if x.key.scope in look.only],
            [x for x in schedules if x.key in look.only],
        )

    async def _read(
        self, c: Connection, again: Sequence[DueAgain], schedules: Sequence[ScheduleRow]
    ) -> Held:
        s = self._statements
        jobs = sorted({x.key.job_name for x in again} | {x.key.job_name for x in schedules})
        queues = sorted({x.queue for x in again} | {x.queue for x in schedules})
        scopes = list({x.key.scope for x in again} | {x.key for x in schedules})
        locked_queues = await s.lock_limited_queues(c, queues)
        locked_jobs = await s.lock_limited_jobs(c, jobs)
        facts_rows = await s.read_jobs(c, jobs)
        queue_room = await s.count_running_queues(c, queues)
        running_rows = await s.read_running(c, scopes)
        now_row = await s.read_clock(c)
        facts = {row.name: row for row in await facts_rows.fetchall()}
        await self._read_revisions(c, again, schedules, facts)
        running: defaultdict[ScopeKey, dict[int, datetime]] = defaultdict(dict)
        for job, kind, scope, plan_time, execution in await running_rows.fetchall():
            running[ScopeKey(job, kind, scope)][execution] = plan_time
        (now,) = await now_row.fetchone() or (None,)
        assert now is not None
        return Held(
            now=now,
            again=again,
            schedules=schedules,
            jobs=facts,
            revisions=self.revisions,
            running=running,
            locked_jobs={row[0] for row in await locked_jobs.fetchall()},
            locked_queues={row[0] for row in await locked_queues.fetchall()},
            queue_room={row[0]: row[1] for row in await queue_room.fetchall()},
            live_functions=await self._live_functions(c, schedules, facts),
        )

    async def _read_revisions(
        self,
        c: Connection,
        again: Sequence[DueAgain],
        schedules: Sequence[ScheduleRow],
        facts: dict[str, JobFacts],
    ) -> None:
        wanted: dict[str, tuple[int, int]] = {}
        for row in schedules:
            known = facts.get(row.key.job_name)
            # The last revision of a deleted job is not in its row: asked for every time, rarely.
            newest = known.revision if known is not None else row.planned_revision + 1
            first = min(row.planned_revision, wanted.get(row.key.job_name, (newest, 0))[0])
            wanted[row.key.job_name] = (first, newest)
        for due in again:
            known = facts.get(due.key.job_name)
            if known is not None and due.key.job_name not in wanted:
                wanted[known.name] = (known.revision, known.revision)
        await self.revisions.read(c, wanted)

    async def _live_functions(
        self, c: Connection, schedules: Sequence[ScheduleRow], facts: dict[str, JobFacts]
    ) -> set[tuple[str, str]] | None:
        """(queue, function) of all live runners; asked only when something here is beyond this
        one."""
        of = [facts.get(row.key.job_name) for row in schedules]
        if all(job is None or self._abilities.runs(job) for job in of):
            return None
        cursor: Rows = await self._statements.read_live_handlers(c)
        return {(row[0], row[1]) for row in await cursor.fetchall()}

    async def _write(self, c: Connection, begun: Round) -> list[Any]:
        s, answers = self._statements, []
        if begun.again:
            answers.append(
                await s.try_claim_again(c, self._runner, begun.again, self._clock.trusted_since)
            )
        if begun.new:
            answers.append(await s.try_claim_new(c, self._runner, begun.new))
        if begun.skips:
            await s.record_skips(c, begun.skips)
        if begun.replaced:
            await s.request_replacement(c, begun.replaced)
        if begun.plans:
            await s.advance_schedules(c, begun.plans)
        return answers

    async def _after(self, c: Connection, begun: Round) -> None:
        """What must not be in the claim's transaction: the parked rows are looked at once more, in
        case what blocks them ended while they were being parked; spec errors are jobs' rows.

        Never raises psycopg.Error, because the claim is committed. The sweeper re-arms what is
        left behind here.
        """
        try:
            if begun.parked:
                async with step_transaction(c):
                    if begun.replaced:  # whose row was busy, with a heartbeat, say
                        await self._statements.request_replacement(c, begun.replaced)
                    await self._statements.rearm_unblocked(c, begun.parked)
            if begun.spec_errors:
                async with step_transaction(c):
                    named = await self._statements.set_spec_errors(c, begun.spec_errors)
                texts = {job: error for job, _, error in begun.spec_errors}
                for (job,) in await named.fetchall():
                    log.error("job_broken", job=job, error=texts[job])
        except psycopg.Error as error:
            log.warning("after_claim_failed", parked=len(begun.parked), error=str(error))

    async def _make_partitions(self, poison: "_PoisonError") -> bool:
        """The partitions that a claim lacked; false when there was nothing to make."""
        plans = [claim.key.plan_time for claim in poison.round.new]
        async with self._pool.connection() as c:
            async with step_transaction(c):
                made = await self._statements.make_partitions(c, plans)
            names = [row[0] for row in await made.fetchall()]
        for name in names:
            log.info("partitions_maintained", action="made", subject=name)
        return bool(names)

    async def _blame(self, poison: "_PoisonError") -> None:
        """One schedule whose values the database refuses: its job says so and plans no more."""
        error = f"the database refuses a value of this job: {poison.error.diag.message_primary}"
        for scope in poison.scopes:
            async with self._pool.connection() as c:
                async with step_transaction(c):
                    rows = await self._statements.read_jobs(c, [scope.job_name])
                for facts in await rows.fetchall():
                    async with step_transaction(c):
                        named = [(facts.name, facts.revision, error)]
                        await self._statements.set_spec_errors(c, named)
                async with step_transaction(c):
                    await self._statements.park_broken(c, [scope])
            log.error("job_broken", job=scope.job_name, scope=scope.scope_id, error=error)

    async def settle_unknown(self) -> None:
        """Afterwards no COMMIT of this runner is of unknown outcome.

        What it claimed was never started and goes back, guarded by its token. Before that its
        schedule rows are locked, waiting: the old backend may still be at it, and its COMMIT would
        land after our look. Raises psycopg.Error while that cannot be said yet.
        """
        unknown = dict(self._unknown)
        if not unknown:
            return
        scopes = sorted({key.scope for key in unknown.values()})
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await self._statements.lock_schedules(c, scopes)
                returned = await self._statements.give_back(
                    c, list(unknown.values()), list(unknown), "not_started",
                    "the answer to the claim's COMMIT was lost; the handler was never started",
                )  # fmt: skip
            count = len(await returned.fetchall())
        for token in unknown:
            self._unknown.pop(token, None)
        log.warning("commit_was_unknown", claims=len(unknown), landed_and_given_back=count)


class _Look(NamedTuple):
    """What an attempt looks at; `only` these scopes when a bad value is being searched."""

    max_rows: int
    steal: bool
    not_here: Collection[str]
    only: Collection[ScopeKey] | None


class _PoisonError(Exception):
    def __init__(self, scopes: Sequence[ScopeKey], begun: Round, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.scopes = scopes
        self.round = begun
        self.error = error


def _lacks_partition(error: psycopg.Error) -> bool:
    # Of the violations of class 23 only this one names no constraint.
    return isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None


def _scopes(again: Sequence[DueAgain], schedules: Sequence[ScheduleRow]) -> list[ScopeKey]:
    return sorted({due.key.scope for due in again} | {row.key for row in schedules})
