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
from typing import Any

import psycopg
import structlog

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


class UnknownCommitError(Exception):
    """The connection broke while a claim was being committed; `scopes` are its schedule rows."""

    def __init__(self, scopes: Sequence[ScopeKey]) -> None:
        super().__init__(f"the claim of {len(scopes)} schedules may or may not have been committed")
        self.scopes = scopes


class Claimer:
    """Claims for one runner. Holds what it has learnt: revisions, and jobs that are not for it."""

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

    async def claim(
        self, slots: int, max_rows: int, *, steal: bool, not_here: Collection[str]
    ) -> Claim:
        """Claim at most `slots` executions, looking at `max_rows` of each kind of due row.

        Raises UnknownCommitError, or psycopg.Error when nothing was committed; a row whose values
        the database refuses does not cost the others their claim.
        """
        only: Collection[ScopeKey] | None = None
        while True:
            self.in_flight = True
            try:
                return await self._attempt(slots, max_rows, steal, not_here, only)
            except _PoisonError as poison:
                # Halve the batch until the one schedule with the bad value is alone.
                if len(poison.scopes) == 1:
                    await self._blame(poison)
                    only = None
                else:
                    only = poison.scopes[: len(poison.scopes) // 2]
            finally:
                self.in_flight = False

    async def _attempt(
        self,
        slots: int,
        max_rows: int,
        steal: bool,
        not_here: Collection[str],
        only: Collection[ScopeKey] | None,
    ) -> Claim:
        begun, sent = Round(), monotonic()
        writes: list[Any] = []
        try:
            async with self._pool.connection() as c:
                async with step_transaction(c):
                    again, schedules = await self._lock(c, max_rows, steal, not_here)
                    if only is not None:
                        again = [x for x in again if x.key.scope in only]
                        schedules = [x for x in schedules if x.key in only]
                    if again or schedules:
                        held = await self._read(c, again, schedules)
                        begun = Chooser(held, self._abilities, slots).choose()
                        sent = monotonic()
                        writes = await self._write(c, begun)
                    next_due = await self._statements.next_due(
                        c, queues=self._queues, not_here=[*not_here, *begun.not_here]
                    )
                won = [row for cursor in writes for row in await cursor.fetchall()]
                due = await next_due.fetchone()
                await self._after(c, begun)
        except POISON as error:
            raise _PoisonError(_scopes(begun), error) from error
        except psycopg.Error as error:
            if is_away(error) and begun.writes:
                raise UnknownCommitError(_scopes(begun)) from error
            raise
        full = only is not None or max(len(again), len(schedules)) >= max_rows
        return Claim(won, begun, due, sent, full)

    async def _lock(
        self, c: Connection, max_rows: int, steal: bool, not_here: Collection[str]
    ) -> tuple[list[DueAgain], list[ScheduleRow]]:
        s, known = self._statements, list(not_here)
        stale = None
        if steal and self._clock.known:
            stale = await s.lock_stale(
                c, queues=self._queues, not_here=known,
                trusted_since=self._clock.trusted_since, max_rows=max_rows,
            )  # fmt: skip
        again = await s.lock_due_again(c, queues=self._queues, not_here=known, max_rows=max_rows)
        due = await s.lock_due_schedules(c, queues=self._queues, not_here=known, max_rows=max_rows)
        stolen = await stale.fetchall() if stale is not None else []
        return [*stolen, *await again.fetchall()], await due.fetchall()

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
    ) -> set[str | None] | None:
        """Asked only when something here is beyond this runner."""
        of = [facts.get(row.key.job_name) for row in schedules]
        if all(job is None or self._abilities.runs(job) for job in of):
            return None
        cursor: Rows = await self._statements.read_live_handlers(c)
        return {row[0] for row in await cursor.fetchall()}

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
        case what blocks them ended while they were being parked; spec errors are jobs' rows."""
        if begun.parked:
            async with step_transaction(c):
                await self._statements.rearm_unblocked(c, begun.parked)
        if begun.spec_errors:
            async with step_transaction(c):
                named = await self._statements.set_spec_errors(c, begun.spec_errors)
            errors = {job: error for job, _, error in begun.spec_errors}
            for (job,) in await named.fetchall():
                log.error("job_broken", job=job, error=errors[job])

    async def _blame(self, poison: "_PoisonError") -> None:
        """One schedule whose values the database refuses: its job says so and plans no more."""
        (scope,) = poison.scopes
        error = f"the database refuses a value of this job: {poison.error.diag.message_primary}"
        async with self._pool.connection() as c:
            async with step_transaction(c):
                rows = await self._statements.read_jobs(c, [scope.job_name])
            facts = await rows.fetchone()
            if facts is None:
                raise poison.error
            async with step_transaction(c):
                await self._statements.set_spec_errors(c, [(facts.name, facts.revision, error)])
            async with step_transaction(c):
                await self._statements.park_broken(c, [scope])
        log.error("job_broken", job=scope.job_name, scope=scope.scope_id, error=error)

    async def settle_unknown(self, scopes: Sequence[ScopeKey]) -> None:
        """Afterwards a COMMIT of unknown outcome is known: its backend no longer holds these rows.

        What it claimed bears this runner's name and a token nobody holds; the sweeper's
        `give_back_unheld` returns it. Raises psycopg.Error while that cannot be said yet.
        """
        async with self._pool.connection() as c, step_transaction(c):
            await self._statements.lock_schedules(c, scopes)


class _PoisonError(Exception):
    def __init__(self, scopes: Sequence[ScopeKey], error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.scopes = scopes
        self.error = error


def _scopes(begun: Round) -> list[ScopeKey]:
    keys: list[ExecutionKey] = [claim.key for claim in begun.again]
    return sorted({key.scope for key in keys} | {key for key, _ in begun.plans})
