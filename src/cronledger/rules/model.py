"""The words of the ledger as values: jobs, revisions, keys, and what a planner decides.

`Job` is the one definition of every policy: the TOML file, `@app.job`, the `jobs` table and
docs/configuration.md are all read from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from cronledger.rules import durations
from cronledger.rules.limits import LARGEST_INTEGER

NAME_PATTERN = r"^[^\x00-\x1f\x7f]{1,200}$"


def _duration(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(f"{value!r} has no unit; write 90s, 5m or 1h30m")
    return durations.parse(value) if isinstance(value, str) else value


def _limit(value: object) -> object:
    if value == NO_LIMIT:
        return None
    try:
        return _duration(value)
    except durations.DurationError as error:
        remedy = f"{error.remedy}, or '{NO_LIMIT}' for no limit"
        raise durations.DurationError(error.value, error.problem, remedy) from None


def _instant(value: object) -> object:
    # A number, also in quotes, would be taken for seconds since 1970.
    if isinstance(value, datetime | date):
        return value
    if isinstance(value, str) and "-" in value.strip()[1:]:
        return value
    raise ValueError(f"{value!r} is not an instant; write it like 2026-01-31T08:00:00Z")


Instant = Annotated[datetime, BeforeValidator(_instant)]
Whole = Annotated[int, Field(strict=True)]  # true is not 1
Duration = Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))]
NO_LIMIT = "none"
"""The text for a limit that is not set: TOML has no null."""
Limit = Annotated[Duration | None, BeforeValidator(_limit)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]

GLOBAL = "global"


class Handler(StrEnum):
    """What kind of thing a job runs; `jobs.handler`."""

    PYTHON = "python"
    COMMAND = "command"
    SQL = "sql"
    HTTP = "http"
    EXTERNAL = "external"


class CatchUp(StrEnum):
    """What becomes of missed plan_times; `jobs.catch_up`."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """What a due plan_time does while its (job, scope) is RUNNING; `jobs.overlap`."""

    SKIP = "skip"
    WAIT = "wait"
    ALLOW = "allow"
    REPLACE = "replace"


class Status(StrEnum):
    """`executions.status`."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Trigger(StrEnum):
    """What asked for an execution; `executions.trigger`."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    ENQUEUE = "enqueue"


class SkipReason(StrEnum):
    """Why plan_times did not run; `skips.reason`."""

    OVERLAP = "overlap"
    SUPERSEDED = "superseded"
    MISSED = "missed"
    PAUSED = "paused"
    RETIRED = "retired"


class Parked(StrEnum):
    """Why a schedule row is out of the due index; `schedules.parked`."""

    PAUSED = "paused"
    WAITING = "waiting"
    LIMIT = "limit"
    NO_RUNNER = "no_runner"
    SPEC_ERROR = "spec_error"
    RETIRED = "retired"
    ENDED = "ended"
    UNSCHEDULED = "unscheduled"


class JobState(StrEnum):
    """The state of a job from one revision on; `job_revisions.state`."""

    ACTIVE = "active"
    PAUSED = "paused"
    RETIRED = "retired"


class ScopeKey(NamedTuple):
    """The identity of a schedule row: (job, scope)."""

    job_name: str
    scope_kind: str
    scope_id: str


class ExecutionKey(NamedTuple):
    """The identity of an execution, in the order of its primary key."""

    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime

    @property
    def scope(self) -> ScopeKey:
        return ScopeKey(self.job_name, self.scope_kind, self.scope_id)


class Job(BaseModel):
    """A definition: name, schedule, handler, policies. One row of `jobs`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name = Field(description="Identity of the job. A rename is a retirement and a new job.")
    description: str | None = Field(None, description="For people.")
    schedule: str | None = Field(
        None,
        description="`*/5 * * * *`, `0 30 9 * * 1-5` (six fields: seconds first), `@hourly`, "
        "`@every 90s`; none: runs only when triggered or enqueued.",
    )
    timezone: str = Field("UTC", description="Zone whose wall clock the schedule means.")
    day_or: StrictBool = Field(
        True,
        description="Day of month and day of week: true follows Debian's cron (either, unless one "
        "begins with `*`); false: both must match.",
    )
    dst_gap: Literal["shift", "skip"] = Field(
        "shift", description="A fixed time that a gap swallows: run right after it, or not at all."
    )
    dst_fold: Literal["first", "both"] = Field(
        "first", description="A fixed time that occurs twice: run in the first pass, or in both."
    )
    schedule_delay: Duration = Field(timedelta(0), description="Start this long after plan_time.")
    jitter: Duration = Field(
        timedelta(0),
        description="Spread starts over this long after plan_time + schedule_delay; the share of "
        "one plan_time is a hash of (job, scope, plan_time), so every replica agrees.",
    )
    starts_at: Instant | None = Field(None, description="No plan_time before this instant.")
    ends_at: Instant | None = Field(None, description="No plan_time after this instant.")
    grace: Duration = Field(
        timedelta(seconds=60), description="How late the newest plan_time may start unquestioned."
    )
    catch_up: CatchUp = Field(
        CatchUp.LATEST,
        description="What becomes of missed plan_times: `skip`, `latest` (the newest one runs) or "
        "`all` (oldest first).",
    )
    catch_up_window: Duration = Field(
        timedelta(days=1), description="What is missed for longer than this never runs."
    )
    catch_up_limit: Annotated[Whole, Field(ge=1, le=10_000)] = Field(
        100, description="With `catch_up = all`: at most this many, the newest."
    )
    overlap: Overlap = Field(
        Overlap.SKIP,
        description="What a due plan_time does while its (job, scope) is RUNNING: `skip`, `wait`, "
        "`allow` or `replace` (cancel the running one, then start).",
    )
    max_running: Annotated[Whole, Field(ge=1, le=LARGEST_INTEGER)] | None = Field(
        None, description="Executions of this job RUNNING at once, over all scopes and replicas."
    )
    queue: Name = Field("default", description="Which runners take it: those with this queue.")
    handler: Handler = Field(description="What kind of thing runs.")
    target: Mapping[str, Any] = Field(
        default_factory=dict, description="What runs: the argv, the function, the statement."
    )
    payload: Any = Field(None, description="JSON handed to the handler.")
    run_timeout: Limit = Field(
        timedelta(hours=1),
        description='An attempt is stopped after it. `"none"` (`None` in Python, NULL in SQL): it '
        "may run for any length of time while its lease is renewed.",
    )
    stale_timeout: Duration = Field(
        timedelta(seconds=60),
        description="Length of the lease; renewed every third of it. At least 3 s.",
    )
    allow_stale_reentry: StrictBool = Field(
        False,
        description="Reentrant: a stale lease may be stolen and the work run again.",
    )
    max_attempts: Annotated[Whole, Field(ge=1, le=10_000)] = Field(
        1, description="Attempts in all, the first included."
    )
    retry_backoff: tuple[Duration, ...] = Field(
        (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15)),
        min_length=1,
        max_length=10_000,
        description="Wait before attempt 2, 3, …; the last one repeats.",
    )
    retry_jitter: Annotated[float, Field(ge=0, le=1, strict=True)] = Field(
        0.0, description="Share of the backoff that is added at random, 0 to 1."
    )
    scope_kind: Name = Field(GLOBAL, description="What the scopes of this job are.")
    scopes: tuple[Name, ...] | None = Field(
        None,
        description="The scope_ids when they are fixed; none: one `global` scope, or those that "
        "the job's scope provider answers.",
    )

    @property
    def reentrant(self) -> bool:
        return self.allow_stale_reentry


@dataclass(frozen=True, slots=True)
class Revision:
    """One row of `job_revisions`: `job` holds from `effective_from` until the next revision.

    `paused_until`: a pause that ends by itself; None with state PAUSED: until resumed.
    """

    revision: int
    effective_from: datetime
    state: JobState
    job: Job
    paused_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """What a claim reads of one locked `schedules` row.

    `woken`: it is new or was edited, and has to be planned whether or not anything is due.
    """

    key: ScopeKey
    queue: str
    planned_through: datetime
    planned_revision: int
    next_plan_time: datetime | None = None
    retired_at: datetime | None = None
    returned_at: datetime | None = None
    woken: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A plan_time that is to run now, under the definition of its revision."""

    plan_time: datetime
    due_at: datetime
    revision: Revision


@dataclass(frozen=True, slots=True)
class Skip:
    """A range of `count` neighbouring plan_times that did not run, for one reason."""

    from_plan_time: datetime
    through_plan_time: datetime
    count: int
    reason: SkipReason
    revision: int
    blocked_by: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of one schedule row in one step.

    `planned_through` >= the old cursor. Every plan_time in (old cursor, planned_through] is in
    `runs` or in `skips`. Exactly one of `next_due_at` and `parked` is set. `replaces`: request
    cancellation of what is RUNNING. `spec_error`: why the job cannot be planned.
    """

    planned_through: datetime
    planned_revision: int
    next_plan_time: datetime | None
    next_due_at: datetime | None
    parked: Parked | None
    runs: tuple[Run, ...] = ()
    skips: tuple[Skip, ...] = ()
    replaces: bool = False
    spec_error: str | None = None
    settled: int = field(default=0)
