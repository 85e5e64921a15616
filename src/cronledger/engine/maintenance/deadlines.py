"""Judges deadlines. migrations/functions/deadlines/judge_deadlines.sql describes the protocol.

A check-in returns when the next deadline has to be judged, so a replica sends nothing for this
while no job has deadlines. One replica at a time does the work.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from time import monotonic

from cronledger.engine import planned_pauses
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.maintenance.numbered_revisions import (
    RevisionKey,
    read_numbered,
    with_calendars,
)
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import DeadlineTurn, ManualDeadline
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.rules import deadline_plan
from cronledger.rules.deadline_plan import DeadlinePlan, NewDeadline, Planning, Scope
from cronledger.rules.model import Revision

JOBS = 100
"""Jobs whose deadlines one transaction computes."""
SCOPES = 2_000
"""Scopes whose deadlines one transaction computes."""
SLICE = 100
"""Scopes whose deadlines are computed before other tasks run. That takes some milliseconds."""
MOST = 5_000
"""Plan_times whose deadlines one transaction adds, and deadlines that it judges."""
TRANSACTIONS = 20
"""Transactions of one step, so that the other work of the sweeper does not wait."""
REST_SECONDS = 5.0
"""The shortest time between two steps, so that a job with a deadline each second costs little."""


class DeadlineStep:
    """Each step computes the deadlines of due plan_times, and judges those that are past."""

    def __init__(self, pool: AsyncPool, statements: Statements, clock: DatabaseClock) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._next: datetime | None = None
        self._forced = False
        self._stepped_at = monotonic() - REST_SECONDS

    def note(self, following: datetime | None) -> None:
        """Note when the next deadline has to be judged; None: there is none."""
        self._next = following

    def force(self) -> None:
        """Make the next step look, whatever check-ins have found."""
        self._forced = True

    def wait(self) -> float | None:
        """Return the seconds until a step has something to do, or None if nothing is planned."""
        if self._forced:
            return 0.0
        if self._next is None:
            return None
        rest = self._stepped_at + REST_SECONDS - monotonic()
        return max(0.0, rest, self._clock.until(self._next))

    async def step(self) -> None:
        """Do what is due, if something is. Raises psycopg.Error."""
        if self.wait() != 0:
            return
        self._stepped_at = monotonic()
        for _ in range(TRANSACTIONS):
            if not await self._transaction():
                break
        self._forced = False

    async def _transaction(self) -> bool:
        """Run one transaction, and return whether another one has something to do now."""
        s = self._statements
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await s.require_own_database(c)
                turn = await (await s.lock_deadlines(c, JOBS)).fetchall()
                if not turn:
                    self._next = None  # the next check-in returns what the other replica has left
                    return False
                now = turn[0].now
                await self._plan(c, [x for x in turn if x.job])
                judged = await s.judge_deadlines(c, MOST)
                closed = await s.close_breaches(c, MOST)
                following = await s.next_deadline(c)
            most = max(await judged.fetchone() or 0, await closed.fetchone() or 0)
            self._next = await following.fetchone()
            is_due = self._next is not None and self._next <= now
            if is_due and len(turn) == 1:  # jobs may wait for their pauses
                await planned_pauses.begin(c, s)
                if await planned_pauses.settle(c, s):
                    return True
        return most == MOST or (is_due and len(turn) > 1)

    async def _plan(self, c: Connection, jobs: Sequence[DeadlineTurn]) -> None:
        s = self._statements
        manual = await (await s.take_manual_deadlines(c, MOST)).fetchall()
        added = await self._of_manual(c, manual)
        if jobs:
            names = [x.job for x in jobs]
            rows = await s.deadline_revisions(
                c, names, [x.through for x in jobs], [None] * len(names)
            )
            found = await s.deadline_schedules(c, jobs, SCOPES + 1)
            revisions = await with_calendars(s, c, await rows.fetchall())
            plans = await self._plans(jobs, revisions, await found.fetchall())
            added += [new for plan in plans.values() for new in plan.added]
            await s.advance_deadlines(c, plans)
        if added:
            await s.add_deadlines(c, added)

    async def _plans(
        self, turns: Sequence[DeadlineTurn], revisions: Mapping[str, Sequence[Revision]],
        scopes: Sequence[Scope],
    ) -> dict[str, DeadlinePlan]:  # fmt: skip
        """Return the plans of the jobs of the first SCOPES scopes. A further one: more are left.

        The last of these jobs may have a part of its scopes. The jobs after it are left out.
        """
        last = scopes[SCOPES].key.job_name if len(scopes) > SCOPES else None
        of_jobs: dict[str, list[Scope]] = {}
        for scope in scopes[:SCOPES]:
            of_jobs.setdefault(scope.key.job_name, []).append(scope)
        most = max(1, MOST // max(1, min(len(scopes), SCOPES)))
        plans: dict[str, DeadlinePlan] = {}
        for turn in turns:
            found = of_jobs.get(turn.job, [])
            if turn.job == last:
                if found:
                    plans[turn.job] = await self._part(turn, revisions[turn.job], found, most)
                break
            planning = Planning(
                revisions.get(turn.job, ()), turn.through, turn.now, most,
                upto=turn.upto, following=turn.following,
            )  # fmt: skip
            await self._add(planning, found)
            plans[turn.job] = planning.plan()
        return plans

    async def _part(
        self, turn: DeadlineTurn, revisions: Sequence[Revision], scopes: Sequence[Scope], most: int
    ) -> DeadlinePlan:
        upto = turn.upto or deadline_plan.reach(
            revisions, scopes[0].key, turn.through, turn.now, most
        )
        planning = Planning(
            revisions, turn.through, turn.now, most, upto=upto, following=turn.following
        )
        await self._add(planning, scopes)
        return planning.part(scopes[-1].key)

    @staticmethod
    async def _add(planning: Planning, scopes: Sequence[Scope]) -> None:
        for begin in range(0, len(scopes), SLICE):
            planning.add(scopes[begin : begin + SLICE])
            await asyncio.sleep(0)  # other tasks run

    async def _of_manual(
        self, c: Connection, manual: Sequence[ManualDeadline]
    ) -> list[NewDeadline]:
        if not manual:
            return []
        wanted = {RevisionKey(x.scope.job_name, x.revision) for x in manual}
        found = await read_numbered(self._statements, c, wanted)
        return [
            new
            for one in manual
            if (revision := found.get(RevisionKey(one.scope.job_name, one.revision))) is not None
            for new in deadline_plan.of_anchor(one.scope, one.plan_time, one.created_at, revision)
        ]

    async def prune(self) -> None:
        """Delete breaches whose executions were pruned. Raises psycopg.Error."""
        for _ in range(TRANSACTIONS):
            async with self._pool.connection() as c, step_transaction(c):
                gone = await self._statements.prune_breaches(c, MOST)
            if await gone.fetchone() != MOST:
                return
