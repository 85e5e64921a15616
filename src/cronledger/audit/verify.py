"""Check that the ledger accounts for every plan_time that should exist.

    report = verify(url)
    for violation in report: ...
    report.violations, report.kinds, report.accepted, report.tally

The view `violations` and its function find what SQL alone can find, for all of history. For the
rest, every schedule is compared from its creation, or from the beginning of the kept history, to
its cursor. Each batch of schedules is read in one read-only REPEATABLE READ transaction. A cursor
and the rows that account for it commit together, so live replicas cause no false alarm.

History is kept after `pruned_through`, which maintain_partitions records. It does not follow from
the existing partitions, because the plan_times of a dropped partition must be reported as missing.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import psycopg

from cronledger.audit.accepted import Acceptances
from cronledger.audit.breaches import BreachComparison
from cronledger.audit.compare import ScheduleComparison, Tally, Violation, check_blocker
from cronledger.audit.dates import read_dates
from cronledger.audit.gates import GateComparison
from cronledger.audit.history import History, Window
from cronledger.audit.reports import ReportComparison
from cronledger.audit.stream import Stream
from cronledger.ledger.access import connect
from cronledger.ledger.audits import (
    FIRST,
    LAST,
    Audits,
    FiredExecution,
    Row,
    ScheduleState,
    SkippedRange,
    Span,
)
from cronledger.rules.model import Handler, ScopeKey

BATCH = 200
"""Schedules in one snapshot. Long transactions would delay VACUUM."""

LEAST_RETENTION = timedelta(days=1)
"""The shortest retention that set_retention accepts."""

_TICK = timedelta(microseconds=1)
_BEFORE = timedelta(days=7)  # an earlier execution may reach into the requested range
_BLOCKERS = 1000
_SCOPES = 1_000_000
_LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
_FAR_OFF = datetime(9999, 12, 30, tzinfo=UTC)

Progress = Callable[[int, int], object]


class Report:
    """The violations, found during a single iteration.

    `kinds` counts the violations that are not accepted, `accepted` counts the others, and `tally`
    describes the extent of the audit. They are complete after the iteration.
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

    def close(self) -> None:
        """End the iteration early, and with it the transaction of the audit."""
        if isinstance(self._found, Generator):
            self._found.close()

    @property
    def violations(self) -> int:
        """The number of violations found so far that are not accepted."""
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
    """Return a report on these jobs (None: all) with plan_times in [from_, to].

    `database`: a DSN, or an idle connection, which the caller closes. `progress` is called with the
    number of checked schedules and their total. The audit only reads, and needs the role
    cronledger_viewer. The iteration raises psycopg.Error.
    """

    def run(report: Report) -> Iterator[Violation]:
        with ExitStack() as stack:
            connection = database
            if isinstance(connection, str):
                connection = stack.enter_context(connect(connection, "cronledger verify"))
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
        yield from (Violation(**row) for row in present if self._is_requested(row))
        for violation in self._history():
            yield self._with_acceptance(violation)
        yield from self._unchecked()

    def _with_acceptance(self, violation: Violation) -> Violation:
        """Return the violation with its acceptance, if it has one."""
        job, kind, scope = violation.job_name, violation.scope_kind, violation.scope_id
        if job is None or kind is None or scope is None or violation.plan_time is None:
            return violation
        key = ScopeKey(job, kind, scope)
        accepted = self._accepted.find(
            violation.kind, key, violation.plan_time, violation.execution_id
        )
        return violation if accepted is None else replace(violation, accepted=accepted)

    def _history(self) -> Iterator[Violation]:
        # All jobs at once, because the rows of one job are spread over the pages of its partitions.
        since = None if self._start is None else self._start - _BEFORE
        with self._audits.snapshot():
            for row in self._audits.history_violations(self._jobs, since):
                if self._is_requested(row):
                    yield Violation(**row)
        with self._audits.snapshot():
            for row in self._audits.wrong_hours(self._jobs, self._start, self._end):
                yield Violation(**row)
        yield from self._deadlines()
        yield from self._gates()
        yield from self._reports()
        for only in self._jobs if self._jobs is not None else [None]:
            after, more = (FIRST if only is None else ScopeKey(only, "", "")), True
            while more:
                after, more = yield from self._batch(after, only)
                if self._progress is not None:
                    self._progress(self._tally.schedules, self._extent["schedules"])

    def _deadlines(self) -> Iterator[Violation]:
        """Compare the breaches of each job with the deadlines that it missed."""
        with self._audits.snapshot():
            jobs = self._audits.jobs_with_deadlines(self._jobs)
        for job in jobs:
            # The snapshot of the job, because the step may have gone on meanwhile.
            with self._audits.snapshot():
                name = job["job_name"]
                for row in self._audits.jobs_with_deadlines([name]):
                    extent = self._audits.extent([])
                    schedules = self._audits.schedules(ScopeKey(name, "", ""), name, _SCOPES)
                    windows = [
                        (state, self._window(state, extent)._replace(through=self._end))
                        for state in schedules
                    ]
                    revisions = self._audits.revisions([name])
                    dates = read_dates(self._audits.calendars(revisions))
                    history = History(
                        revisions[name], dates, self._audits.planned_skips([name]).get(name, ())
                    )
                    comparison = BreachComparison(self._audits, name, history, row["through"])
                    yield from comparison.violations(windows)

    def _gates(self) -> Iterator[Violation]:
        """Compare the starts of the executions of gated jobs with what these require."""
        with self._audits.snapshot():
            names = self._audits.gated_jobs(self._jobs)
        for name in names:
            with self._audits.snapshot():
                extent, windows, history = self._of_job(name)
                yield from GateComparison(self._audits, name, history, extent).violations(windows)

    def _reports(self) -> Iterator[Violation]:
        """Compare the plan_times that another scheduler runs with the reports of its runs."""
        with self._audits.snapshot():
            names = self._audits.observed_jobs(self._jobs)
        for name in names:
            with self._audits.snapshot():
                _, windows, history = self._of_job(name)
                comparison = ReportComparison(self._audits, history, self._tally)
                yield from comparison.violations(windows)

    def _of_job(self, name: str) -> tuple[Row, list[tuple[ScheduleState, Window]], History]:
        """Return the extent, the schedules with their windows, and the history, of one snapshot."""
        extent = self._audits.extent([])
        schedules = self._audits.schedules(ScopeKey(name, "", ""), name, _SCOPES)
        windows = [(state, self._window(state, extent)) for state in schedules]
        revisions = self._audits.revisions([name])
        history = History(revisions[name], read_dates(self._audits.calendars(revisions)))
        return extent, windows, history

    def _unchecked(self) -> Iterator[Violation]:
        """Yield a violation if the checked range may hide something."""
        pruned, now = self._extent["pruned_through"], self._extent["now"]
        if pruned is not None and pruned > now - LEAST_RETENTION:
            yield _general(
                f"executions and skips up to {pruned} were pruned, although every retention keeps "
                f"those of the last day; the database's clock was ahead then, and is at {now} now"
            )
        elif pruned is not None and self._end <= pruned:
            yield _general(
                "nothing of the requested range is kept, because executions and skips up to "
                f"{pruned} were pruned after their retention"
            )
        elif not self._tally.plan_times and self._tally.behind:
            yield _general(
                "no plan_time was checked, although some are due in this range, because planning "
                f"is behind on {self._tally.behind} schedules; `cronledger doctor` names the cause"
            )

    def _is_requested(self, row: Row) -> bool:
        if self._jobs is not None and row["job_name"] not in self._jobs:
            return False
        at = row["plan_time"]
        return at is None or ((self._start is None or self._start < at) and at <= self._end)

    def _batch(
        self, after: ScopeKey, only: str | None
    ) -> Generator[Violation, None, tuple[ScopeKey, bool]]:
        """Compare the schedules after `after`. Return the last one, and whether there are more."""
        with self._audits.snapshot():
            extent = self._audits.extent([])
            schedules = self._audits.schedules(after, only, BATCH)
            more = len(schedules) == BATCH
            span = Span(after, schedules[-1].key if more else ScopeKey(only or LAST, LAST, LAST))
            names = sorted({state.key.job_name for state in schedules})
            revisions = self._audits.revisions(names)
            dates = read_dates(self._audits.calendars(revisions))
            skips = self._audits.planned_skips(names)
            histories = {
                name: History(rows, dates, skips.get(name, ())) for name, rows in revisions.items()
            }
            yield from self._compare(span, schedules, histories, extent)
        return span.last, more

    def _compare(
        self,
        span: Span,
        schedules: Sequence[ScheduleState],
        histories: dict[str, History],
        extent: Row,
    ) -> Iterator[Violation]:
        windows = [self._window(state, extent) for state in schedules]
        lowest = min((window.after for window in windows), default=_FAR_OFF)
        executions = Stream(self._audits.executions(span, lowest, self._end), attrgetter("key"))
        skips = Stream(self._audits.skips(span, lowest, self._end), attrgetter("key"))
        blocked: list[SkippedRange] = []
        for state, window in zip(schedules, windows, strict=True):
            key = state.key
            yield from map(_orphan, executions.before(key))
            _drop(skips.before(key))
            self._tally.schedules += 1
            history = histories.get(key.job_name)
            if history is None:
                yield _unknown(state)
                _drop(executions.through(key))
                continue
            comparison = ScheduleComparison(
                state, history, window, self._tally, self._accepted, blocked
            )
            yield from comparison.violations(
                (x for x in executions.through(key) if x.plan_time > window.after),
                (x for x in skips.through(key) if x.last > window.after),
            )
            if len(blocked) >= _BLOCKERS:
                yield from self._blockers(blocked, histories)
        yield from map(_orphan, executions.rest())
        yield from self._blockers(blocked, histories)

    def _window(self, state: ScheduleState, extent: Row) -> Window:
        kept = extent["pruned_through"] or _LONG_AGO
        after = max(state.created_at, kept, self._start or _LONG_AGO)
        through = min(self._end, state.planned_through)
        return Window(after, through, extent["now"], self._end)

    def _blockers(
        self, blocked: list[SkippedRange], histories: dict[str, History]
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
            violation = check_blocker(skip, blocker, job["handler"] == Handler.EXTERNAL)
            if violation is not None:
                yield violation
        blocked.clear()


def _drop(rows: Iterator[object]) -> None:
    for _ in rows:
        pass


def _orphan(ran: FiredExecution) -> Violation:
    text = "the scope has no schedule"
    return Violation("extra", *ran.key, ran.plan_time, ran.id, text)


def _unknown(state: ScheduleState) -> Violation:
    text = "job_revisions has no row of this job, so its plan_times are unknown"
    return Violation("unchecked", *state.key, None, None, text)


def _lost(row: Row) -> Violation:
    text = "the job has this scope, but schedules has no row for it"
    return Violation("unchecked", **row, plan_time=None, execution_id=None, detail=text)


def _general(text: str) -> Violation:
    return Violation("unchecked", None, None, None, None, None, text)
