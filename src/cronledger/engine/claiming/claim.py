"""One claim: a transaction that wins executions and plans schedules.

1. Claim the executions that exist and are due: stale leases, retries, PENDING rows.
2. Lock due schedules. They stay locked until the COMMIT.
3. Read the jobs, revisions, running executions and limits of these schedules, after all locks.
4. Decide which plan_times run, which are skipped, and which schedules are parked.
5. Write the new executions, the skips and the cursors. If the schedules were locked ahead of the
   instant at which they are due, the database first waits for that instant.
6. Read when the next claim is due, and with tracing the traceparents of what existed, and COMMIT.
7. In transactions of their own, check the parked schedules again, record spec errors, and edit jobs
   whose pauses have begun or ended.

If a planned pause is due, step 1 claims nothing: the pause begins in a transaction of its own, and
then the claim is repeated.

Steps 1 to 3 are one round trip and one function, `claim_look`. Steps 5 and 6 are another round
trip. Revisions that are not known yet and a clock that is read again add more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

import psycopg

from cronledger.engine import planned_pauses
from cronledger.engine.claiming.abilities import Abilities
from cronledger.engine.claiming.breadth import MAX_EXTRA_SCHEDULES, Breadth
from cronledger.engine.claiming.decide import ClaimDecision, decide
from cronledger.engine.claiming.inputs import BrokenJobsError, InputReader
from cronledger.engine.claiming.lead import Lead
from cronledger.engine.claiming.low_water import LowWater
from cronledger.engine.claiming.request import ClaimRequest, ClaimResult
from cronledger.engine.claiming.revisions import Revisions
from cronledger.engine.claiming.tokens import Tokens
from cronledger.engine.claiming.unknown_commits import UnknownCommits
from cronledger.engine.clock import DatabaseClock, fetch_now
from cronledger.engine.lease import Lease
from cronledger.ledger.claim_rows import Claimed, ClaimLook, DueExecution, JobFacts, inserted
from cronledger.ledger.connections import AsyncPool, StepCursor
from cronledger.ledger.database_errors import is_unreachable
from cronledger.ledger.rows import Enqueuer, NewClaim, NextDue, Started
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules.plans import ScheduleRow

log = get_logger(__name__)

MUST_NOT_START = "CL007"
"""The SQLSTATE with which the database refuses a start: not yet, or not in a paused queue."""


class PausesDueError(Exception):
    """A planned pause has to begin before anything can be claimed."""


class ClockLeaptError(Exception):
    """The database's clock leapt, so live leases may appear stale. Nothing was stolen."""


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """The objects that all claims of one runner share.

    `traces`: attempts have spans, which link to those that enqueued the executions.
    """

    pool: AsyncPool
    statements: Statements
    clock: DatabaseClock
    abilities: Abilities
    runner: str
    queues: Sequence[str]
    revisions: Revisions
    reader: InputReader
    tokens: Tokens
    breadth: Breadth
    unknown_commits: UnknownCommits
    low_water: LowWater
    lead: Lead
    traces: bool


class Claim:
    """One attempt at a claim. `run` may be called once.

    After a failed attempt, `schedules` are those that it locked, `jobs` are the jobs that it read,
    and `decision` contains the writes that it intended.
    """

    def __init__(self, context: ClaimContext, request: ClaimRequest) -> None:
        self._context = context
        self._statements = context.statements
        self._request = request
        self._max_due = context.breadth.rows(request.max_rows)
        self._found: Sequence[DueExecution] = ()
        self._won: list[Claimed] = []
        self._inserted: StepCursor[Started] | None = None
        self._lateness: list[tuple[str, timedelta]] = []  # by queue, of each new execution
        self._enqueuers: StepCursor[Enqueuer] | None = None
        self._traceparents: Mapping[int, str] = {}  # by the ids of executions
        self._sent = self._read_at = 0.0
        self.schedules: Sequence[ScheduleRow] = ()
        self.jobs: Mapping[str, JobFacts] = {}
        self.decision = ClaimDecision()
        self._left_out: Sequence[str] = ()
        self._due_from: datetime | None = None
        self._unsettled = self._left = False
        self._pause_at: datetime | None = None

    async def run(self) -> ClaimResult:
        """Claim, plan, write and COMMIT, then run the follow-up transactions.

        Raises BrokenJobsError, ClockLeaptError, PausesDueError or psycopg.Error. In each case
        everything was rolled back, or the outcome of the COMMIT is unknown (see `UnknownCommits`).
        """
        committed = False
        try:
            async with self._context.pool.connection() as c:
                # Statements wait until a result is fetched, or until the block ends.
                async with step_transaction(c):
                    look = await self._look(c)  # 1 to 3
                    if self._won or self.schedules:
                        self.decision = await self._decide(c, look)  # 4
                        await self._write(c)  # 5
                    if self._won and self._context.traces:
                        self._enqueuers = await self._statements.read_traceparents(
                            c, [row.key for row in self._won]
                        )
                    reading = await self._read_next_due(c, look.since)  # 6, and COMMIT
                committed = True
                won = [*self._won, *await self._fetch_inserted()]
                if self._enqueuers is not None:
                    self._traceparents = dict(await self._enqueuers.fetchall())
                next_due = await reading.fetchone()
                self._raise_low_water(next_due)
                if rearmed := await self._after_commit(c):  # 7
                    self._context.low_water.forget()
        except (BrokenJobsError, ClockLeaptError, PausesDueError, psycopg.Error) as error:
            if not committed and not is_unreachable(error):
                self._context.unknown_commits.remove(self.executions())  # rolled back
            self._context.low_water.forget()
            raise
        due_schedules = sum(not row.woken for row in self.schedules)
        reached_limit = due_schedules >= self._max_due
        self._context.breadth.adapt(due_schedules, self.decision.slotless, full=reached_limit)
        return self._result(won, next_due, more=reached_limit, rearmed=rearmed)

    def executions(self) -> Iterator[Claimed | NewClaim]:
        """Yield the executions that the claim wins if its COMMIT succeeds."""
        yield from self._won
        yield from self.decision.new

    async def _look(self, c: Connection) -> ClaimLook:
        context, request, abilities = self._context, self._request, self._context.abilities
        tokens = context.tokens.offer(request.max_rows)
        left_out = self._jobs_not_to_plan()
        self._due_from = context.low_water.begin(left_out)
        self._sent = monotonic()
        result = await self._statements.claim_look(
            c, context.runner,
            queues=context.queues, kinds=list(abilities.kinds),
            functions=list(abilities.functions), labels=list(abilities.labels),
            tokens=tokens.literal,
            trusted_since=context.clock.trusted_since if request.steal else None,
            sql_commands=abilities.allow_sql_commands,
            jobs_not_to_run=request.jobs_not_to_run, max_rows=tokens.size,
            jobs_not_to_plan=left_out, max_due=self._max_due,
            max_woken=MAX_EXTRA_SCHEDULES, ahead=request.ahead, due_from=self._due_from,
        )  # fmt: skip
        look = await result.fetchone()
        assert look is not None, "the statement returns one row"
        if look.pauses == "due":
            raise PausesDueError
        self._unsettled, self._pause_at = look.pauses == "unsettled", look.pause_at
        self._found, self._left, self.jobs = look.existing, look.more, look.jobs
        self._won = [row.claimed for row in look.existing if row.refused is None]
        context.tokens.spend({row.token for row in self._won})
        context.unknown_commits.add(self._won)
        if any(row.how == "stolen" for row in self._won):
            await self._check_clock(c)
        only = request.only
        self.schedules = [row for row in look.schedules if only is None or row.key in only]
        return look

    async def _decide(self, c: Connection, look: ClaimLook) -> ClaimDecision:
        context = self._context
        inputs = await context.reader.complete(c, look, self._won, self.schedules)
        return decide(inputs, context.abilities, self._request.slots - len(self._won))

    async def _check_clock(self, c: Connection) -> None:
        """Read the clock again after a steal.

        If the database's clock has just leapt, the holders of the stolen leases may be alive.
        Raises ClockLeaptError if a leap cannot be ruled out.
        """
        sent = monotonic()
        now = await fetch_now(await self._statements.read_clock(c))
        if not self._context.clock.agrees(now, sent, monotonic()):
            self._context.clock.distrust()
            raise ClockLeaptError

    def _jobs_not_to_plan(self) -> list[str]:
        """Return the jobs whose schedules this claim must not plan, as far as they are known.

        They differ from `jobs_not_to_run`. Another runner plans a delegated job, but every runner
        executes it. The schedules of a broken job are planned, because this parks them.
        """
        request = self._request
        delegated = self._context.abilities.peers.delegated_jobs()
        return [*request.excluded_jobs, *request.refused_jobs, *self._newly_excluded(), *delegated]

    def _newly_excluded(self) -> set[str]:
        refused = {row.claimed.key.job_name for row in self._found if row.refused is not None}
        return self.decision.excluded_jobs | refused

    async def _write(self, c: Connection) -> None:
        s, decision = self._statements, self.decision
        # Before COMMIT can be sent: an interruption after that leaves the outcome unknown.
        self._context.unknown_commits.add(decision.new)
        if decision.new:
            instants = [row.ahead_of for row in self.schedules if row.ahead_of is not None]
            if instants:
                self._context.lead.adapt(monotonic() - self._sent)
                await s.sleep_until(c, max(instants), self._request.ahead)
            self._inserted = await s.try_claim_new(
                c, self._context.runner, decision.new, ahead=bool(instants)
            )
        if decision.pending:
            await s.plan_pending(c, decision.pending)
        if decision.reported:
            await s.record_reports(c, decision.reported)
        if decision.skips:
            await s.record_skips(c, decision.skips)
        if decision.replaced:
            await s.request_replacement(c, decision.replaced)
        if decision.plans:
            await s.advance_schedules(c, decision.plans)
        if moved := decision.moved:
            await s.wake_gates(c, moved)

    async def _read_next_due(self, c: Connection, since: datetime) -> StepCursor[NextDue]:
        """Read when more is due. `since`: the database's time before step 1."""
        self._read_at = monotonic()
        self._left_out = self._jobs_not_to_plan()
        return await self._statements.next_due(
            c, queues=self._context.queues, labels=list(self._context.abilities.labels),
            excluded_jobs=self._left_out, since=since, due_from=self._still_due_from(),
        )  # fmt: skip

    def _still_due_from(self) -> datetime | None:
        """Return the instant before which no schedule is due after the writes of this claim."""
        dues = (one.plan.next_due_at for one in self.decision.plans)
        low = self._due_from
        return None if low is None else min([low, *(due for due in dues if due is not None)])

    def _raise_low_water(self, next_due: NextDue | None) -> None:
        first = None if next_due is None else next_due.due
        self._context.low_water.rise(first, self._left_out)

    async def _fetch_inserted(self) -> list[Claimed]:
        """Return the executions that were inserted, and note their lateness.

        Rows that existed already are not included.
        """
        if self._inserted is None:
            return []
        by_token = {new.token: new for new in self.decision.new}
        rows = [(by_token[row.token], row) for row in await self._inserted.fetchall()]
        self._lateness = [(new.queue, row.started_at - new.due_at) for new, row in rows]
        return [inserted(new, row) for new, row in rows]

    async def _after_commit(self, c: Connection) -> bool:
        """Check the parked schedules again, record spec errors, and apply pauses.

        The execution that blocked a schedule may have ended while the claim parked the schedule.
        Spec errors are written to rows of `jobs`, which come before schedules in the lock order.
        So are pauses. All need transactions of their own.

        Never raises psycopg.Error, because the claim is committed; the sweeper re-arms what remains
        after an error. Return whether a schedule became due again after `next_due` was read.
        """
        decision, rearmed = self.decision, False
        self._log_refused_rows()
        try:
            if decision.parked:
                async with step_transaction(c):
                    if decision.replaced:  # a heartbeat, for example, may have locked the row
                        await self._statements.request_replacement(c, decision.replaced)
                    result = await self._statements.rearm_unblocked(c, decision.parked)
                rearmed = any(row.rearmed for row in await result.fetchall())
            await self._record_spec_errors(c)
            if self._unsettled:
                rearmed = await planned_pauses.settle(c, self._statements) or rearmed
        except psycopg.Error as error:
            log.warning("claim_followup_failed", parked=len(decision.parked), error=str(error))
        return rearmed

    def _log_refused_rows(self) -> None:
        for row in self._found:
            if row.refused is not None:  # claim_due has recorded the spec_error
                log.error("job_broken", job=row.claimed.key.job_name, error=row.refused)

    async def _record_spec_errors(self, c: Connection) -> None:
        broken = [*self.decision.broken, *self._request.broken.values()]
        if broken:
            async with step_transaction(c):
                recorded = await self._statements.set_spec_errors(c, broken)
            errors = {job.name: job.error for job in broken}
            for name in await recorded.fetchall():
                log.error("job_broken", job=name, error=errors[name])

    def _result(
        self, won: Sequence[Claimed], next_due: NextDue | None, *, more: bool, rearmed: bool
    ) -> ClaimResult:
        """`more`: further schedules may be due now."""
        request = self._request
        return ClaimResult(
            leases=[self._lease(row) for row in won],
            decision=self.decision,
            excluded_jobs=self._newly_excluded() | request.refused_jobs | request.broken.keys(),
            next_due=next_due,
            read_at=self._read_at,
            full=more or self._left or request.only is not None,
            left=self._left,
            lateness=self._lateness,
            rearmed=rearmed,
            reconsider_after=self._context.abilities.peers.reconsider_after(),
            pause_at=self._pause_at,
        )

    def _lease(self, claimed: Claimed) -> Lease:
        job = self._context.revisions.newest(claimed.key.job_name).job
        return Lease(claimed, job, self._sent, self._traceparents.get(claimed.id))
