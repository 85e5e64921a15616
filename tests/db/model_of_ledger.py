"""What the ledger must hold after each call, in plain Python: no SQL, no clock of its own.

`Model` is told what was called and what came back, and predicts every execution to the column and
the microsecond. What a claim may choose from is not predicted but judged: what it took had to be
free to take (I1, I3 to I8, I11), and nothing that was free may be left when it rests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

PERIOD = timedelta(seconds=60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_STEALS = 3
GRACE = timedelta(milliseconds=1)
"""How far an instant may lie behind now because the next free one was taken."""

Scope = tuple[str, str]


@dataclass(frozen=True)
class Policy:
    """The part of a job's definition that the model knows."""

    handler: str = "python"
    schedule: str | None = None
    overlap: str = "skip"
    catch_up: str = "latest"
    reentrant: bool = False
    max_attempts: int = 1
    backoff: timedelta = timedelta(seconds=30)
    lease: timedelta = timedelta(seconds=60)
    max_running: int | None = None

    def columns(self) -> dict[str, Any]:
        return {
            "handler": self.handler, "schedule": self.schedule, "overlap": self.overlap,
            "catch_up": self.catch_up, "allow_stale_reentry": self.reentrant,
            "max_attempts": self.max_attempts, "retry_backoff": [self.backoff],
            "stale_timeout": self.lease, "max_running": self.max_running,
        }  # fmt: skip


@dataclass
class Known:
    """A job: its policy now, its pause, and which revision began when."""

    policy: Policy
    scopes: tuple[str, ...]
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    retired: bool = False
    history: list[tuple[int, datetime, Policy]] = field(default_factory=list)

    def at(self, plan_time: datetime) -> tuple[int, Policy]:
        """The revision that a plan_time belongs to."""
        number, _, policy = [x for x in self.history if x[1] < plan_time][-1]
        return number, policy


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
    attempts: int  # entries of `attempts`

    @property
    def where(self) -> Scope:
        return self.job, self.scope


COLUMNS = (
    "id, job_name, scope_id, plan_time, status, trigger, revision, due_at, attempt, max_attempts,"
    " next_attempt_at, runner_id, lease_token, stale_after, started_at, error_code, watermark,"
    " enqueue_key, payload::int, cancel_requested_at IS NOT NULL, jsonb_array_length(attempts)"
)

Rows = dict[int, Row]


class Model:
    """The ledger as it must be."""

    def __init__(self) -> None:
        self.jobs: dict[str, Known] = {}
        self.rows: Rows = {}
        self.tokens: dict[int, list[UUID]] = {}
        self.inputs: dict[Scope, int] = {}
        self.workers: dict[str, tuple[datetime, datetime]] = {}  # trusted since, seen last
        self.started: dict[tuple[Scope, str], int] = {}  # newest payload of a key that was claimed
        self.by_hand: set[int] = (
            set()
        )  # retried by a person, who may put an old payload after a new
        self.now = EPOCH

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

    # -- what may start ---------------------------------------------------------------------------

    def is_free(self, row: Row, kinds: Iterable[str]) -> bool:
        """PENDING or awaiting a retry, due, and nothing is in its way."""
        known = self.jobs[row.job]
        forced = row.trigger == "manual" and row.status == "PENDING"
        if row.next_attempt_at is None or row.next_attempt_at > self.now:
            return False
        if known.retired or known.policy.handler not in kinds:
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

    def may_be_stolen(self, row: Row, kinds: Iterable[str]) -> bool:
        known = self.jobs[row.job]
        others = [r for r in self.running(row.job, row.scope) if r.id != row.id]
        return (
            self.is_stale(row)
            and known.policy.reentrant
            and known.policy.handler in kinds
            and not known.retired
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
            or row.ends
            or row.attempt >= max(row.max_attempts, MOST_STEALS)
        )

    # -- what is called ---------------------------------------------------------------------------

    def put(self, row: Row) -> None:
        self.rows[row.id] = row

    def claimed(
        self, found: Rows, by: str, kinds: Sequence[str], *, steals: bool, most: int = 10_000
    ) -> list[Row]:
        """A claim by `by`, after which the ledger holds `found`: each row that it took was free.

        Answers what it took. What it planned is judged by `_planned`.
        """
        taken = [row for id, row in found.items() if self._is_new_claim(row)]
        assert len(taken) <= most
        # Steals first: they take no room, and free none.
        for row in sorted(taken, key=lambda r: not self._was_running(r)):
            before = self.rows.get(row.id)
            if before is None:
                self._planned(row)
                continue
            if before.status == "RUNNING":
                assert steals, (before, row)
                assert self.may_be_stolen(before, kinds), (before, row)
            else:
                assert self.is_free(before, kinds), (before, row)
            self._take(before, row, by)
        for id, row in found.items():
            before = self.rows.get(id)
            if before is None:
                assert self.jobs[row.job].policy.handler == "external", row
                self._planned(row)
            elif row.ends and not before.ends and before.status == "RUNNING":  # perhaps new
                assert self.policy(row).overlap == "replace", row
                self.put(replace(before, ends=True))
        return [self.rows[row.id] for row in taken]

    def _was_running(self, row: Row) -> bool:
        return row.id in self.rows and self.rows[row.id].status == "RUNNING"

    def _is_new_claim(self, row: Row) -> bool:
        before = self.rows.get(row.id)
        return row.status == "RUNNING" and (before is None or before.token != row.token)

    def _take(self, before: Row, row: Row, by: str) -> None:
        assert row.token is not None
        assert row.token not in self.tokens.get(row.id, []), "a token came back"  # I5
        pushed = self.inputs.get(row.where)
        self.put(
            replace(
                before,
                status="RUNNING",
                attempt=before.attempt + 1,
                max_attempts=max(before.max_attempts, before.attempt + 1),
                next_attempt_at=None,
                runner=by,
                token=row.token,
                stale_after=self.now + self.policy(row).lease,
                started_at=self.now,
                error_code=None,
                watermark=before.watermark if pushed is None else pushed,
                ends=False,
                attempts=before.attempts + (before.status != "PENDING"),
            )
        )
        self.tokens.setdefault(row.id, []).append(row.token)
        self._in_order(before)

    def _in_order(self, row: Row) -> None:
        """An old payload does not run after a new one of its key."""
        if row.key is None or row.payload is None or row.id in self.by_hand:
            return
        newest = self.started.get((row.where, row.key), 0)
        if all(x[2].overlap != "allow" for x in self.jobs[row.job].history):
            assert row.payload >= newest, f"{row} after payload {newest}"
        self.started[row.where, row.key] = max(newest, row.payload)

    def _planned(self, row: Row) -> None:
        """A firing of the schedule, RUNNING (or PENDING, for a worker) by this claim."""
        known = self.jobs[row.job]
        assert known.policy.schedule is not None, row
        assert row.trigger == "schedule", row
        assert not (row.plan_time - EPOCH) % PERIOD, row
        assert row.plan_time == row.due_at <= self.now, row  # I8
        until = known.paused_until  # a pause that is over needs no resume
        assert known.paused_at is None or (until is not None and until < row.due_at), row
        assert not known.retired, row
        number, policy = known.at(row.plan_time)
        assert (row.revision, row.max_attempts) == (number, policy.max_attempts), row
        if known.policy.handler == "external":
            assert (row.status, row.attempt, row.next_attempt_at) == ("PENDING", 0, row.due_at)
        else:
            assert row.status == "RUNNING", row
            assert self._has_room(row), row  # I7, I11
            assert (row.attempt, row.stale_after) == (1, self.now + known.policy.lease)
            assert row.token is not None
            self.tokens[row.id] = [row.token]
        pushed = None if row.status == "PENDING" else self.inputs.get(row.where)
        assert (row.watermark, row.key, row.attempts) == (pushed, None, 0), row
        self.put(replace(row, ends=False))

    def rested(self, kinds: Sequence[str], *, steals: bool) -> None:
        """Nothing is left that a claim of these kinds could have taken."""
        for row in self.rows.values():
            assert not self.is_free(row, kinds), f"left: {row}"
            assert not (steals and self.may_be_stolen(row, kinds)), f"not stolen: {row}"

    def ended(self, row: Row, status: str, wait: timedelta | None, error: str | None) -> None:
        """The holder wrote its end; `wait` before the next attempt, if there may be one."""
        again = status == "FAILED" and row.attempt < row.max_attempts and not row.ends
        due = self.now + wait if again and wait is not None else None
        self.put(replace(row, status=status, next_attempt_at=due, error_code=error))

    def given_back(self, row: Row) -> None:
        kept = {"status": "CANCELLED"} if row.ends else {
            "status": "PENDING", "next_attempt_at": row.due_at, "runner": None, "token": None,
            "stale_after": None,
        }  # fmt: skip
        more = {"max_attempts": row.max_attempts + 1, "attempts": row.attempts + 1}
        self.put(replace(row, **kept, **more))  # type: ignore[arg-type]

    def swept(self) -> int:
        """Every stale lease that nobody may steal is ended; answers how many."""
        over = [row for row in self.rows.values() if self.is_swept(row)]
        for row in over:
            status = "CANCELLED" if row.ends else "FAILED"
            self.put(replace(row, status=status, error_code="stale_timeout"))
        return len(over)

    def cancelled(self, row: Row) -> str:
        if row.next_attempt_at is None and row.status != "RUNNING":
            return "already_finished"
        if row.status == "RUNNING":
            self.put(replace(row, ends=True))
            return "requested"
        self.put(replace(row, status="CANCELLED", next_attempt_at=None, ends=True))
        return "cancelled"

    def retried(self, row: Row, force: bool) -> str | None:
        """None: refused."""
        known = self.jobs[row.job]
        unknown = row.error_code in ("stale_timeout", "shutdown") and not known.policy.reentrant
        if row.status not in ("FAILED", "CANCELLED") or known.retired or (unknown and not force):
            return None
        more = {"max_attempts": max(row.max_attempts, row.attempt + 1), "ends": False}
        if row.token is None:
            new = replace(row, status="PENDING", next_attempt_at=row.due_at, **more)  # type: ignore[arg-type]
        else:
            due = min(row.next_attempt_at or self.now, self.now)
            error = row.error_code or "cancelled"
            new = replace(
                row, status="FAILED", next_attempt_at=due, error_code=error, **more  # type: ignore[arg-type]
            )  # fmt: skip
        self.put(new)
        self.by_hand.add(row.id)
        return "retried" if row.next_attempt_at is None else "brought_forward"

    def may_trigger(self, job: str, scope: str, force: bool) -> bool:
        known = self.jobs[job]
        until = known.paused_until
        paused = known.paused_at is not None and (until is None or until > self.now)
        if known.retired or (paused and not force):
            return False
        return known.policy.overlap != "skip" or not self.running(job, scope)

    def triggered(self, row: Row, payload: int | None) -> None:
        """`row` is what trigger made."""
        self._is_fresh(row, payload)
        assert (row.trigger, row.key, row.watermark) == ("manual", None, None), row
        if self.policy(row).overlap == "replace":
            for other in self.running(*row.where):
                self.put(replace(other, ends=True))
        self.put(row)

    def _is_fresh(self, row: Row, payload: int | None) -> None:
        number = self.jobs[row.job].history[-1][0]
        assert row.id not in self.rows, row
        assert row.status == "PENDING", row
        assert self.now <= row.plan_time < self.now + GRACE, row
        assert (row.plan_time - EPOCH) % timedelta(seconds=1), row
        assert row.due_at == row.next_attempt_at, row
        assert (row.attempt, row.max_attempts) == (0, self.policy(row).max_attempts), row
        assert (row.revision, row.payload, row.attempts) == (number, payload, 0), row

    def enqueued(  # noqa: PLR0917
        self, where: Scope, key: str | None, watermark: int | None, payload: int | None,
        answer: int | None, found: Rows,
    ) -> None:  # fmt: skip
        """What enqueue did and answered."""
        before = self.inputs.get(where)
        is_new = watermark is not None and (before is None or watermark > before)
        if is_new:
            assert watermark is not None
            self.inputs[where] = watermark
        slot = (
            key if key is not None else ("" if payload is None and watermark is not None else None)
        )
        if slot == "":
            self.given_up(where)
            done = self.covered(where)
            assert watermark is not None
            if done is not None and watermark <= done:
                assert answer is None, answer
                return
            if not is_new and (already := self._answers_for(where)):
                assert answer in already, (answer, already)
                return
        assert answer is not None
        waiting = self._waiting(where, slot) if slot is not None else []
        if waiting:
            row = max(waiting, key=lambda r: r.plan_time)  # the newest payload is to run last
            assert answer == row.id, (answer, waiting)
            due = min(row.due_at, self.now)
            marks = [m for m in (row.watermark, watermark) if m is not None]
            self.put(
                replace(
                    row,
                    watermark=max(marks, default=None),
                    payload=row.payload if payload is None else payload,
                    due_at=due,
                    next_attempt_at=due,
                    max_attempts=max(row.max_attempts, row.attempt + self.policy(row).max_attempts),
                )
            )
        else:
            row = found[answer]
            self._is_fresh(row, payload)
            assert (row.trigger, row.key, row.watermark) == ("enqueue", slot, watermark), row
            assert row.due_at == row.plan_time, row
            self.put(row)
        if slot is not None:
            self.given_up(where)

    def _waiting(self, where: Scope, slot: str) -> list[Row]:
        return [
            r
            for r in self.rows.values()
            if r.where == where and r.key == slot and r.status == "PENDING"
        ]

    def _answers_for(self, where: Scope) -> set[int]:
        """What covers all input once it succeeds."""
        pushed = self.inputs[where]
        ours = [r for r in self.rows.values() if r.where == where]
        runs = {
            r.id
            for r in ours
            if r.status == "RUNNING" and not r.ends and r.watermark is not None
            and r.watermark >= pushed
        }  # fmt: skip
        waits = {r.id for r in ours if r.next_attempt_at is not None and r.key == ""}
        return runs or waits

    def given_up(self, where: Scope) -> None:
        for row in list(self.rows.values()):
            if row.where == where and self.superseded(row):
                self.put(replace(row, next_attempt_at=None))

    def settled(self, where: Scope, found: Rows) -> None:
        """After an end in this scope: retries that are superseded are given up, and what a success
        left dirty waits for another run."""
        self.given_up(where)
        ours = [r for r in self.rows.values() if r.where == where]
        newest = max(ours, key=lambda r: r.plan_time, default=None)
        busy = any(
            r.status == "RUNNING" or (r.next_attempt_at is not None and r.key is not None)
            for r in ours
        )
        wanted = (
            self.dirty(where)
            and newest is not None
            and newest.status == "SUCCESS"
            and not busy
            and not self.jobs[where[0]].retired
        )
        fresh = [r for r in found.values() if r.where == where and r.id not in self.rows]
        assert len(fresh) == wanted, (where, fresh, ours)
        for row in fresh:
            assert newest is not None
            of_key = newest.key or "" if newest.trigger == "enqueue" else ""
            payload = newest.payload if newest.trigger == "enqueue" else None
            self._is_fresh(row, payload)
            assert (row.trigger, row.key, row.watermark) == (
                "enqueue", of_key, self.inputs[where],
            ), row  # fmt: skip
            assert row.due_at >= self.now, row
            self.put(row)

    def seen(self, worker: str) -> datetime:
        """A worker in another language asks; answers since when its view is unbroken."""
        since, until = self.workers.get(worker, (self.now, self.now - GRACE))
        since = since if until >= self.now else self.now
        self.workers[worker] = since, self.now + timedelta(seconds=60)
        return since
