"""What happened outside of the database: every handler's start and end, and what must never be.

Kept by the handlers themselves and by who kills their processes. Nothing here is read from the
ledger, except to hold the two against each other.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cronledger.declaring.app import Context
from cronledger.rules.model import ExecutionKey, ScopeKey
from tests.simulation.support.loop import Process

JUST_RESUMED = 0.05
"""Virtual seconds that a process which was stopped past its lease needs to notice it."""


@dataclass(eq=False)
class Span:
    """One handler's run. `end`: None while it goes on; `killed` with its process, else how it
    ended; `returned`: whether it succeeded its transaction says. `ended` (virtual)."""

    key: ExecutionKey
    attempt: int
    token: UUID
    process: Process
    context: Context
    began: float
    began_db: datetime
    end: str | None = None
    ended: float | None = None

    @property
    def told(self) -> bool:
        """Its handler was asked to stop."""
        return self.context.cancelled

    def __str__(self) -> str:
        return (
            f"{self.key.job_name}/{self.key.scope_id} {self.key.plan_time:%H:%M:%S.%f}"
            f" attempt {self.attempt} on {self.process.name}"
        )


@dataclass
class Rules:
    """What the record knows of a job, told by who makes and edits jobs."""

    reentrant: bool
    exclusive: bool  # overlap was never allow
    limit: int | None


@dataclass
class Record:
    """All spans of one simulation, and what was found wrong."""

    rules: dict[str, Rules] = field(default_factory=dict)
    queue_limits: dict[str, int] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    alive: list[Span] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    backwards: timedelta = timedelta(0)
    robbed: set[UUID] = field(default_factory=set)  # tokens; see Workers.excuse_theft
    _by_key: dict[ExecutionKey, list[Span]] = field(default_factory=dict)
    _tokens: set[UUID] = field(default_factory=set)

    def wrong(self, text: str, now: float) -> None:
        self.violations.append(f"[{now:.3f}] {text}")

    def begin(self, context: Context, process: Process, now: float, db: datetime) -> Span:
        """A handler starts, now. What forbids it is noted."""
        key = ExecutionKey(*context.scope, context.plan_time)
        span = Span(key, context.attempt, context.lease_token, process, context, now, db)
        earlier = self._by_key.setdefault(key, [])
        self._judge(span, earlier, now)
        earlier.append(span)
        self._tokens.add(span.token)
        self.spans.append(span)
        self.alive.append(span)
        return span

    def end(self, span: Span, how: str, now: float) -> None:
        if span.end is None:
            span.end, span.ended = how, now
            self.alive.remove(span)

    def killed(self, process: Process, now: float) -> None:
        """Every handler of the process is gone, in the middle of what it did."""
        for span in [x for x in self.alive if x.process is process]:
            self.end(span, "killed", now)

    def _judge(self, span: Span, earlier: list[Span], now: float) -> None:
        rules = self.rules[span.key.job_name]
        if span.token in self._tokens:
            self.wrong(f"I5: the token of {span} was used before", now)
        for before in earlier:
            if before.attempt == span.attempt:
                self.wrong(f"I5: {span} started twice, first on {before.process.name}", now)
        if not rules.reentrant and earlier and earlier[-1].end in (None, "killed", "success"):
            self.wrong(
                f"I6: {span} started, not reentrant, and the end of {earlier[-1]} is "
                f"{earlier[-1].end or 'to come'}", now,
            )  # fmt: skip
        for other in self.alive:
            same = other.key.scope == span.key.scope
            beside = rules.exclusive or other.key == span.key
            excused = self._excused(other, now) or span.token in self.robbed
            if same and beside and not excused:
                self.wrong(f"I7: {span} started beside {other}, which was not told to stop", now)

    def _excused(self, other: Span, now: float) -> bool:
        """A zombie: it was asked to stop, or its whole process is stopped and could not be."""
        process = other.process
        just_resumed = now - process.resumed_at < JUST_RESUMED
        return other.told or process.frozen or just_resumed or other.token in self.robbed

    def judge_running(self, rows: Iterable[tuple[str, str, str, str, int]], now: float) -> None:
        """`rows`: RUNNING ones as the ledger has them: job, kind, scope, queue, how many."""
        jobs: Counter[str] = Counter()
        scopes: Counter[ScopeKey] = Counter()
        queues: Counter[str] = Counter()
        for job, kind, scope, queue, count in rows:
            jobs[job] += count
            scopes[ScopeKey(job, kind, scope)] += count
            queues[queue] += count
        for key, count in scopes.items():
            if count > 1 and self.rules[key.job_name].exclusive:
                self.wrong(f"I7: {count} RUNNING of {key.job_name}/{key.scope_id}", now)
        for job, count in jobs.items():
            limit = self.rules[job].limit
            if limit is not None and count > limit:
                self.wrong(f"I11: {count} RUNNING of {job}, max_running {limit}", now)
        for queue, count in queues.items():
            if count > self.queue_limits.get(queue, count):
                limit = self.queue_limits[queue]
                self.wrong(f"I11: {count} RUNNING in queue {queue}, max_running {limit}", now)

    def hold_against(self, rows: Iterable[dict[str, Any]], now: float) -> None:
        """`rows`: the executions in the end."""
        ledger = {
            ExecutionKey(r["job_name"], r["scope_kind"], r["scope_id"], r["plan_time"]): r
            for r in rows
        }
        for key, spans in self._by_key.items():
            row = ledger.get(key)
            if row is None:
                self.wrong(f"{spans[0]} ran, and the ledger has no such row", now)
                continue
            for span in spans:
                if span.attempt > row["attempt"]:
                    self.wrong(f"I5: {span} ran, the ledger knows {row['attempt']} attempts", now)
                if span.began_db + self.backwards < row["due_at"]:
                    self.wrong(f"I8: {span} started at {span.began_db}, due {row['due_at']}", now)
        for key, row in ledger.items():
            if row["attempt"] > row["max_attempts"]:
                self.wrong(f"I5: {key} has attempt {row['attempt']} of {row['max_attempts']}", now)
            if row["status"] == "SUCCESS":
                self._judge_success(key, row["lease_token"], now)
        self._judge_windows(ledger, now)

    def _judge_windows(self, ledger: dict[ExecutionKey, dict[str, Any]], now: float) -> None:
        """What successful handlers were given to process has no gap, and nothing was given twice.

        `ledger`: in the order of plan_time.
        """
        processed: dict[ScopeKey, datetime] = {}
        for key, row in ledger.items():
            spans = [x for x in self._by_key.get(key, ()) if x.token == row["lease_token"]]
            window = spans[0].context.window if spans else None
            if row["status"] != "SUCCESS" or window is None:
                continue
            if (window.start, window.end) != (row["window_start"], key.plan_time):
                self.wrong(f"{spans[0]} had {window}, the ledger has {row['window_start']}", now)
            before = processed.get(key.scope, window.start)
            if before != window.start:
                self.wrong(f"the window of {spans[0]} begins at {window.start}, not {before}", now)
            processed[key.scope] = window.end

    def _judge_success(self, key: ExecutionKey, token: UUID, now: float) -> None:
        holder = [x for x in self._by_key.get(key, ()) if x.token == token]
        if not holder or holder[0].end not in ("success", "returned", "stubborn"):
            ended = holder[0].end if holder else "never begun"
            self.wrong(f"SUCCESS of {key.job_name} {key.plan_time}, whose handler was {ended}", now)
