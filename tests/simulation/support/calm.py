"""What a cluster owes while nothing disturbs it.

A lease may run out only where its holder died, stood still or was cut off; a schedule stays parked
only while something blocks it. Otherwise both mend themselves later (the work runs again, the
sweeper looks), and neither `verify` nor the end of it all would show that they had to.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.support.loop import Process
from tests.simulation.support.record import Span

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

LEASE = 3.0
"""Seconds: the shortest stale_timeout that a job has here."""
ENOUGH = 1.25
"""Calm seconds in which an end is written, a lease renewed, an unknown COMMIT looked up."""
LONG = 0.3
"""Seconds for which locks may be held without disturbing anybody."""
REARMED = 3.0
"""Seconds after which what blocks no more has let go."""

_ENDED_BY_ITSELF = """
SELECT e.job_name || ' ' || e.plan_time, a.runner, a.token,
       extract(epoch FROM %(base)s - a.started)::float8,
       extract(epoch FROM a.seen - %(base)s)::float8
FROM executions e CROSS JOIN LATERAL (
    SELECT e.runner_id, e.lease_token, e.started_at, e.heartbeat_at
    WHERE e.error_code = 'stale_timeout'
    UNION ALL
    SELECT x ->> 'runner_id', (x ->> 'lease_token')::uuid, (x ->> 'started_at')::timestamptz,
           (x ->> 'last_seen')::timestamptz
    FROM jsonb_array_elements(e.attempts) x
    WHERE x ->> 'error_code' IN ('stale_timeout', 'runner_crashed')
) a (runner, token, started, seen)
"""
_FORGOTTEN = """
SELECT s.job_name || '/' || s.scope_id FROM schedules s
WHERE s.parked = 'waiting' AND NOT EXISTS (
    SELECT FROM executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
      AND e.status = 'RUNNING')
"""


@dataclass(frozen=True)
class Trouble:
    """`process`: whose; None: everybody's."""

    process: str | None
    since: float
    until: float


class Calm:
    """When and for whom there was none, and what went wrong nevertheless."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._troubles: list[Trouble] = []
        self._held: list[Trouble] = []
        self._landed: list[tuple[str, float, float]] = []
        self._free_since: dict[str, float] = {}

    def disturb(self, process: Process | None, seconds: float, since: float | None = None) -> None:
        since = self._cluster.loop.time() if since is None else since
        name = None if process is None else process.name
        self._troubles.append(Trouble(name, since, since + seconds))

    def waited(self, process: Process, since: float) -> None:
        """A statement of it has waited for a lock from then until now."""
        self.disturb(process, self._cluster.loop.time() - since + LONG, since)

    def held(self, since: float, *, by_client: bool) -> None:
        """A transaction has held its locks from then until now: who skips what is locked has
        skipped it. A replica looks again itself when its claim is over."""
        now = self._cluster.loop.time()
        if by_client and now - since > LONG:
            self._held.append(Trouble(None, since, now))

    def landed(self, process: Process, sent: float) -> None:
        """A COMMIT that broke then has become true now."""
        self._landed.append((process.name, sent, self._cluster.loop.time()))

    def _all(self) -> list[Trouble]:
        stalls = self._cluster.chance.stalls
        return [
            *self._troubles,
            *(Trouble(None if x is None else x.name, since, until) for x, since, until in stalls),
        ]

    def _is_calm(
        self, troubles: Iterable[Trouble], since: float, until: float, enough: float
    ) -> bool:
        """Whether there were so many seconds together without any of these."""
        at = since
        for trouble in sorted(troubles, key=lambda x: x.since):
            if min(trouble.since, until) - at >= enough:
                return True
            at = max(at, trouble.until)
        return until - at >= enough

    # -- leases -----------------------------------------------------------------------------------

    def judge(self) -> None:
        """In the end: no lease ran out whose holder could have renewed, ended or returned it."""
        cluster = self._cluster
        if cluster.faults.counts["leap"] or cluster.faults.counts["leap_back"]:
            return  # what the ledger's instants say is of another time
        spans = {span.token: span for span in cluster.record.spans}
        rows = cluster.database.eye.execute(_ENDED_BY_ITSELF, {"base": cluster.now()}).fetchall()
        for what, runner, token, ago, seen in rows:
            now = cluster.loop.time()
            self._judge_lease(what, runner, spans.get(token), now - ago, now + seen)

    def _judge_lease(
        self, what: str, runner: str, span: Span | None, claimed: float, seen: float
    ) -> None:
        holder = self._holder(runner, span, claimed)
        if holder is None:
            return
        name = holder.name
        if span is None:
            landings = [
                at
                for who, sent, at in self._landed
                if who == name and claimed <= sent < claimed + 5
            ]
            since, how = max(claimed, min(landings, default=0.0)), "was claimed and never begun"
        elif span.ended is not None:
            since, how = span.ended, f"ended ({span.end})"
        else:
            return
        until = seen + LEASE
        of_it = [x for x in self._all() if x.process in (None, name)]
        if holder.died_at >= until and self._is_calm(of_it, since, until, ENOUGH):
            self._cluster.record.wrong(
                f"{what} {how} on {name} at {since:.3f}, which was well, and its lease ran out",
                until,
            )

    def _holder(self, runner: str, span: Span | None, claimed: float) -> Process | None:
        """Which process of that runner had the lease; workers in other languages answer for
        themselves."""
        if span is not None:
            return span.process if span.process.is_replica else None
        return next(
            (
                process
                for process in self._cluster.processes
                if process.runner == runner and process.is_replica
                and process.born_at <= claimed < process.died_at
            ),
            None,
        )  # fmt: skip

    def troubled(self, since: float, until: float, process: Process | None = None) -> bool:
        """Whether anything began then, or went on for everybody or for this process."""
        concerned = (None,) if process is None else (None, process.name)
        return any(
            since <= x.since <= until
            or (x.process in concerned and x.since <= until and since <= x.until)
            for x in (*self._all(), *self._held)
        )

    # -- parked schedules -------------------------------------------------------------------------

    async def watch(self) -> None:
        """To the end: who waits for nothing is not left waiting."""
        while True:
            await asyncio.sleep(1.5)
            self._look()

    def _look(self) -> None:
        now = self._cluster.loop.time()
        rows = self._cluster.database.eye.execute(_FORGOTTEN).fetchall()
        free = {row[0]: self._free_since.get(row[0], now) for row in rows}
        for scope, since in free.items():
            if now - since > REARMED and not self.troubled(since - 2.5, since + 1.5):
                self._cluster.record.wrong(f"{scope} is parked waiting since {since:.3f}", now)
                free[scope] = now
        self._free_since = free
