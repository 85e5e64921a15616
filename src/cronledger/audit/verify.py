"""Whether the ledger is whole: every plan_time that should exist against what is written of it.

    report = verify(url)
    for violation in report: ...
    report.violations, report.kinds, report.accepted, report.tally

What SQL alone can tell comes from the view `violations` and its function, for all of history; the
rest from a walk of every schedule from its creation, or the beginning of the kept history, to its
cursor. Each batch of schedules is read in one REPEATABLE READ, read-only transaction: a cursor and
the rows that account for its way commit together, so live replicas cause no false alarm.

History is kept from `pruned_through` on, which maintain_partitions records. The partitions that are
left do not say it: a partition that somebody dropped must show as plan_times that are missing.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import psycopg

from cronledger.audit.accepted import Acceptances
from cronledger.audit.compare import Judge, Tally, Violation, judge_blocker
from cronledger.audit.history import History, Window
from cronledger.ledger.audits import FIRST, LAST, Audits, Ran, Row, Skipped, Span, Stand
from cronledger.ledger.database import connect
from cronledger.rules.model import Handler, ScopeKey

BATCH = 200
"""Schedules that are read as one snapshot: short transactions, for the sake of VACUUM."""

LEAST_RETENTION = timedelta(days=1)
"""maintain_partitions refuses to keep history for a shorter time."""

_TICK = timedelta(microseconds=1)
_BEFORE = timedelta(days=7)  # what began earlier may run into the time that is asked for
_BLOCKERS = 1000
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
_FAR_OFF = datetime(9999, 12, 30, tzinfo=UTC)

T = TypeVar("T", Ran, Skipped)

Progress = Callable[[int, int], object]


class Report:
    """What an audit finds, as it goes: iterate over it once.

    `kinds` counts the violations that nobody has accepted, `accepted` the others, `tally` what was
    looked at; they are whole at the end.
    """

    def __init__(self, run: Callable[["Report"], Iterator[Violation]]) -> None:
        self.kinds: Counter[str] = Counter()
        self.accepted = 0
        self.tally = Tally()
        self._found = run(self)

    def __iter__(self) -> Iterator[Violation]:
        for violation in self._found:
            if violation.accepted is None:
                self.kinds[violation.kind] += 1
            else:
                self.accepted += 1
            yield violation

    @property
    def violations(self) -> int:
        """How many were found so far that nobody has accepted."""
        return sum(self.kinds.values())


def verify(
    database: str | psycopg.Connection[Any],
    *,
    schema: str = "cronledger",
    jobs: Sequence[str] | None = None,
    from_: datetime | None = None,
    to: datetime | None = None,
    progress: Progress | None = None,
) -> Report:
    """Return a report on these jobs (None: all), with plan_times in [from_, to]; see `Report`.

    `database`: a DSN, or an idle connection that is the caller's to close. `progress` is called
    with how many schedules are done, and of how many. Nothing is written; the role
    cronledger_viewer may do it. Iterating raises psycopg.Error.
    """

    def run(report: Report) -> Iterator[Violation]:
        if isinstance(database, str):
            with connect(database, "cronledger verify") as connection:
                yield from audit(connection, report)
        else:
            yield from audit(database, report)

    def audit(connection: psycopg.Connection[Any], report: Report) -> Iterator[Violation]:
        audits = Audits(connection, schema)
        yield from _Audit(audits, report.tally, jobs, from_, to, progress).run()

    return Report(run)


class _Audit:
    def __init__(  # noqa: PLR0917
        self,
        audits: Audits,
        tally: Tally,
        jobs: Sequence[str] | None,
        start: datetime | None,
        end: datetime | None,
        progress: Progress | None,
    ) -> None:
        self._audits = audits
        self._tally = tally
        self._jobs = None if jobs is None else sorted(set(jobs))
        self._start = None if start is None else start - _TICK
        self._end = end or _FAR_OFF
        self._progress = progress

    def run(self) -> Iterator[Violation]:
        with self._audits.snapshot():
            self._extent = self._audits.extent(self._jobs)
            self._accepted = Acceptances(self._audits.accepted_violations(self._jobs))
            lost = [_lost(row) for row in self._audits.lost_schedules(self._jobs)]
            present = self._audits.present_violations()
        yield from lost
        yield from (_plain(row) for row in present if self._is_asked(row))
        for violation in self._history():
            yield self._marked(violation)
        yield from self._unchecked()

    def _marked(self, violation: Violation) -> Violation:
        """Return the violation with the acceptance that it has."""
        job, kind, scope = violation.job_name, violation.scope_kind, violation.scope_id
        if job is None or kind is None or scope is None or violation.plan_time is None:
            return violation
        key = ScopeKey(job, kind, scope)
        accepted = self._accepted.find(
            violation.kind, key, violation.plan_time, violation.execution_id
        )
        return violation if accepted is None else replace(violation, accepted=accepted)

    def _history(self) -> Iterator[Violation]:
        # All jobs at once: rows of one job are strewn over the pages of its partitions.
        since = None if self._start is None else self._start - _BEFORE
        with self._audits.snapshot():
            for row in self._audits.history_violations(self._jobs, since):
                if self._is_asked(row):
                    yield _plain(row)
        for only in self._jobs if self._jobs is not None else [None]:
            after, more = (FIRST if only is None else ScopeKey(only, "", "")), True
            while more:
                after, more = yield from self._batch(after, only)
                if self._progress is not None:
                    self._progress(self._tally.schedules, self._extent["schedules"])

    def _unchecked(self) -> Iterator[Violation]:
        """Yield why the range that was checked may hide something."""
        pruned, now = self._extent["pruned_through"], self._extent["now"]
        if pruned is not None and pruned > now - LEAST_RETENTION:
            yield _nowhere(
                f"executions and skips up to {pruned} were pruned, and every retention keeps those "
                f"of the last day: the database's clock was ahead at that time; it is at {now} now"
            )
        elif pruned is not None and self._end <= pruned:
            yield _nowhere(
                f"nothing of the requested range is kept: executions and skips up to {pruned} were "
                "pruned behind retention"
            )
        elif not self._tally.plan_times and self._tally.behind:
            yield _nowhere(
                "no plan_time was checked, although some are due in this range: planning is behind "
                f"on {self._tally.behind} schedules; `cronledger doctor` names the cause"
            )

    def _is_asked(self, row: Row) -> bool:
        if self._jobs is not None and row["job_name"] not in self._jobs:
            return False
        at = row["plan_time"]
        return at is None or ((self._start is None or self._start < at) and at <= self._end)

    def _batch(
        self, after: ScopeKey, only: str | None
    ) -> Generator[Violation, None, tuple[ScopeKey, bool]]:
        """Judge the schedules behind `after`; answer the last one, and whether there are more."""
        with self._audits.snapshot():
            extent = self._audits.extent([])
            stands = self._audits.stands(after, only, BATCH)
            more = len(stands) == BATCH
            span = Span(after, stands[-1].key if more else ScopeKey(only or LAST, LAST, LAST))
            names = sorted({stand.key.job_name for stand in stands})
            revisions = self._audits.revisions(names)
            histories = {name: History(rows) for name, rows in revisions.items()}
            yield from self._judge(span, stands, histories, extent)
        return span.last, more

    def _judge(
        self, span: Span, stands: Sequence[Stand], histories: dict[str, History], extent: Row
    ) -> Iterator[Violation]:
        windows = [self._window(stand, extent) for stand in stands]
        lowest = min((window.after for window in windows), default=_FAR_OFF)
        executions = _Scopes(self._audits.executions(span, lowest, self._end))
        skips = _Scopes(self._audits.skips(span, lowest, self._end))
        blocked: list[Skipped] = []
        for stand, window in zip(stands, windows, strict=True):
            for orphan in executions.before(stand.key):
                yield _orphan(orphan)
            for _ in skips.before(stand.key):
                pass
            self._tally.schedules += 1
            history = histories.get(stand.key.job_name)
            if history is None:
                yield _unknown(stand)
                for _ in executions.of(stand.key):
                    pass
                continue
            judge = Judge(stand, history, window, self._tally, self._accepted, blocked)
            yield from judge.judge(
                (ran for ran in executions.of(stand.key) if ran.plan_time > window.after),
                (skip for skip in skips.of(stand.key) if skip.last > window.after),
            )
            if len(blocked) >= _BLOCKERS:
                yield from self._blockers(blocked, histories)
        for orphan in executions.before(None):
            yield _orphan(orphan)
        yield from self._blockers(blocked, histories)

    def _window(self, stand: Stand, extent: Row) -> Window:
        kept = extent["pruned_through"] or _LONG_AGO
        after = max(stand.created_at, kept, self._start or _LONG_AGO)
        through = min(self._end, stand.planned_through)
        return Window(after, through, extent["now"], self._end)

    def _blockers(
        self, blocked: list[Skipped], histories: dict[str, History]
    ) -> Iterator[Violation]:
        if not blocked:
            return
        found = self._audits.blockers([x.blocked_by for x in blocked if x.blocked_by is not None])
        first = self._audits.first_execution()
        for skip in blocked:
            blocker = found.get(skip.blocked_by) if skip.blocked_by is not None else None
            if blocker is None and skip.blocked_by is not None and skip.blocked_by < (first or 0):
                continue  # dropped with its partition
            job = histories[skip.key.job_name].at(skip.created_at).raw
            violation = judge_blocker(skip, blocker, job["handler"] == Handler.EXTERNAL)
            if violation is not None:
                yield violation
        blocked.clear()


class _Scopes(Generic[T]):
    """A stream by key, handed out scope by scope."""

    def __init__(self, rows: Iterator[T]) -> None:
        self._rows: Iterator[T] = rows
        self._next: T | None = next(rows, None)

    def before(self, key: ScopeKey | None) -> Iterator[T]:
        """What comes before this scope; None: all that is left."""
        while self._next is not None and (key is None or self._next.key < key):
            yield self._take(self._next)

    def of(self, key: ScopeKey) -> Iterator[T]:
        while self._next is not None and self._next.key == key:
            yield self._take(self._next)

    def _take(self, taken: T) -> T:
        self._next = next(self._rows, None)
        return taken


def _plain(row: Row) -> Violation:
    return Violation(**row)


def _orphan(ran: Ran) -> Violation:
    text = "there is no schedule of this scope"
    return Violation("extra", *ran.key, ran.plan_time, ran.id, text)


def _unknown(stand: Stand) -> Violation:
    text = "job_revisions has no row of this job, so it is unknown what should have run"
    return Violation("unchecked", *stand.key, None, None, text)


def _lost(row: Row) -> Violation:
    text = "its job plans this scope, but schedules has no row for it"
    return Violation("unchecked", **row, plan_time=None, execution_id=None, detail=text)


def _nowhere(text: str) -> Violation:
    return Violation("unchecked", None, None, None, None, None, text)
