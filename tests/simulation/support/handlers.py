"""What every job runs, in replicas and in workers in other languages, and what is looked at when it
starts."""

import asyncio
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

from cronledger.declaring.app import Context
from cronledger.rules.outcome import Discard, Result, Retry
from tests.simulation.support.effects import WRITE
from tests.simulation.support.jobs import CROWD
from tests.simulation.support.loop import LANE
from tests.simulation.support.record import Span

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

ENDS = ("success", "success", "success", "success", "failed", "failed", "retry", "discard")
UNDER_WAY = timedelta(seconds=5)
"""A claim lasts no longer."""
TOLD_WITHIN = 2.6
"""Seconds: a heartbeat at least, of the longest stale_timeout, and what it takes."""


class Handlers:
    """The handlers of one simulation."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._record = cluster.record
        self._cancelled: dict[int, int] = {}  # by execution: its attempt when that was told
        self._retried: dict[int, float] = {}  # by execution: when a client last asked for a retry

    async def python(self, context: Context) -> object:
        """What every job of a replica runs."""
        lane = LANE.get()
        assert lane is not None
        process, loop = lane.process, self._cluster.loop
        span = self._record.begin(context, process, loop.time(), self._cluster.now())
        self._cluster.trace("begin", span)
        self.look_at(span)
        random = self.random_of(span)
        how = "cancelled"
        try:
            if self._cluster.scene.transactions and random.random() < 0.85:
                how = await self._work_in_transaction(context, random)
            else:
                how = await self.work(random, span)
        except asyncio.CancelledError:
            if random.random() < 0.1:
                how = "stubborn"
                await asyncio.sleep(random.uniform(0.1, 3.0))
            raise
        except Exception as error:
            how = type(error).__name__
            raise
        finally:
            self.ended(span, how)
        match how:
            case "failed":
                raise ValueError("the work failed")
            case "retry":
                raise Retry(after=timedelta(seconds=random.choice((0.0, 0.7, 3.0))))
            case "discard":
                raise Discard("useless", "nothing to do")
        return Result({"attempt": span.attempt}, rows_affected=1)

    async def _work_in_transaction(self, context: Context, random: Random) -> str:
        """Its effect is to be there with its SUCCESS; what follows the block may still fail."""
        async with context.transaction() as connection:
            await connection.execute(WRITE, [context.lease_token])
            how = await self.work(random)
            if how == "failed" and random.random() < 0.5:
                raise ValueError("the work failed in its block")
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0.0, 2.0))
        if how == "success":
            self._cluster.effects.wrote.add(context.lease_token)
            return "returned"
        return how

    def random_of(self, span: Span) -> Random:
        return Random(f"{self._cluster.seed} {span.key} {span.attempt}")

    async def work(self, random: Random, span: Span | None = None) -> str:
        """Takes its time, and answers how it ends."""
        draw = random.random()
        seconds = (
            0.0 if draw < 0.1 else random.uniform(0.01, 0.8) if draw < 0.4
            else random.uniform(0.8, 5.0) if draw < 0.85 else random.uniform(5.0, 12.0)
        )  # fmt: skip
        if span is not None and span.key.job_name == CROWD:
            seconds = random.uniform(0.0, 0.5)
        following = None if span is None or random.random() < 0.6 else self._following(span)
        if following is not None:  # while what waits for it is being parked
            seconds = max(0.0, following + random.uniform(-0.004, random.choice((0.012, 0.3))))
        if self._cluster.settling:
            seconds = min(seconds, 1.0)
        await asyncio.sleep(seconds)
        return random.choice(ENDS)

    def _following(self, span: Span) -> float | None:
        """In how many seconds its schedule is due again; None: not soon."""
        row = self._cluster.database.eye.execute(
            "SELECT next_due_at FROM schedules WHERE (job_name, scope_kind, scope_id)"
            " = (%s, %s, %s) AND next_due_at BETWEEN %s AND %s",
            (*span.key.scope, now := self._cluster.now(), now + timedelta(seconds=12)),
        ).fetchone()
        return None if row is None else float((row[0] - now).total_seconds())

    def ended(self, span: Span, how: str) -> None:
        """Its handler is at its end, unless its process was killed before."""
        if span.process.alive:
            self._record.end(span, how, self._cluster.loop.time())
            self._cluster.trace("end", span, how)

    def look_at(self, span: Span) -> None:
        """It has started: whether the ledger says so, and what else is RUNNING in it."""
        eye, now = self._cluster.database.eye, self._cluster.loop.time()
        rows = eye.execute(
            "SELECT job_name, scope_kind, scope_id, queue, count(*) FROM executions"
            " WHERE status = 'RUNNING' AND runner_id <> 'observed' GROUP BY 1, 2, 3, 4"
        ).fetchall()
        self._record.judge_running(cast(Any, rows), now)
        self._cluster.elsewhere.judge_start(span)
        if not self.holds(span) and span.token not in self._record.robbed:
            self._record.wrong(f"I3: {span} started without its lease", now)
        self._look_at_wishes(span, now)

    def cancelled(self, execution: int, since: float) -> None:
        """A client was told that it is cancelled, or that its end was asked for; it called then.

        A retry that was asked for since may have come after the cancel: it may run again.
        """
        row = self._cluster.database.eye.execute(
            "SELECT attempt FROM executions WHERE id = %s", (execution,)
        ).fetchone()
        assert row is not None
        if self._retried.get(execution, -1.0) < since:
            self._cancelled[execution] = row[0]
        now = self._cluster.loop.time()
        for span in self._record.alive:
            if span.context.execution_id == execution and span.process.is_replica:
                self._cluster.loop.after(TOLD_WITHIN, self._judge_told, span, now)

    def _judge_told(self, span: Span, since: float) -> None:
        now = self._cluster.loop.time()
        troubled = self._cluster.calm.troubled(since - 1, now, span.process)
        if span.end is None and not span.told and not troubled:
            self._record.wrong(f"{span} was not told of its cancel at {since:.3f}", now)

    def retried(self, execution: int) -> None:
        """A client is about to ask that it runs again."""
        self._cancelled.pop(execution, None)
        self._retried[execution] = self._cluster.loop.time()

    def _look_at_wishes(self, span: Span, now: float) -> None:
        """What people asked for: an end, a pause. A claim that was under way may start in it."""
        execution, leaps = span.context.execution_id, ("leap", "leap_back")
        if span.attempt > self._cancelled.get(execution, span.attempt):
            self._record.wrong(f"{span} started after its cancel was acknowledged", now)
        if any(self._cluster.faults.counts[leap] for leap in leaps):
            return  # the ledger's instants are of two times
        paused = self._cluster.database.eye.execute(
            "SELECT 1 FROM executions e JOIN jobs j ON j.name = e.job_name"
            " WHERE e.id = %s AND e.trigger <> 'manual' AND e.started_at > j.paused_at + %s"
            " AND (j.paused_until IS NULL OR e.started_at < j.paused_until)",
            (execution, UNDER_WAY),
        ).fetchone()
        if paused is not None:
            self._record.wrong(f"{span} started in a pause", now)

    def holds(self, span: Span) -> bool:
        """Whether the execution is RUNNING under the token of this span."""
        held = self._cluster.database.eye.execute(
            "SELECT 1 FROM executions WHERE (job_name, scope_kind, scope_id, plan_time)"
            " = (%s, %s, %s, %s) AND status = 'RUNNING' AND lease_token = %s",
            (*span.key, span.token),
        ).fetchone()
        return held is not None

    def judge_lost(self, execution: int, attempt: int) -> None:
        """A runner has given up a lease as another's; it must be."""
        row = self._cluster.database.eye.execute(
            "SELECT job_name FROM executions WHERE id = %s AND attempt = %s AND status = 'RUNNING'",
            (execution, attempt),
        ).fetchone()
        if row is not None:
            self._cluster.wrong(f"a lease of {row[0]} was given up that nobody has taken")
