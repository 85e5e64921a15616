"""The terms of the ledger as types: jobs, revisions and keys.

`Job` is the only definition of the policies. The TOML file, `@app.job`, the table `jobs` and
docs/configuration.md follow from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from cronledger.rules.calendars import Calendar, CalendarKey, Calendars
from cronledger.rules.field_types import (
    MOST_LABELS,
    Deadline,
    Duration,
    ExpectedDuration,
    Instant,
    Labels,
    Limit,
    Name,
    Owner,
    RetryFilter,
    Whole,
)
from cronledger.rules.limits import LARGEST_INTEGER
from cronledger.rules.notify import Rules
from cronledger.rules.requirements import After, Requirement, Requires, Upstream
from cronledger.rules.selectors import Selector
from cronledger.rules.urls import HttpUrl

GLOBAL = "global"
HOST = "host"
"""The kind of the scopes that are hosts. Only a replica of the host runs such a scope."""


class Handler(StrEnum):
    """How a job runs; `jobs.handler`."""

    PYTHON = "python"
    COMMAND = "command"
    SQL = "sql"
    HTTP = "http"
    EXTERNAL = "external"
    OBSERVED = "observed"


OF_OPERATORS = frozenset({"adopted_at", "returned_at"})
"""The fields of `Job` that `adopt` sets. Sources do not declare them, and an apply keeps them."""
RUN_BY_OTHERS = frozenset({Handler.EXTERNAL, Handler.OBSERVED})
"""The kinds that no replica runs. Workers claim executions, or another scheduler starts runs."""


class CatchUp(StrEnum):
    """The handling of missed plan_times; `jobs.catch_up`."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """The handling of a plan_time that is due while its (job, scope) runs; `jobs.overlap`."""

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
    """The origin of an execution; `executions.trigger`."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    ENQUEUE = "enqueue"
    OBSERVED = "observed"


class SkipReason(StrEnum):
    """The reason why plan_times did not run; `skips.reason`."""

    OVERLAP = "overlap"
    SUPERSEDED = "superseded"
    MISSED = "missed"
    PAUSED = "paused"
    RETIRED = "retired"
    OPERATOR = "operator"
    CALENDAR = "calendar"
    UPSTREAM = "upstream"
    HOST_ABSENT = "host_absent"
    NOT_REPORTED = "not_reported"


class Parked(StrEnum):
    """The reason why a schedule row is not in the due index; `schedules.parked`."""

    PAUSED = "paused"
    WAITING = "waiting"
    LIMIT = "limit"
    NO_RUNNER = "no_runner"
    SPEC_ERROR = "spec_error"
    RETIRED = "retired"
    ENDED = "ended"
    UNSCHEDULED = "unscheduled"
    BOOT = "boot"


class JobState(StrEnum):
    """The state of a job from one revision on; `job_revisions.state`."""

    ACTIVE = "active"
    PAUSED = "paused"
    RETIRED = "retired"


JobOnHost = tuple[str, str | None]
"""A job, and the host on which it runs; None: on any."""


class ScopeKey(NamedTuple):
    """The identity of a schedule row: (job, scope)."""

    job_name: str
    scope_kind: str
    scope_id: str

    @property
    def host(self) -> str | None:
        """The host on which executions of the scope run; None: on any."""
        return self.scope_id if self.scope_kind == HOST else None

    @property
    def on_host(self) -> JobOnHost:
        """The job, and the host whose runners have to be able to run it; None: any host."""
        return self.job_name, self.host


class ExecutionKey(NamedTuple):
    """The identity of an execution, in the order of its primary key."""

    job_name: str
    scope_kind: str
    scope_id: str
    plan_time: datetime

    @property
    def scope(self) -> ScopeKey:
        return ScopeKey(self.job_name, self.scope_kind, self.scope_id)


class Window(NamedTuple):
    """The half-open interval [start, end) of time that an execution processes."""

    start: datetime
    end: datetime


def hashed_as(after: Sequence[Any] | None, scope: ScopeKey) -> ScopeKey:
    """Return the key that decides `H` in this scope of a job: that of the job whose schedule it is.

    `after`: that of the job, or of its row.
    """
    if not after:
        return scope
    upstream = Upstream.model_validate(after[0])
    root = upstream.root or upstream
    if root.scope == GLOBAL:
        return ScopeKey(root.job, GLOBAL, GLOBAL)
    return scope._replace(job_name=root.job)


class Job(BaseModel):
    """A definition: name, schedule, handler, policies. One row of `jobs`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name = Field(
        description="Identity of the job. To rename a job is to retire it and add a new one."
    )
    description: str | None = Field(None, description="A description for people.")
    owner: Owner | None = Field(
        None, description="The person or team that is responsible for the job."
    )
    labels: Labels = Field(
        None,
        description='Labels, such as `{ team = "data" }`, by which listings are filtered. At most '
        f"{MOST_LABELS}: keys of at most 63 letters, digits and `._/-`, values of at most 200 "
        "characters. Labels of a job replace those of `[defaults]`.",
    )
    runbook: HttpUrl | None = Field(
        None,
        description="URL of instructions for people, which the page and alerts of the job show.",
    )
    notify: Rules = Field(
        None,
        description="Which events are sent to which channel: the name of a channel, or rules such "
        'as `[{ channel = "ops", on = ["failed", "recovered"], after = 3, remind = "4h" }]`.',
    )
    ping: HttpUrl | None = Field(
        None,
        description="URL of a check of Healthchecks, or of a service with the same protocol. "
        "Replicas report the start and the end of each attempt to it. Needs the extra `http`.",
    )
    schedule: str | None = Field(
        None,
        description="When the job fires: `*/5 * * * *`, `0 30 9 * * 1-5` (six fields: seconds "
        "first), `@hourly`, `@every 90s`, `@reboot` (with `every`). If it is not set, the job runs "
        "only when triggered or enqueued.",
        json_schema_extra={
            "pattern": r"^\s*(@\w+(\s+\S.*)?|[^@\s]\S*(\s+\S+){4,5})\s*$",
            "examples": ["*/5 * * * *", "0 30 9 * * 1-5", "@hourly", "@every 90s"],
        },
    )
    timezone: str = Field("UTC", description="Time zone of the schedule.")
    calendar: Name | None = Field(
        None,
        description="Name of a calendar, whose excluded dates the job leaves out. The local date "
        "in the time zone of the job decides. See [Calendars](policies.md#calendars).",
    )
    on_excluded: Literal["skip", "next", "previous"] = Field(
        "skip",
        description="A firing on an excluded date: `skip` it, or move it to the same time of the "
        "`next` or `previous` date that is not excluded.",
    )
    day_or: StrictBool = Field(
        True,
        description="How day of month and day of week combine. `true`: as in Debian's cron, one "
        "match is enough, unless one of them begins with `*`. `false`: both must match.",
    )
    dst_gap: Literal["shift", "skip"] = Field(
        "shift",
        description="A fixed time that a clock change skips: run right after the gap, or not at "
        "all.",
    )
    dst_fold: Literal["first", "both"] = Field(
        "first",
        description="A fixed time that a clock change repeats: run the first time, or both times.",
    )
    schedule_delay: Duration = Field(
        timedelta(0), description="Time between plan_time and the earliest start."
    )
    jitter: Duration = Field(
        timedelta(0),
        description="Starts are spread over this time after plan_time + schedule_delay. The delay "
        "of one plan_time is a hash of (job, scope, plan_time), so that all replicas agree.",
    )
    starts_at: Instant | None = Field(None, description="No plan_time lies before this time.")
    ends_at: Instant | None = Field(None, description="No plan_time lies after this time.")
    grace: Duration = Field(
        timedelta(seconds=60),
        description="How late the newest plan_time may start before it counts as missed.",
    )
    catch_up: CatchUp = Field(
        CatchUp.LATEST,
        description="Missed plan_times: `skip` them, run the `latest`, or run `all`, oldest first.",
    )
    catch_up_window: Duration = Field(
        timedelta(days=1), description="A plan_time that is missed for longer than this never runs."
    )
    catch_up_limit: Annotated[Whole, Field(ge=1, le=10_000)] = Field(
        100, description="With `catch_up = all`, at most this many run: the newest ones."
    )
    overlap: Overlap = Field(
        Overlap.SKIP,
        description="A plan_time that is due while its (job, scope) is RUNNING: `skip` it, let it "
        "`wait`, `allow` it to run too, or `replace` (cancel the running one, then start).",
    )
    windows: StrictBool = Field(
        False,
        description="`true`: each execution has a window of time, which begins where that of the "
        "last SUCCESS of its scope ended, and ends at its plan_time. Needs another `overlap` than "
        "`allow`. See [Windows](policies.md#windows).",
    )
    requires: Requires = Field(
        None,
        description="Jobs that must have succeeded first: names, or tables such as "
        '`{ job = "hourly", scope = "same" }`. An execution starts when each plan_time of these '
        "jobs since the previous plan_time of this job is a SUCCESS. See "
        "[Gates](policies.md#gates).",
    )
    after: After = Field(
        None,
        description="A job whose plan_times this job has, instead of a schedule of its own. This "
        "job also requires it.",
    )
    wait_at_most: Duration | None = Field(
        None,
        description="How long an execution waits for `requires` and `after`, and for a handler "
        "that is not ready. If it is not set: until the next plan_time.",
    )
    start_by: Deadline | None = Field(
        None,
        description="Deadline of the start: a wall time in the time zone of the job, such as "
        "`06:00`, or a duration after plan_time, such as `15m`. A missed deadline is a "
        "[breach](deadlines.md).",
    )
    finish_by: Deadline | None = Field(
        None, description="Deadline of the success, written like `start_by`."
    )
    expect_duration: ExpectedDuration | None = Field(
        None,
        description="How long an attempt may take: a duration, or a multiple of a quantile of the "
        "last successful executions, such as `2*p95`. A longer attempt is a breach, but is not "
        "stopped.",
    )
    max_running: Annotated[Whole, Field(ge=1, le=LARGEST_INTEGER)] | None = Field(
        None,
        description="Maximum number of executions of this job that are RUNNING at once, over all "
        "scopes and replicas.",
    )
    queue: Name = Field("default", description="Only runners that serve this queue run the job.")
    on: Selector = Field(
        None,
        description="Labels such as `role=web,dc=fra` or `host=web1`. Only runners that have all "
        "of them run the job. See [Hosts](policies.md#hosts).",
    )
    every: Selector = Field(
        None,
        description="Labels such as `role=web`. Each plan_time runs once on every host that has "
        "all of them. Excludes `on` and `scopes`. See [Every host](policies.md#every-host).",
    )
    handler: Handler = Field(description="How the job runs.")
    observed: StrictBool = Field(
        False,
        description="`true`, beside a handler: another scheduler fires the job until `cronledger "
        "adopt` moves it to replicas. Without a handler, replicas never run the job. See [Adopt a "
        "job](howto/adopt.md).",
    )
    adopted_at: Instant | None = None
    returned_at: Instant | None = None
    target: Mapping[str, Any] = Field(
        default_factory=dict,
        description="What the job runs: a command, function, statement or URL.",
    )
    payload: Any = Field(None, description="JSON that is passed to the handler.")
    payload_schema: dict[str, Any] | None = Field(
        None,
        description="JSON Schema of the payload, for people and forms. An App derives it from the "
        "type of the handler's parameter. Enqueueing and triggering do not check it.",
    )
    run_timeout: Limit = Field(
        timedelta(hours=1),
        description='An attempt is stopped after this time. `"none"` (`None` in Python, NULL in '
        "SQL): "
        "no limit.",
    )
    stale_timeout: Duration = Field(
        timedelta(seconds=60),
        description="Length of the lease, which is renewed every third of it. At least 3 s.",
    )
    allow_stale_reentry: StrictBool = Field(
        False,
        description="`true` for reentrant work: a stale lease may be stolen, and the work runs "
        "again.",
    )
    max_attempts: Annotated[Whole, Field(ge=1, le=10_000)] = Field(
        1, description="Maximum number of attempts, including the first."
    )
    retry_backoff: tuple[Duration, ...] = Field(
        (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15)),
        min_length=1,
        max_length=10_000,
        description="Time before attempt 2, 3, …; the last value repeats.",
    )
    retry_jitter: Annotated[float, Field(ge=0, le=1, strict=True)] = Field(
        0.0, description="A random time of up to this share of the backoff, 0 to 1, is added."
    )
    retry_on: RetryFilter = Field(
        None,
        description="Only a failure that matches one of these is retried. If it is not set: any "
        "failure. See [retry filters](howto/retry.md#retry-filters).",
    )
    never_retry_on: RetryFilter = Field(
        None,
        description="A failure that matches one of these is not retried, even if it matches "
        "`retry_on`.",
    )
    not_ready_on: RetryFilter = Field(
        None,
        description="A failure that matches one of these means that the work cannot begin yet: the "
        "execution waits and is tried again, and the attempt does not count. See "
        "[Gates](howto/gates.md#conditions-that-only-the-handler-knows).",
    )
    not_ready_after: Duration | None = Field(
        None,
        description="How long an execution waits after a failure of `not_ready_on`. If it is not "
        "set: 1m.",
    )
    keep_output: Duration | None = Field(
        None,
        description="How long the ledger keeps payload, result, output, key and messages of an "
        "execution after its end. At least 1 h. If it is not set: as long as the execution. See "
        "[What is stored](data.md#keep_output).",
    )
    capture_output: StrictBool = Field(
        True,
        description="`true`: the output of the handler is stored, and shown while it runs. See "
        "[Follow the output](howto/output.md).",
    )
    scope_kind: Name = Field(GLOBAL, description="Kind of the job's scopes, such as `tenant`.")
    scopes: tuple[Name, ...] | None = Field(
        None,
        description="The scope_ids. If it is not set: one `global` scope, or those that the scope "
        "provider of the job returns.",
    )

    @model_validator(mode="before")
    @classmethod
    def _on_every_host(cls, values: Any) -> Any:
        """Return the values with what `every` decides, as a trigger completes a row of `jobs`."""
        if not isinstance(values, Mapping) or not values.get("every"):
            return values
        decided = {"on": values.get("on") or values["every"], "scope_kind": HOST}
        return {**values, **(decided if values.get("scope_kind", GLOBAL) == GLOBAL else {})}

    @property
    def may_be_observed(self) -> bool:
        """Whether another scheduler fires some of its plan_times."""
        return self.observed or self.handler == Handler.OBSERVED

    def is_observed(self, plan_time: datetime) -> bool:
        """Return whether another scheduler fires this plan_time."""
        if not self.observed or self.handler == Handler.OBSERVED:
            return self.handler == Handler.OBSERVED
        return (
            self.adopted_at is None
            or plan_time < self.adopted_at
            or (self.returned_at is not None and plan_time >= self.returned_at)
        )

    @property
    def reentrant(self) -> bool:
        return self.allow_stale_reentry

    @property
    def gates(self) -> tuple[Requirement, ...]:
        """The jobs that each execution waits for: those of `after`, then those of `requires`."""
        after = [Upstream.model_validate(one) for one in self.after or ()]
        requires = [Requirement.model_validate(one) for one in self.requires or ()]
        return (*after, *requires)


def unchecked(row: Mapping[str, Any]) -> Job:
    """Return the job of a row, which is not checked again. Its schedule is when it is read."""
    return Job.model_construct(**{name: row[name] for name in Job.model_fields if name in row})


@dataclass(frozen=True, slots=True)
class Revision:
    """One row of `job_revisions`: `job` applies from `effective_from` until the next revision.

    `paused_until`: the end of a pause; None while the state is PAUSED: until the job is resumed.
    `broken`: no replica can run the job, because a value is invalid. `calendar`: the revision of
    the calendar that `job.calendar` names; None: the ledger does not have it.
    """

    revision: int
    effective_from: datetime
    state: JobState
    job: Job
    paused_until: datetime | None = None
    broken: bool = False
    calendar: Calendar | None = None

    @classmethod
    def unchecked(cls, row: Mapping[str, Any], calendars: Calendars) -> Self:
        """Return the revision of a row of history. Its schedule is checked when it is walked.

        That is enough for plan_times and deadlines, which do not depend on other values.
        `calendars`: those that `calendars.named_in` finds in the row.
        """
        key = CalendarKey(row["calendar"], row["calendar_revision"])
        state, ends = JobState(row["state"]), row["pause_ends"]
        return cls(
            row["number"], row["effective_from"], state, unchecked(row), ends,
            calendar=calendars.get(key),
        )  # fmt: skip
