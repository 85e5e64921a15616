"""What a claim is asked for, and what came of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cronledger.engine.claiming.breadth import LARGEST_CLAIM
from cronledger.engine.claiming.decide import ClaimDecision
from cronledger.engine.lease import Lease
from cronledger.ledger.rows import BrokenJob, NextDue
from cronledger.rules.model import ScopeKey


@dataclass(slots=True)
class ClaimRequest:
    """The limits of a claim. A retry after a failure narrows them.

    `slots`: the maximum number of executions. `steal`: whether stale leases are stolen.
    `excluded_jobs`: jobs that the claim ignores. `refused_jobs`: jobs that it ignores because the
    database refuses one of their values. `broken`: jobs whose definition cannot be read, by name.
    `only`: the only schedules to plan, during the search for one with a bad value; None: all.
    `ahead`: how far ahead of its instant a schedule is locked, if nothing is due yet. Everything
    except for the writes is then done before that instant.
    """

    slots: int
    steal: bool
    excluded_jobs: Collection[str]
    ahead: timedelta
    refused_jobs: set[str] = field(default_factory=set)
    broken: dict[str, BrokenJob] = field(default_factory=dict)
    only: Collection[ScopeKey] | None = None

    @property
    def max_rows(self) -> int:
        return min(self.slots, LARGEST_CLAIM)

    @property
    def jobs_not_to_run(self) -> list[str]:
        return [*self.excluded_jobs, *self.refused_jobs, *self.broken]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The result of a committed claim.

    `excluded_jobs`: jobs that the next claims of this runner must ignore. `next_due`: when more is
    due, as of the monotonic instant `read_at` or later. `full`: more may be due now. `left`: the
    claim left executions that may be due, and changed others. `lateness`: queue, and time from
    due_at to the start, of each new execution. `rearmed`: a schedule that the claim parked is due
    after all. `reconsider_after`: the seconds until a delegated schedule has to be considered
    again. `pause_at`: when a planned pause begins, from which on nothing is claimed until that
    pause has begun.
    """

    leases: Sequence[Lease]
    decision: ClaimDecision
    excluded_jobs: Collection[str]
    next_due: NextDue | None
    read_at: float
    full: bool
    left: bool
    lateness: Sequence[tuple[str, timedelta]]
    rearmed: bool
    reconsider_after: float | None
    pause_at: datetime | None

    @property
    def writes(self) -> bool:
        """Return whether the claim changed any row."""
        return bool(self.leases) or self.left or self.decision.writes
