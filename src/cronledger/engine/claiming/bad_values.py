"""Claims that fail because the database refuses a value of one job.

The error does not name the row. So the claim is retried with half of its schedules until only the
one with the bad value is left. Its job gets a spec_error, and the others are claimed.
"""

from collections.abc import Sequence

from psycopg import Error, errors

from cronledger.engine.claiming.claim import Claim
from cronledger.engine.claiming.request import ClaimRequest
from cronledger.ledger.claim_rows import JobFacts
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import BrokenJob
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules.model import ScopeKey

log = get_logger(__name__)


class BadValues:
    """Isolates schedules with bad values, so that they do not stop the others."""

    def __init__(self, pool: AsyncPool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements

    async def isolate(self, request: ClaimRequest, claim: Claim, error: Error) -> None:
        """Prepare a retry of the failed `claim`: narrow `request`, or create missing partitions.

        Raises `error` if no schedule can be the cause.
        """
        if _is_missing_partition(error) and await self._create_partitions(claim):
            return
        scopes = sorted(row.key for row in claim.schedules)
        if not scopes:
            raise error
        if len(scopes) > 1:
            request.only = scopes[: len(scopes) // 2]
            return
        await self._park(scopes[0], claim.jobs.get(scopes[0].job_name), error)
        request.refused_jobs.add(scopes[0].job_name)
        request.only = None

    async def _create_partitions(self, claim: Claim) -> bool:
        """Create the partitions of the executions that were to be inserted, if any are missing."""
        made = claim.decision
        new = [x.key.plan_time for x in (*made.new, *made.pending)]
        new.extend(x.plan_time for x in made.reported)
        async with self._pool.connection() as c:
            async with step_transaction(c):
                created = await self._statements.create_missing_partitions(c, new)
            names: Sequence[str] = await created.fetchall()
        for name in names:
            log.info("partitions_maintained", action="made", subject=name)
        return bool(names)

    async def _park(self, scope: ScopeKey, job: JobFacts | None, refused: Error) -> None:
        """Record the error as the job's spec_error, and take the schedule out of the due index.

        `job`: None if it is deleted.
        """
        error = f"the database refuses a value of this job: {refused.diag.message_primary}"
        async with self._pool.connection() as c:
            if job is not None:
                async with step_transaction(c):
                    broken = BrokenJob(job.name, job.revision, error)
                    await self._statements.set_spec_errors(c, [broken])
            async with step_transaction(c):
                await self._statements.park_broken(c, [scope])
        log.error("job_broken", job=scope.job_name, scope=scope.scope_id, error=error)


def _is_missing_partition(error: Error) -> bool:
    # Of the violations of class 23 only this one names no constraint.
    return isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None
