"""The reads of a claim, in new statements after its locks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from cronledger.engine.claiming.abilities import Abilities
from cronledger.engine.claiming.revisions import Revisions
from cronledger.engine.clock import fetch_now
from cronledger.ledger.rows import BrokenJob, Claimed, JobFacts, LiveFunction, RunningExecution
from cronledger.ledger.statements import Connection, Statements
from cronledger.rules.model import Handler, ScheduleRow, ScopeKey


class BrokenJobsError(Exception):
    """Executions of these jobs were claimed, but their definitions cannot be read."""

    def __init__(self, jobs: Sequence[BrokenJob]) -> None:
        super().__init__(", ".join(job.name for job in jobs))
        self.jobs = jobs


@dataclass(slots=True)
class ClaimInputs:
    """The inputs of the decisions of one claim.

    `running`: the RUNNING executions per scope, by id. `unclaimed`: the id of the first
    PENDING execution per scope, only of external jobs. `locked_jobs`: limited jobs whose row this
    claim has locked. `locked_queues`: queues that are unlimited, or whose row this claim has
    locked. `queue_room`: room of the limited queues. `live_functions`: the functions of all live
    runners; None if they were not needed.
    """

    now: datetime
    schedules: Sequence[ScheduleRow]
    jobs: Mapping[str, JobFacts]
    revisions: Revisions
    running: Mapping[ScopeKey, Sequence[RunningExecution]]
    unclaimed: Mapping[ScopeKey, int]
    locked_jobs: Collection[str]
    locked_queues: Collection[str]
    queue_room: dict[str, int]
    live_functions: Collection[LiveFunction] | None


class InputReader:
    """Reads the inputs of claims."""

    def __init__(self, statements: Statements, revisions: Revisions, abilities: Abilities) -> None:
        self._statements = statements
        self._revisions = revisions
        self._abilities = abilities

    async def read(
        self,
        c: Connection,
        existing: Sequence[Claimed],
        schedules: Sequence[ScheduleRow],
        *,
        ahead: bool,
    ) -> ClaimInputs:
        """Lock the limited jobs and queues of these schedules, then read the inputs of the claim.

        `ahead`: lock nothing, because a claim ahead leaves what is limited to a later claim. Also
        reads the definitions of the jobs of `existing`, the executions that are already
        claimed. Raises BrokenJobsError if one of these definitions cannot be read.
        """
        s = self._statements
        planned = sorted({row.key.job_name for row in schedules})
        names = sorted({row.key.job_name for row in existing}.union(planned))
        queues = sorted({row.queue for row in schedules})
        locked_queues = None if ahead else await s.lock_limited_queues(c, queues)
        locked_jobs = None if ahead else await s.lock_limited_jobs(c, planned)
        facts = await s.read_jobs(c, names)
        room = await s.count_running_queues(c, queues)
        running = await s.read_running(c, [row.key for row in schedules])
        clock = await s.read_clock(c)
        jobs = {job.name: job for job in await facts.fetchall()}
        await self._read_revisions(c, existing, schedules, jobs)
        queue_room = {row.queue: row.room for row in await room.fetchall()}
        unlimited = [queue for queue in queues if queue not in queue_room]
        return ClaimInputs(
            running=_by_scope(await running.fetchall()),
            now=await fetch_now(clock),
            schedules=schedules,
            jobs=jobs,
            revisions=self._revisions,
            unclaimed=await self._read_unclaimed(c, schedules, jobs),
            locked_jobs=set(await locked_jobs.fetchall() if locked_jobs else ()),
            locked_queues=set(await locked_queues.fetchall() if locked_queues else unlimited),
            queue_room=queue_room,
            live_functions=await self._read_live_functions(c, schedules, jobs),
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
            first[name] = min(row.planned_revision, first.get(name, row.planned_revision))
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

    async def _read_live_functions(
        self, c: Connection, schedules: Sequence[ScheduleRow], jobs: Mapping[str, JobFacts]
    ) -> set[LiveFunction] | None:
        """Return the functions of all live runners; None if this runner can plan all schedules."""
        planned = [jobs.get(row.key.job_name) for row in schedules]
        if all(job is None or self._abilities.plans(job) for job in planned):
            return None
        rows = await self._statements.read_live_handlers(c)
        return set(await rows.fetchall())


def _by_scope(running: Iterable[RunningExecution]) -> dict[ScopeKey, list[RunningExecution]]:
    by_scope: dict[ScopeKey, list[RunningExecution]] = {}
    for row in sorted(running, key=attrgetter("id")):
        by_scope.setdefault(row.scope, []).append(row)
    return by_scope
