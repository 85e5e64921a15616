"""What a simulation of the coming executions is given, and what it finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from cronledger.rules.model import Job, Revision, ScopeKey, SkipReason
from cronledger.rules.plans import PlannedSkip


@dataclass(frozen=True, slots=True)
class Series:
    """The coming plan_times of one (job, scope), those after `after`.

    `revisions`: as the planner needs them, with the same job. Executions take `typical`, and rarely
    longer than `long`. `known`: both are from the history. `planned_skips`: those of the scope that
    reach beyond `after`, by `first`.
    """

    key: ScopeKey
    revisions: Sequence[Revision]
    after: datetime
    typical: timedelta
    long: timedelta
    known: bool = True
    planned_skips: Sequence[PlannedSkip] = ()

    @property
    def job(self) -> Job:
        """The definition of the job."""
        return self.revisions[-1].job


@dataclass(frozen=True, slots=True)
class Pool:
    """The slots of runners that serve the same queues."""

    queues: frozenset[str]
    slots: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What bounds executions at once. `limits`: max_running of queues.

    A queue that no pool serves has unlimited slots.
    """

    pools: Sequence[Pool]
    limits: Mapping[str, int]

    def slots(self, queue: str) -> int | None:
        """Return the slots of the pools that serve a queue, or None if no pool serves it."""
        serving = [pool.slots for pool in self.pools if queue in pool.queues]
        return sum(serving) if serving else None


class Running(NamedTuple):
    """An execution that runs at the start, and when it will probably end.

    `is_observed`: another scheduler has started it, so it uses no slot.
    """

    key: ScopeKey
    queue: str
    until: datetime
    plan_time: datetime | None = None
    is_observed: bool = False


class Cause(StrEnum):
    """Why an execution does not start at its due_at. UPSTREAM: it waits for what it requires."""

    SLOTS = "slots"
    QUEUE = "queue limit"
    JOB = "job limit"
    OVERLAP = "overlap"
    PAUSE = "pause"
    UPSTREAM = "upstream"


class Executed(NamedTuple):
    """One execution. `series`: its index. `cause`: why it started after `ready_at`, if it did.

    `ready_at`: its due_at, or the later instant at which its gate opened, because the required job
    `upstream` ended.
    """

    series: int
    plan_time: datetime
    due_at: datetime
    start: datetime
    end: datetime
    cause: Cause | None
    ready_at: datetime
    upstream: str | None = None


class Skipped(NamedTuple):
    """One plan_time that does not run. `upstream`: a required job for which it has `waited`."""

    series: int
    plan_time: datetime
    reason: SkipReason
    upstream: str | None = None
    waited: timedelta = timedelta(0)


class Unstarted(NamedTuple):
    """One plan_time that still waits at the end of the simulation, since `ready_at`."""

    series: int
    plan_time: datetime
    ready_at: datetime
    cause: Cause
    upstream: str | None = None


Outcome = Executed | Skipped | Unstarted
