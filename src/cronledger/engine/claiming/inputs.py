"""The inputs of the decisions of a claim, and the reads that `claim_look` leaves to the runner."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from cronledger.engine.claiming.abilities import Abilities
from cronledger.engine.claiming.revisions import Revisions
from cronledger.ledger.claim_rows import Claimed, ClaimLook, JobFacts, RunningExecution
from cronledger.ledger.rows import BrokenJob
from cronledger.ledger.statements import Connection, Statements
from cronledger.rules.model import Handler, JobOnHost, ScopeKey
from cronledger.rules.plans import ScheduleRow


class BrokenJobsError(Exception):
    """Executions of these jobs were claimed, but their definitions cannot be read."""

    def __init__(self, jobs: Sequence[BrokenJob]) -> None:
        super().__init__(", ".join(job.name for job in jobs))
        self.jobs = jobs


@dataclass(slots=True)
class ClaimInputs:
    """The inputs of the decisions of one claim.

    `running`: the RUNNING executions per scope, by id. `unclaimed`: the id of the first
    PENDING execution per scope, only of external jobs. `locked_jobs`, `locked_queues`: the limited
    ones whose row this claim has locked. `queue_room`: room of the limited queues.
    `runnable`: the jobs that this runner cannot plan and another live runner can run, with the
    host of the schedule.
    """

    now: datetime
    schedules: Sequence[ScheduleRow]
    jobs: Mapping[str, JobFacts]
    revisions: Revisions
    running: Mapping[ScopeKey, Sequence[RunningExecution]]
    unclaimed: Mapping[ScopeKey, int]
    locked_jobs: Collection[str]
    locked_queues: Collection[str]
    queue_room: Mapping[str, int]
    runnable: Collection[JobOnHost]


class InputReader:
    """Reads the inputs of claims."""

    def __init__(self, statements: Statements, revisions: Revisions, abilities: Abilities) -> None:
        self._statements = statements
        self._revisions = revisions
        self._abilities = abilities

    async def complete(
        self,
        c: Connection,
        look: ClaimLook,
        existing: Sequence[Claimed],
        schedules: Sequence[ScheduleRow],
    ) -> ClaimInputs:
        """Return the inputs of a claim of `existing` that plans `schedules`.

        Reads what this runner does not know yet, or what only some handlers need. Raises
        BrokenJobsError if the definition of a job of `existing` cannot be read.
        """
        assert look.now is not None, "there is something to decide"
        await self._read_revisions(c, existing, schedules, look.jobs)
        return ClaimInputs(
            now=look.now,
            schedules=schedules,
            jobs=look.jobs,
            revisions=self._revisions,
            running=_by_scope(look.running),
            unclaimed=await self._read_unclaimed(c, schedules, look.jobs),
            locked_jobs=frozenset(look.locked_jobs),
            locked_queues=frozenset(look.locked_queues),
            queue_room=look.queue_room,
            runnable=await self._read_runnable(c, schedules, look.jobs),
        )

    async def _read_revisions(
        self,
        c: Connection,
        existing: Sequence[Claimed],
        schedules: Sequence[ScheduleRow],
        jobs: Mapping[str, JobFacts],
    ) -> None:
        claimed = {row.key.job_name for row in existing} & jobs.keys()
        first = {name: jobs[name].revision for name in sorted(claimed)}
        for row in schedules:
            name = row.key.job_name
            late = [part.revision for report in row.reports for part in report.unreported]
            first[name] = min(row.planned_revision, *late, first.get(name, row.planned_revision))
        # The newest revision of a deleted job is unknown: all are read each time, which is rare.
        newest = {name: jobs[name].revision_id if name in jobs else None for name in first}
        await self._revisions.read(c, {name: (first[name], newest[name]) for name in first})
        self._require_readable(claimed, jobs)

    def _require_readable(self, names: Iterable[str], jobs: Mapping[str, JobFacts]) -> None:
        errors = {name: self._revisions.broken(name) for name in names}
        broken = [
            BrokenJob(name, jobs[name].revision, error)
            for name, error in errors.items()
            if error is not None
        ]
        if broken:
            raise BrokenJobsError(broken)

    async def _read_unclaimed(
        self, c: Connection, schedules: Sequence[ScheduleRow], jobs: Mapping[str, JobFacts]
    ) -> dict[ScopeKey, int]:
        """Return the first PENDING execution of each scope, only of external jobs."""
        external = {name for name, job in jobs.items() if job.handler == Handler.EXTERNAL}
        scopes = [row.key for row in schedules if row.key.job_name in external]
        if not scopes:
            return {}
        rows = await self._statements.read_unclaimed(c, scopes)
        return {row.scope: row.id for row in await rows.fetchall()}

    async def _read_runnable(
        self, c: Connection, schedules: Sequence[ScheduleRow], jobs: Mapping[str, JobFacts]
    ) -> set[JobOnHost]:
        """Return the jobs that this runner cannot plan and another live runner can run."""
        planned = {row.key.on_host for row in schedules if row.key.job_name in jobs}
        others = [x for x in sorted(planned, key=str) if not self._abilities.plans(jobs[x[0]])]
        if not others:
            return set()
        return set(await (await self._statements.read_runnable_jobs(c, others)).fetchall())


def _by_scope(running: Iterable[RunningExecution]) -> dict[ScopeKey, list[RunningExecution]]:
    by_scope: dict[ScopeKey, list[RunningExecution]] = {}
    for row in sorted(running, key=attrgetter("id")):
        by_scope.setdefault(row.scope, []).append(row)
    return by_scope
