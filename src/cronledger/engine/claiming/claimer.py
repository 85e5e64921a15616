"""The claims of one runner: their retries, and the state that is kept between them."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta

import psycopg

from cronledger.engine import planned_pauses
from cronledger.engine.claiming.abilities import Abilities
from cronledger.engine.claiming.bad_values import BadValues
from cronledger.engine.claiming.breadth import Breadth
from cronledger.engine.claiming.claim import (
    MUST_NOT_START,
    Claim,
    ClaimContext,
    ClockLeaptError,
    PausesDueError,
)
from cronledger.engine.claiming.inputs import BrokenJobsError, InputReader
from cronledger.engine.claiming.lead import Lead
from cronledger.engine.claiming.low_water import LowWater
from cronledger.engine.claiming.request import ClaimRequest, ClaimResult
from cronledger.engine.claiming.revisions import Revisions
from cronledger.engine.claiming.tokens import Tokens
from cronledger.engine.claiming.unknown_commits import UnknownCommits
from cronledger.engine.clock import DatabaseClock
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.database_errors import BAD_VALUE_ERRORS
from cronledger.ledger.statements import Statements


class Claimer:
    """Claims for one runner, one claim at a time.

    `unknown_commits`: executions of earlier claims that may have been committed. `low_water`: from
    where claims search for due schedules. `lead`: how long before its instant the next claim of
    something that is not due yet begins.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        clock: DatabaseClock,
        abilities: Abilities,
        *,
        runner: str,
        queues: Sequence[str],
        traces: bool = False,
    ) -> None:
        self._idle = asyncio.Event()
        self._idle.set()
        self.unknown_commits = UnknownCommits(pool, statements)
        self.breadth = Breadth()
        self.low_water = LowWater()
        self.lead = Lead()
        revisions = Revisions(statements)
        self.reader = InputReader(statements, revisions, abilities)
        self._bad_values = BadValues(pool, statements)
        self._context = ClaimContext(
            pool, statements, clock, abilities, runner, queues, revisions, self.reader, Tokens(),
            self.breadth, self.unknown_commits, self.low_water, self.lead, traces,
        )  # fmt: skip

    @property
    def in_flight(self) -> bool:
        """Return whether a claim is in progress."""
        return not self._idle.is_set()

    async def wait_idle(self) -> None:
        """Wait for the end of the claim in progress. Its executions have been started then."""
        await self._idle.wait()

    async def claim(
        self, slots: int, *, steal: bool, excluded_jobs: Collection[str]
    ) -> ClaimResult:
        """Claim at most `slots` executions, and retry without the jobs that make a claim fail.

        These jobs get a spec_error and are in `excluded_jobs` of the result. Raises psycopg.Error
        if nothing was committed, or if the outcome of the COMMIT is unknown. The caller then has to
        resolve `unknown_commits` before the next claim.
        """
        request = ClaimRequest(slots, steal, excluded_jobs, self.lead.ahead)
        self._idle.clear()
        try:
            while True:
                claim = Claim(self._context, request)
                try:
                    result = await claim.run()
                except BrokenJobsError as found:
                    request.broken.update((job.name, job) for job in found.jobs)
                except PausesDueError:
                    await self._begin_pauses()
                except ClockLeaptError:
                    request.steal = False
                except BAD_VALUE_ERRORS as error:
                    await self._bad_values.isolate(request, claim, error)
                except psycopg.Error as error:
                    if error.sqlstate != MUST_NOT_START:
                        raise
                    request.ahead = timedelta(0)
                else:
                    # Not earlier: a claim that is cut off before this point has to be released.
                    self.unknown_commits.remove(claim.executions())
                    return result
        finally:
            self._idle.set()

    async def _begin_pauses(self) -> None:
        async with self._context.pool.connection() as c:
            await planned_pauses.begin(c, self._context.statements)
