"""One claim: a transaction of three round trips that plans, settles and wins executions.

1. Claim what exists already and is due (the SQL function claim_due, with which workers in other
languages claim as well), and lock due schedules. 2. In new statements, read the jobs, revisions,
running executions and limits that belong to them: the locking statement still sees what was before
the locks. 3. Decide (`choose`), then write new executions, skips and cursors, and COMMIT.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import AsyncCursor, errors

from cronledger.engine.claiming.decide import Abilities, ClaimDecision, ClaimInputs, Decider
from cronledger.engine.claiming.revisions import Revisions
from cronledger.engine.claiming.tokens import Tokens
from cronledger.engine.clock import DatabaseClock
from cronledger.ledger.database import BAD_VALUE_ERRORS, AsyncPool, is_unreachable, step_transaction
from cronledger.ledger.rows import Claimed, JobFacts, NextDue, Taken
from cronledger.ledger.statements import Connection, Rows, Statements
from cronledger.logger import get_logger
from cronledger.rules.model import ExecutionKey, Handler, ScheduleRow, ScopeKey

log = get_logger(__name__)

LARGEST_CLAIM = 500
"""Rows of each kind that a claim looks at, at most."""
SETTLED_AT_ONCE = 100
"""Schedules of each kind that a claim plans at most beyond those that have a slot. To plan 100
takes about 10 ms, in which the claim cannot start what comes due meanwhile."""
LEAST_BREADTH = 50
"""Due schedules that a claim locks, at least. In a backlog the first few take all slots: what is
locked beyond them is read for nothing, and kept from other replicas."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim brought. `sent`: monotonic time before its first write was sent: the leases
    count from there; `asked`: before it asked for `next_due`. `full`: as many rows came as were
    asked for, or what this claim parked was due again after its COMMIT, so more may be due.
    `look_again`: seconds until schedules that are left to another runner are looked at again."""

    won: Sequence[Claimed]
    round: ClaimDecision
    next_due: NextDue | None
    sent: float
    asked: float
    full: bool
    look_again: float | None


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
        self._tokens = Tokens()
        self._breadth = LARGEST_CLAIM
        self._per_slot = 1

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
        broken: dict[str, tuple[int, str]] = {}
        self.in_flight = True
        try:
            while True:
                look = _Look(max_rows, steal, {*not_here, *refused}, broken, only)
                try:
                    claim = await self._attempt(slots, look)
                    claim.round.not_here.update(refused, broken)
                    # Not earlier: what is cut off on its way to the caller has to go back, too.
                    self._forget(claim.round)
                    return claim
                except _BrokenError as found:
                    broken.update(found.jobs)
                except _LeaptError:
                    steal = False
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
        begun, peers = ClaimDecision(), self._abilities.peers
        breadth = self._width(look.max_rows)
        schedules: Sequence[ScheduleRow] = ()
        writes: list[Any] = []
        try:
            async with self._pool.connection() as c:
                async with step_transaction(c):
                    before = await self._statements.read_clock(c)
                    sent = asked = monotonic()
                    again = await self._claim_due(c, slots, look)
                    due_rows = await self._statements.lock_due_schedules(
                        c, queues=self._queues,
                        not_here=[*look.not_here, *peers.left()], max_rows=breadth,
                        max_woken=SETTLED_AT_ONCE,
                    )  # fmt: skip
                    (since,) = await before.fetchone() or (None,)
                    rows = await again.fetchall()
                    begun.taken = self._take(rows)
                    if any(row.claimed.how == "stolen" for row in begun.taken):
                        await self._check_clock(c)
                    schedules = [
                        row
                        for row in await due_rows.fetchall()
                        if look.only is None or row.key in look.only
                    ]
                    if begun.taken or schedules:
                        held = await self._read(c, begun.taken, schedules)
                        begun = Decider(held, self._abilities, slots, begun.taken).choose()
                        asked = monotonic()
                        # From here on their fate is not known, whatever cuts this off.
                        self._unknown.update(begun.claims())
                        writes = await self._write(c, begun)
                    begun.not_here.update(_refusals(rows))
                    begun.spec_errors += [(name, *why) for name, why in look.broken.items()]
                    assert since is not None
                    next_due = await self._statements.next_due(
                        c,
                        queues=self._queues,
                        not_here=[*look.not_here, *begun.not_here, *peers.left()],
                        since=since,
                    )
                won = [row.claimed for row in begun.taken]
                won += [row for cursor in writes for row in await cursor.fetchall()]
                due = await next_due.fetchone()
                rearmed = await self._after(c, begun)
        except BAD_VALUE_ERRORS as error:
            self._forget(begun)
            scopes = sorted(row.key for row in schedules)
            raise _PoisonError(scopes, begun, error) from error
        except (_BrokenError, _LeaptError):
            self._forget(begun)  # rolled back
            raise
        except psycopg.Error as error:
            if not is_unreachable(error):
                self._forget(begun)
            raise
        due_count = sum(not row.woken for row in schedules)
        self._look_wider(due_count, begun.slotless, full=due_count >= breadth)
        more = any(row.more for row in rows) or due_count >= breadth
        full = more or rearmed or look.only is not None
        return Claim(won, begun, due, sent, asked, full, peers.look_again())

    def _width(self, max_rows: int) -> int:
        """Return how many due schedules the next claim looks at.

        There may be more of them than free slots. Many need no slot, because their plan_times were
        missed or overlap.
        """
        return min(self._breadth, max(max_rows, min(SETTLED_AT_ONCE, max_rows * self._per_slot)))

    def _look_wider(self, due: int, slotless: int, *, full: bool) -> None:
        """Set the width of the next claim: this one looked at `due` schedules (`full`: as many as
        it may), `slotless` of them in vain.
        """
        if slotless:
            self._breadth = max(LEAST_BREADTH, 2 * (due - slotless))
            self._per_slot = 1
        elif full:
            self._breadth = min(LARGEST_CLAIM, 2 * self._breadth)
            self._per_slot = min(SETTLED_AT_ONCE, 2 * self._per_slot)

    def _forget(self, begun: ClaimDecision) -> None:
        for token, _ in begun.claims():
            self._unknown.pop(token, None)

    async def _claim_due(self, c: Connection, slots: int, look: "_Look") -> AsyncCursor[Taken]:
        """Steals, retries and PENDING rows before fresh plans."""
        steals = look.steal and self._clock.known
        tokens = self._tokens.offer(min(slots, look.max_rows))
        return await self._statements.claim_due(
            c, self._runner,
            queues=self._queues, kinds=list(self._abilities.kinds),
            functions=list(self._abilities.functions), tokens=tokens,
            trusted_since=self._clock.trusted_since if steals else None,
            sql_commands=self._abilities.allow_sql_commands,
            not_here=[*look.not_here, *look.broken], max_rows=self._tokens.offered,
        )  # fmt: skip

    def _take(self, rows: Sequence[Taken]) -> list[Taken]:
        """What was claimed; whether it is committed is not known from here on."""
        claimed = [row for row in rows if row.refused is None]
        self._tokens.spend({row.claimed.token for row in claimed})
        self._unknown.update((row.claimed.token, row.claimed.key) for row in claimed)
        return claimed

    async def _check_clock(self, c: Connection) -> None:
        """Raises _LeaptError if the leases that were stolen may be stale by a leap of the
        database's clock alone, which nobody has noticed before: their holders are alive."""
        sent = monotonic()
        (now,) = await (await self._statements.read_clock(c)).fetchone() or (None,)
        assert now is not None
        if not self._clock.agrees(now, sent, monotonic()):
            self._clock.distrust()
            raise _LeaptError

    async def _read(
        self, c: Connection, taken: Sequence[Taken], schedules: Sequence[ScheduleRow]
    ) -> ClaimInputs:
        s = self._statements
        planned = sorted({row.key.job_name for row in schedules})
        jobs = sorted({row.claimed.key.job_name for row in taken}.union(planned))
        queues = sorted({row.queue for row in schedules})
        scopes = [row.key for row in schedules]
        locked_queues = await s.lock_limited_queues(c, queues)
        locked_jobs = await s.lock_limited_jobs(c, planned)
        facts_rows = await s.read_jobs(c, jobs)
        queue_room = await s.count_running_queues(c, queues)
        running_rows = await s.read_running(c, scopes)
        now_row = await s.read_clock(c)
        facts = {row.name: row for row in await facts_rows.fetchall()}
        await self._read_revisions(c, taken, schedules, facts)
        running: dict[ScopeKey, int] = {}
        for job, kind, scope, _, execution in await running_rows.fetchall():
            key = ScopeKey(job, kind, scope)
            running[key] = min(execution, running.get(key, execution))
        (now,) = await now_row.fetchone() or (None,)
        assert now is not None
        return ClaimInputs(
            now=now,
            schedules=schedules,
            jobs=facts,
            revisions=self.revisions,
            running=running,
            unclaimed=await self._unclaimed(c, schedules, facts),
            locked_jobs={row[0] for row in await locked_jobs.fetchall()},
            locked_queues={row[0] for row in await locked_queues.fetchall()},
            queue_room={row[0]: row[1] for row in await queue_room.fetchall()},
            live_functions=await self._live_functions(c, schedules, facts),
        )

    async def _read_revisions(
        self,
        c: Connection,
        taken: Sequence[Taken],
        schedules: Sequence[ScheduleRow],
        facts: dict[str, JobFacts],
    ) -> None:
        """Raises _BrokenError for jobs whose executions were claimed and that cannot be read."""
        firsts: dict[str, int] = {}
        for row in schedules:
            name = row.key.job_name
            firsts[name] = min(row.planned_revision, firsts.get(name, row.planned_revision))
        names = {row.claimed.key.job_name for row in taken} & facts.keys()
        for name in names - firsts.keys():
            firsts[name] = facts[name].revision
        # The newest revision of a deleted job is not known: it is read every time, which is rare.
        wanted = {
            name: (first, facts[name].revision_id if name in facts else None)
            for name, first in firsts.items()
        }
        await self.revisions.read(c, wanted)
        broken = {name: self.revisions.broken(name) for name in names}
        errors = {
            name: (facts[name].revision, error)
            for name, error in broken.items()
            if error is not None
        }
        if errors:
            raise _BrokenError(errors)

    async def _unclaimed(
        self, c: Connection, schedules: Sequence[ScheduleRow], facts: dict[str, JobFacts]
    ) -> dict[ScopeKey, int]:
        """Firings that wait for workers that claim by themselves; asked only when there are such
        jobs."""
        external = {name for name, job in facts.items() if job.handler == Handler.EXTERNAL}
        scopes = [row.key for row in schedules if row.key.job_name in external]
        if not scopes:
            return {}
        rows = await self._statements.read_unclaimed(c, scopes)
        return {ScopeKey(*row[:3]): row[3] for row in await rows.fetchall()}

    async def _live_functions(
        self, c: Connection, schedules: Sequence[ScheduleRow], facts: dict[str, JobFacts]
    ) -> set[tuple[str, str]] | None:
        """(queue, function) of all live runners; asked only when something here is beyond this
        one."""
        of = [facts.get(row.key.job_name) for row in schedules]
        if all(job is None or self._abilities.plans(job) for job in of):
            return None
        cursor: Rows = await self._statements.read_live_handlers(c)
        return {(row[0], row[1]) for row in await cursor.fetchall()}

    async def _write(self, c: Connection, begun: ClaimDecision) -> list[Any]:
        s, answers = self._statements, []
        if begun.new:
            answers.append(await s.try_claim_new(c, self._runner, begun.new))
        if begun.pending:
            await s.plan_pending(c, begun.pending)
        if begun.skips:
            await s.record_skips(c, begun.skips)
        if begun.replaced:
            await s.request_replacement(c, begun.replaced)
        if begun.plans:
            await s.advance_schedules(c, begun.plans)
        return answers

    async def _after(self, c: Connection, begun: ClaimDecision) -> bool:
        """What must not be in the claim's transaction: the parked rows are looked at once more, in
        case what blocks them ended while they were being parked; spec errors are jobs' rows.
        Answers whether one that this claim planned on is due again: next_due does not know of it.

        Never raises psycopg.Error, because the claim is committed. The sweeper re-arms what is
        left behind here.
        """
        rearmed = 0
        try:
            if begun.parked:
                async with step_transaction(c):
                    if begun.replaced:  # whose row was busy, with a heartbeat, say
                        await self._statements.request_replacement(c, begun.replaced)
                    answer = await self._statements.rearm_unblocked(c, begun.parked)
                rearmed = answer.rowcount
            if begun.spec_errors:
                async with step_transaction(c):
                    named = await self._statements.set_spec_errors(c, begun.spec_errors)
                texts = {job: error for job, _, error in begun.spec_errors}
                for (job,) in await named.fetchall():
                    log.error("job_broken", job=job, error=texts[job])
        except psycopg.Error as error:
            log.warning("after_claim_failed", parked=len(begun.parked), error=str(error))
        # Without progress it waits for the poll: were the two ever of two minds, this would spin.
        return rearmed > 0 and bool(begun.new or begun.pending)

    async def _make_partitions(self, poison: "_PoisonError") -> bool:
        """The partitions that a claim lacked; false when there was nothing to make."""
        fresh = [*poison.round.new, *poison.round.pending]
        plans = [claim.key.plan_time for claim in fresh]
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

        What it claimed was never started and goes back, guarded by its token. Before that one of
        its schedule rows is locked, waiting: the old backend may still be at it, and its COMMIT
        would land after our look. All that is unknown was claimed by one transaction, which locked
        the schedules of all of it. Raises psycopg.Error while that cannot be said yet.
        """
        count, asked = 0, len(self._unknown)
        while self._unknown:
            count += await self._settle(dict(self._unknown))
        if asked:
            log.warning("commit_was_unknown", claims=asked, landed_and_given_back=count)

    async def _settle(self, unknown: Mapping[UUID, ExecutionKey]) -> int:
        """How many of them went back; what is RUNNING under its token still stays unknown.

        PostgreSQL 18 up to 18.4 passes over rows that were updated (a request to cancel them, say)
        while give_back waited for them; the next try sees them as they are.
        """
        tokens, keys = list(unknown), list(unknown.values())
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await self._statements.lock_schedule(c, min(key.scope for key in keys))
                returned = await self._statements.give_back(
                    c, keys, tokens, "not_started",
                    "the answer to the claim's COMMIT was lost; the handler was never started",
                )  # fmt: skip
                states = await self._statements.read_leases(c, keys, tokens)
            count = len(await returned.fetchall())
            left = {x.token for x in await states.fetchall() if x.ours and x.status == "RUNNING"}
        for token in unknown.keys() - left:
            self._unknown.pop(token, None)
        return count


class _Look(NamedTuple):
    """What an attempt looks at; `only` these scopes when a bad value is being searched."""

    max_rows: int
    steal: bool
    not_here: Collection[str]
    broken: Mapping[str, tuple[int, str]]
    only: Collection[ScopeKey] | None


class _BrokenError(Exception):
    """Jobs with executions due again whose definition cannot be read: revision and why."""

    def __init__(self, jobs: Mapping[str, tuple[int, str]]) -> None:
        super().__init__(", ".join(jobs))
        self.jobs = jobs


class _LeaptError(Exception):
    """A steal that is not to be: see `_check_clock`."""


class _PoisonError(Exception):
    def __init__(
        self, scopes: Sequence[ScopeKey], begun: ClaimDecision, error: psycopg.Error
    ) -> None:
        super().__init__(str(error))
        self.scopes = scopes
        self.round = begun
        self.error = error


def _lacks_partition(error: psycopg.Error) -> bool:
    # Of the violations of class 23 only this one names no constraint.
    return isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None


def _refusals(rows: Sequence[Taken]) -> set[str]:
    """Jobs with a value that the database refused; their spec_error says so."""
    found = {row.claimed.key.job_name: row.refused for row in rows if row.refused is not None}
    for job, error in found.items():
        log.error("job_broken", job=job, error=error)
    return set(found)
