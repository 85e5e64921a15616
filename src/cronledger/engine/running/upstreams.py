"""The results of the jobs that an execution waited for, for `ctx.upstream()`."""

from dataclasses import dataclass

import psycopg

from cronledger.engine.lease import Lease
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.statements import Statements
from cronledger.rules.gates import required_scopes
from cronledger.rules.requirements import UpstreamResult, UpstreamResults


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Reads the results before a handler is called. Jobs that require nothing need no statement."""

    pool: AsyncPool
    statements: Statements

    async def read(self, lease: Lease) -> UpstreamResults:
        """Return the results by job, or the error of the ledger, which `ctx.upstream` raises."""
        job, key = lease.job, lease.claimed.key
        found: dict[str, list[UpstreamResult]] = {gate.job: [] for gate in job.gates}
        if not found:
            return UpstreamResults({})
        try:
            async with self.pool.connection() as c:
                scopes = required_scopes(job, key.scope)
                rows = await self.statements.list_upstream_results(c, key, scopes)
                for name, plan_time, result in await rows.fetchall():
                    found[name].append(UpstreamResult(plan_time, result))
        except psycopg.Error as error:
            return UpstreamResults({}, error)
        return UpstreamResults({name: tuple(results) for name, results in found.items()})
