"""What executions and jobs look like to the model of the ledger, and who may do what to them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

PERIOD = timedelta(seconds=60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_STEALS = 3
GRACE = timedelta(milliseconds=1)
"""How far an instant may lie behind now because the next free one was taken."""

Scope = tuple[str, str]


CALENDAR = "closed"
HOSTS = {"r1": "one", "r2": "two"}
"""The hosts of the replicas. They are the scopes of some jobs."""
ABSENT_AFTER = timedelta(seconds=20) + timedelta(minutes=1)
"""How long after its last check-in a host counts as absent, and grace has passed."""


@dataclass(frozen=True)
class Policy:
    """The part of a job's definition that the model knows.

    `calendar`: the job uses the calendar of the example. `excluded`: which excludes all its days.
    `requires`: a job whose same scope has to succeed before, unless it is `ungated`. `after`: such
    a job whose schedule and calendar it has. `hosts`: its scopes are hosts.
    """

    handler: str = "python"
    schedule: str | None = None
    overlap: str = "skip"
    catch_up: str = "latest"
    reentrant: bool = False
    max_attempts: int = 1
    backoff: timedelta = timedelta(seconds=30)
    lease: timedelta = timedelta(seconds=60)
    max_running: int | None = None
    calendar: bool = False
    excluded: bool = False
    windows: bool = False
    requires: str | None = None
    ungated: bool = False
    after: str | None = None
    wait_at_most: timedelta | None = None
    hosts: bool = False

    @property
    def kind(self) -> str:
        return "host" if self.hosts else "shard"

    @property
    def gate(self) -> str | None:
        """The job that it requires."""
        return self.after or (None if self.ungated else self.requires)

    @property
    def wait(self) -> timedelta:
        """How long a gate waits: by default until the next plan_time."""
        return self.wait_at_most or PERIOD

    def columns(self) -> dict[str, Any]:
        return {
            "handler": self.handler, "schedule": self.schedule, "overlap": self.overlap,
            "catch_up": self.catch_up, "allow_stale_reentry": self.reentrant,
            "max_attempts": self.max_attempts, "retry_backoff": [self.backoff],
            "stale_timeout": self.lease, "max_running": self.max_running,
            "calendar": CALENDAR if self.calendar else None, "windows": self.windows,
            "requires": [{"job": self.gate}] if self.gate and not self.after else None,
            "after": [{"job": self.after}] if self.after else None,
            "wait_at_most": self.wait_at_most,
        }  # fmt: skip


@dataclass
class Pause:
    """A row of `pauses`. `job` None: it covers all jobs."""

    job: str | None
    begins: datetime
    until: datetime | None
    begun: bool = False
    ended: bool = False

    def is_over(self, now: datetime) -> bool:
        return self.ended or (self.until is not None and self.until <= now)

    def holds(self, job: str, now: datetime) -> bool:
        """It is in force for this job."""
        return self.begun and not self.is_over(now) and self.job in (None, job)


@dataclass
class Known:
    """A job: its policy now, its pause, and which revision began when.

    `skips`: the planned skips that were not withdrawn, with scope, first and last plan_time.
    """

    policy: Policy
    scopes: tuple[str, ...]
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    retired: bool = False
    history: list[tuple[int, datetime, Policy]] = field(default_factory=list)
    skips: dict[int, tuple[str | None, datetime, datetime]] = field(default_factory=dict)

    def at(self, plan_time: datetime) -> tuple[int, Policy]:
        """The revision that a plan_time belongs to."""
        number, _, policy = [x for x in self.history if x[1] < plan_time][-1]
        return number, policy

    def revision(self, number: int) -> Policy:
        (policy,) = (x[2] for x in self.history if x[0] == number)
        return policy

    def skips_of(self, scope: str, plan_time: datetime) -> list[int]:
        """The planned skips of a scope that contain a plan_time."""
        return [
            id for id, (of, first, last) in self.skips.items()
            if of in (None, scope) and first <= plan_time <= last
        ]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An execution."""

    id: int
    job: str
    scope: str
    plan_time: datetime
    status: str
    trigger: str
    revision: int
    due_at: datetime
    attempt: int
    max_attempts: int
    next_attempt_at: datetime | None
    runner: str | None
    token: UUID | None
    stale_after: datetime | None
    started_at: datetime | None
    error_code: str | None
    watermark: int | None
    key: str | None
    payload: int | None
    ends: bool  # its end was asked for
    attempts: str  # the entries of `attempts`: n is one that was not ready
    window_start: datetime | None
    gated_at: datetime | None
    waits_until: datetime | None

    @property
    def where(self) -> Scope:
        return self.job, self.scope

    @property
    def waits_for_gate(self) -> bool:
        return self.status == "PENDING" and self.next_attempt_at is None


COLUMNS = (
    "id, job_name, scope_id, plan_time, status, trigger, revision, due_at, attempt, max_attempts,"
    " next_attempt_at, runner_id, lease_token, stale_after, started_at, error_code, watermark,"
    " enqueue_key, payload::int, cancel_requested_at IS NOT NULL,"
    " array_to_string(ARRAY(SELECT CASE a ->> 'error_code' WHEN 'not_ready' THEN 'n' ELSE '-' END"
    " FROM jsonb_array_elements(attempts) a), ''), window_start, gated_at, waits_until"
)

Rows = dict[int, Row]


class Facts:
    """What there is, and what follows from it: who may write, what may start, what is lost."""

    def __init__(self) -> None:
        self.jobs: dict[str, Known] = {}
        self.rows: Rows = {}
        self.tokens: dict[int, list[UUID]] = {}
        self.inputs: dict[Scope, int] = {}
        self.workers: dict[str, tuple[datetime, datetime]] = {}  # trusted since, seen last
        self.started: dict[tuple[Scope, str], int] = {}  # newest payload of a key that was claimed
        self.pauses: dict[int, Pause] = {}
        self.checked_in: dict[str, datetime] = {}  # when each host did last
        # Retried by a person, who may put an old payload after a new one:
        self.by_hand: set[int] = set()
        self.now = EPOCH

    # -- pauses -----------------------------------------------------------------------------------

    def pauses_of(self, job: str) -> list[Pause]:
        return [p for p in self.pauses.values() if p.holds(job, self.now)]

    def paused(self, job: str) -> tuple[datetime, datetime | None] | None:
        """Since when without a gap, and until when, a job is paused; None: no pause is in force."""
        held = self.pauses_of(job)
        ends = [p.until for p in held if p.until is not None]
        if not held:
            return None
        known = self.jobs[job]
        joined = [
            (p.begins, p.until) for p in self.pauses.values()
            if p.begun and not p.ended and p.job in (None, job)
        ]  # fmt: skip
        if known.paused_at is not None:  # by one that was ended since
            joined.append((known.paused_at, known.paused_until))
        since = min(p.begins for p in held)
        for begins, until in sorted(joined, key=lambda x: x[0], reverse=True):
            if until is None or until > since:
                since = min(begins, since)
        return since, max(ends) if len(ends) == len(held) else None

    # -- what there is ----------------------------------------------------------------------------

    def policy(self, row: Row) -> Policy:
        return self.jobs[row.job].policy

    def running(self, job: str, scope: str | None = None) -> list[Row]:
        return [
            r
            for r in self.rows.values()
            if r.job == job and r.status == "RUNNING" and scope in (None, r.scope)
        ]

    def covered(self, where: Scope) -> int | None:
        """The greatest watermark that a success has covered."""
        marks = [
            r.watermark
            for r in self.rows.values()
            if r.where == where and r.status == "SUCCESS" and r.watermark is not None
        ]
        return max(marks, default=None)

    def dirty(self, where: Scope) -> bool:
        pushed, done = self.inputs.get(where), self.covered(where)
        return pushed is not None and (done is None or pushed > done)

    def holds(self, row: Row, token: UUID) -> bool:
        """Who may write."""
        return row.status == "RUNNING" and row.token == token

    def superseded(self, row: Row) -> bool:
        """A FAILED execution that awaits its retry, beside a newer PENDING one of its key."""
        return (
            row.status == "FAILED"
            and row.next_attempt_at is not None
            and row.key is not None
            and any(
                r.where == row.where
                and r.key == row.key
                and r.status == "PENDING"
                and r.plan_time > row.plan_time
                for r in self.rows.values()
            )
        )

    def processed(self, where: Scope) -> datetime:
        """Where the next window of the scope begins."""
        ran = [
            r for r in self.rows.values()
            if r.where == where and r.status == "SUCCESS" and r.trigger != "enqueue"
        ]  # fmt: skip
        windows = [r.plan_time for r in ran if r.window_start is not None]
        created = self.jobs[where[0]].history[0][1]
        return max(windows or [r.plan_time for r in ran], default=created)

    def window_start(self, row: Row) -> datetime | None:
        """The start of the window of an attempt that begins now; None: it has none."""
        if not self.policy(row).windows or row.trigger == "enqueue":
            return None
        start = self.processed(row.where)
        return start if start < row.plan_time else None

    def is_processed(self, row: Row) -> bool:
        """The window of a success contains its plan_time."""
        windows = self.policy(row).windows and row.trigger != "enqueue"
        return windows and self.window_start(row) is None

    # -- what may start ---------------------------------------------------------------------------

    def may_run(self, row: Row, kinds: Iterable[str], by: str) -> bool:
        """A runner with this name claims such rows."""
        known = self.jobs[row.job]
        here = not known.policy.hosts or row.scope == HOSTS.get(by)
        return here and known.policy.handler in kinds and not known.retired

    def is_free(self, row: Row, kinds: Iterable[str], by: str) -> bool:
        """It may start: it is waiting for nothing, and its window is not processed."""
        return self.is_due(row, kinds, by) and not self.is_processed(row)

    def is_due(self, row: Row, kinds: Iterable[str], by: str) -> bool:
        """PENDING or awaiting a retry, due, and nothing is in its way."""
        known = self.jobs[row.job]
        forced = row.trigger == "manual" and row.status == "PENDING"
        if row.next_attempt_at is None or row.next_attempt_at > self.now:
            return False
        if not self.may_run(row, kinds, by):
            return False
        if known.paused_at is not None and not (forced and row.next_attempt_at > known.paused_at):
            return False
        return self._has_room(row)

    def _has_room(self, row: Row) -> bool:
        policy = self.policy(row)
        if policy.overlap != "allow" and self.running(row.job, row.scope):
            return False
        return policy.max_running is None or len(self.running(row.job)) < policy.max_running

    def is_stale(self, row: Row) -> bool:
        return (
            row.status == "RUNNING" and row.stale_after is not None and row.stale_after < self.now
        )

    def may_be_stolen(self, row: Row, kinds: Iterable[str], by: str) -> bool:
        known = self.jobs[row.job]
        others = [r for r in self.running(row.job, row.scope) if r.id != row.id]
        return (
            self.is_stale(row)
            and known.policy.reentrant
            and self.may_run(row, kinds, by)
            and known.paused_at is None
            and not row.ends
            and row.attempt < max(row.max_attempts, MOST_STEALS)
            and (known.policy.overlap == "allow" or not others)
        )

    def is_swept(self, row: Row) -> bool:
        known = self.jobs[row.job]
        return self.is_stale(row) and (
            known.retired
            or not known.policy.reentrant
            or (known.policy.hosts and self.checked_in[row.scope] + ABSENT_AFTER < self.now)
            or row.ends
            or row.attempt >= max(row.max_attempts, MOST_STEALS)
        )

    def put(self, row: Row) -> None:
        self.rows[row.id] = row

    def _is_fresh(self, row: Row, payload: int | None) -> None:
        number = self.jobs[row.job].history[-1][0]
        assert row.id not in self.rows, row
        assert row.status == "PENDING", row
        # That of a message is its own fraction of the second before.
        assert self.now - timedelta(seconds=1) < row.plan_time < self.now + GRACE, row
        assert (row.plan_time - EPOCH) % timedelta(seconds=1), row
        assert row.due_at == row.next_attempt_at, row
        assert (row.gated_at, row.waits_until) == (None, None), row
        assert (row.attempt, row.max_attempts) == (0, self.policy(row).max_attempts), row
        assert (row.revision, row.payload, row.attempts) == (number, payload, ""), row
