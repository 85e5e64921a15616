"""Check the plan_times that another scheduler runs against the reports of its runs.

The ledger did not start these runs, so there is no lease that proves them: the proof rests on the
reports. Each execution at a plan_time has a report that states its start, from five seconds before
the plan_time to the end of its grace. And no skip `not_reported` is contradicted by a report that
the ledger had by the end of the grace, that started within it, and that belongs to no other
plan_time. A report that came later does not contradict the skip, and neither does one that started
earlier and at least as near to the plan_time before it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter

from cronledger.audit.compare import Tally, Violation
from cronledger.audit.history import Expected, History, Window
from cronledger.audit.stream import Stream
from cronledger.ledger.audits import Audits, Beside, ReportedRun, ScheduleState

_EARLY = timedelta(seconds=5)
_MOMENT = timedelta(microseconds=1)


@dataclass(slots=True)
class ReportComparison:
    """The comparison of the schedules of one job. It counts its plan_times in `tally`."""

    audits: Audits
    history: History
    tally: Tally

    def violations(self, windows: Sequence[tuple[ScheduleState, Window]]) -> Iterator[Violation]:
        """Yield the violations of these schedules, within their windows."""
        for state, window in windows:
            yield from self._of_schedule(state, window)

    def _of_schedule(self, state: ScheduleState, window: Window) -> Iterator[Violation]:
        key, through = state.key, min(window.through, self.history.planned(state))
        runs = {run.plan_time: run for run in self.audits.reported_runs(key, window.after, through)}
        skips = Stream(self.audits.unreported(key, window.after, through), itemgetter(0))
        beside: list[Beside] | None = None
        last = window.after
        before: datetime | None = None
        for expected in self.history.expected(key, window.after, through):
            at = expected.plan_time
            previous, before = before, at
            last = max([last, *(end for _, end in skips.through(at))])
            if not expected.is_observed:
                continue
            self.tally.observed += 1
            if (run := runs.get(at)) is not None:
                yield from self._unproven(state, expected, run)
            elif at <= last:
                if beside is None:  # all of them, because they are few
                    beside = self.audits.reports_beside(key, window.after - _EARLY, window.now)
                yield from self._contradicted(state, expected, previous, beside)

    @staticmethod
    def _unproven(
        state: ScheduleState, expected: Expected, run: ReportedRun
    ) -> Iterator[Violation]:
        at, grace = expected.plan_time, expected.edit.grace or timedelta(0)
        if run.reported_at is None:
            text = "no report shows that another scheduler ran it"
        elif run.reported_at != run.started_at:
            text = f"it started at {run.started_at}, but its report states {run.reported_at}"
        elif not at - _EARLY <= run.reported_at <= at + grace:
            text = f"its report states a start at {run.reported_at}, which is not within grace"
        else:
            return
        yield Violation("unreported", *state.key, at, run.id, text)

    @staticmethod
    def _contradicted(
        state: ScheduleState,
        expected: Expected,
        previous: datetime | None,
        beside: Sequence[Beside],
    ) -> Iterator[Violation]:
        at = expected.plan_time
        middle = at if previous is None else previous + (at - previous) / 2
        end = at + (expected.edit.grace or timedelta(0))
        low = bisect_left(beside, at - _EARLY, key=lambda one: one.started_at)
        high = bisect_left(beside, end + _MOMENT, key=lambda one: one.started_at)
        for one in beside[low:high]:
            if one.received_at <= end and one.started_at > min(at - _MOMENT, middle):
                text = (
                    f"the reason is not_reported, but report {one.id} states a start at "
                    f"{one.started_at}, and came at {one.received_at}"
                )
                yield Violation("untrue_skip", *state.key, at, None, text)
                return
