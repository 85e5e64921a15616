"""Gates: opens executions that wait for other jobs, and ends waits that took too long.

Any replica may run the step, and several at once: each locks the schedules of its gates, with SKIP
LOCKED, and decides in a later statement. migrations/functions/gates describes the protocol.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronledger.engine.clock import DatabaseClock
from cronledger.engine.event import Event
from cronledger.engine.maintenance.numbered_revisions import RevisionKey, read_numbered
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import CheckInReply, GateVerdict, WaitingGate
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules.cron_fields import CronError
from cronledger.rules.gates import Missing, Upstream, Verdict, missing, required_scopes, wait_of
from cronledger.rules.model import Revision, ScopeKey
from cronledger.rules.plan_times import TICK

log = get_logger(__name__)

MOST = 500
"""Gates that one transaction checks."""
LATE_PLAN = timedelta(minutes=1)
"""How much longer an execution waits for a claim that plans an edited required job. This plan may
show that nothing is missing. If it does not come, no replica may be able to plan the job."""
BUSY_SECONDS = 0.2
"""The wait for gates that another transaction has locked."""

Revisions = Mapping[RevisionKey, Revision]


@dataclass(frozen=True, slots=True)
class _Check:
    """A gate, its interval, its end, and the scopes that it requires; None: they are unknown."""

    gate: WaitingGate
    after: datetime
    until: datetime | None
    required: Sequence[ScopeKey] | None


class Gates:
    """Each step checks the gates that are due to be checked.

    Events: `opened`, executions are due; `due_within`, the seconds in which a step has to begin.
    """

    def __init__(self, pool: AsyncPool, statements: Statements, clock: DatabaseClock) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._next: datetime | None = None
        self._refused = False
        self.wake = asyncio.Event()
        self.opened = Event[[]]()
        self.due_within = Event[[float]]()

    def checked_in(self, reply: CheckInReply) -> None:
        """Note when a gate is due to be checked, as a check-in has found."""
        self._next = reply.gates
        self._refused = reply.refused is not None
        if reply.gates is not None and reply.refused is None:
            self.due_within(self._clock.until(reply.gates))

    async def step(self) -> float | None:
        """Check what is due. Return the seconds until the next check, or None if none is planned.

        Raises psycopg.Error.
        """
        await self.check_all()
        return None if self._next is None else max(BUSY_SECONDS, self._clock.until(self._next))

    async def check_all(self) -> bool:
        """Check all gates that are due. Return whether an execution is due now.

        Nothing is checked while the database refuses to be this ledger's.
        """
        opened = False
        while not self._refused and (found := await self._transaction()):
            opened = opened or any(x.verdict is Verdict.OPEN for x in found)
        if opened:
            self.opened()
        return opened

    async def _transaction(self) -> Sequence[GateVerdict]:
        """Check the first gates that are due, and return the verdicts."""
        s = self._statements
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await s.require_own_database(c)
                gates = await (await s.lock_gates(c, MOST)).fetchall()
                verdicts = await self._decide(c, gates) if gates else []
                if verdicts:
                    await s.settle_gates(c, verdicts)
                following = await s.next_gate(c)
            self._next = await following.fetchone()
        for one in verdicts:
            if one.verdict is Verdict.EXPIRE and one.missing is not None:
                log.warning(
                    "gate_expired", job=one.key.job_name, scope=one.key.scope_id,
                    plan_time=one.key.plan_time.isoformat(), missing=one.missing.text,
                )  # fmt: skip
        return verdicts

    async def _decide(self, c: Connection, gates: Sequence[WaitingGate]) -> list[GateVerdict]:
        own = {RevisionKey(gate.key.job_name, gate.revision) for gate in gates}
        revisions = await read_numbered(self._statements, c, own)
        checks = [_check(gate, revisions) for gate in gates]
        upstreams = await self._read_upstreams(c, checks)
        skipped = {
            RevisionKey(one.scope.job_name, skip.revision)
            for of_check in upstreams for one in of_check for skip in one.skips
        }  # fmt: skip
        revisions = {**revisions, **await read_numbered(self._statements, c, skipped)}
        return [
            _verdict(check, _first_missing(check, of_check, revisions))
            for check, of_check in zip(checks, upstreams, strict=True)
        ]

    async def _read_upstreams(
        self, c: Connection, checks: Sequence[_Check]
    ) -> list[list[Upstream]]:
        """Return the state of the required scopes of each check, in their order."""
        asked = [(scope, x.after, x.gate.nominal) for x in checks for scope in x.required or ()]
        if not asked:
            return [[] for _ in checks]
        rows = iter(await (await self._statements.read_upstreams(c, asked)).fetchall())
        return [[next(rows).of(scope) for scope in check.required or ()] for check in checks]


def _check(gate: WaitingGate, revisions: Revisions) -> _Check:
    revision = revisions.get(RevisionKey(gate.key.job_name, gate.revision))
    if revision is None:
        return _Check(gate, gate.nominal - TICK, gate.waits_until, None)
    try:
        after, length = wait_of(gate.key, revision)
    except CronError:  # of a backfill: the current definition has no plan_times
        after, length = gate.nominal - TICK, revision.job.wait_at_most
    until = None if length is None else max(gate.due_at, gate.gated_at) + length
    return _Check(gate, after, until, required_scopes(revision.job, gate.key.scope))


def _first_missing(
    check: _Check, upstreams: Sequence[Upstream], revisions: Revisions
) -> Missing | None:
    def revision_of(job: str, number: int) -> Revision | None:
        return revisions.get(RevisionKey(job, number))

    key = check.gate.key
    if check.required is None:
        text = f"revision {check.gate.revision} of {key.job_name}, which states its requirements"
        return Missing(key.scope, None, text)
    for upstream in upstreams:
        found = missing(upstream, check.after, check.gate.nominal, revision_of)
        if found is not None:
            return found
    return None


def _verdict(check: _Check, found: Missing | None) -> GateVerdict:
    gate, until = check.gate, check.until
    if found is None:
        return GateVerdict(gate.key, Verdict.OPEN, check.after, until, None, None)
    end = until
    if end is not None and end <= gate.now and found.to_plan:
        end += LATE_PLAN
    if end is not None and end <= gate.now:
        return GateVerdict(gate.key, Verdict.EXPIRE, check.after, until, found, None)
    # A change of this required job did not find the row before. So it is checked once more.
    known = (gate.upstream, gate.upstream_plan_time) == (found.scope, found.plan_time)
    check_at = end if known else gate.now
    return GateVerdict(gate.key, Verdict.WAIT, check.after, until, found, check_at)
