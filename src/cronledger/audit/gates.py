"""Check that no gated execution started before its gate was open, and that waits ended rightly.

This module computes each gate again from the histories of both jobs, with code of this package. The
definition that the execution or the skip names decides what is required, and since when: each
included plan_time of a required scope in (previous included plan_time, plan_time] has to be a
SUCCESS that ended before the first start. A skip `upstream` lacked one of them when it was
recorded, and was recorded no earlier than the end of the wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cronledger.audit.compare import Violation
from cronledger.audit.dates import read_dates
from cronledger.audit.history import Edit, History, Window
from cronledger.audit.walk import Definition, due_at, excluded_day, walk
from cronledger.ledger.audits import Audits, GateEnd, Row, ScheduleState, UpstreamRun
from cronledger.rules.model import GLOBAL, ScopeKey

_SOME = 200
"""The number of gates whose required executions are read at once."""
_SCOPES = 1_000_000
_TICK = timedelta(microseconds=1)
_STEPS = tuple(timedelta(minutes=m) for m in (1, 60, 1440, 14_400, 532_800, 5_260_320))
_TEN_YEARS = timedelta(days=3653)
_SLOW_COMMIT = timedelta(minutes=1)
"""How long after finished_at the step may still see that an execution has not succeeded."""


class _Gate(NamedTuple):
    """A gate that has ended, its interval (after, through], and what it required."""

    end: GateEnd
    after: datetime
    through: datetime
    due: datetime
    length: timedelta | None
    required: Sequence[ScopeKey]


@dataclass(slots=True)
class _Required:
    """A required job: its history, and its scopes."""

    history: History
    scopes: Mapping[ScopeKey, ScheduleState]


@dataclass(slots=True)
class GateComparison:
    """The comparison of one job. `extent`: that of the audit."""

    audits: Audits
    job: str
    history: History
    extent: Row
    _required: dict[str, _Required | None] = field(default_factory=dict)

    def violations(self, windows: Sequence[tuple[ScheduleState, Window]]) -> Iterator[Violation]:
        """Yield the violations of all scopes of the job, within their windows."""
        for state, window in windows:
            ends = self.audits.gate_ends(state.key, window.after, window.end)
            for begin in range(0, len(ends), _SOME):
                yield from self._check([*map(self._gate, ends[begin : begin + _SOME])])

    def _gate(self, end: GateEnd) -> _Gate:
        edit = next((x for x in self.history.edits if x.number == end.revision), None)
        at = end.plan_time.replace(microsecond=0)
        if edit is None or edit.definition is None:
            return _Gate(end, at, at, at, None, ())
        definition, key = edit.definition, end.key
        length, due = edit.interval("wait_at_most"), due_at(definition, key, at)
        if length is None and (following := _following(definition, key, at)) is not None:
            length = due_at(definition, key, following) - due
        return _Gate(end, _previous(definition, key, at), at, due, length, _required(edit, key))

    def _check(self, gates: Sequence[_Gate]) -> Iterator[Violation]:
        asked: dict[ScopeKey, tuple[datetime, datetime]] = {}
        for gate in gates:
            for scope in gate.required:
                after, through = asked.get(scope, (gate.after, gate.through))
                asked[scope] = min(after, gate.after), max(through, gate.through)
        runs = {
            scope: {run.plan_time: run for run in self.audits.upstream_runs(scope, *bounds)}
            for scope, bounds in asked.items()
        }
        for gate in gates:
            if gate.after >= (self.extent["pruned_through"] or gate.after):
                yield from self._judge(gate, runs)

    def _judge(
        self, gate: _Gate, runs: Mapping[ScopeKey, Mapping[datetime, UpstreamRun]]
    ) -> Iterator[Violation]:
        end = gate.end
        if end.started_at is not None:
            for scope in gate.required:
                missing = next(self._missing(gate, scope, runs[scope], end.started_at), None)
                if missing is not None:
                    text = f"it started at {end.started_at}, before {missing} had succeeded"
                    yield self._violation("early", end, text)
                    return
            return
        assert end.skipped_at is not None, "the other ends are skips"
        if not gate.required:
            return  # SkipReasons reports it
        if gate.length is not None and end.skipped_at < gate.due + gate.length:
            text = f"it was skipped at {end.skipped_at}, before its wait of {gate.length} was over"
            yield self._violation("untrue_skip", end, text)
        elif not self._lacked(gate, runs, end.skipped_at - _SLOW_COMMIT):
            text = "the reason is upstream, but all that it required had succeeded"
            yield self._violation("untrue_skip", end, text)

    def _lacked(
        self, gate: _Gate, runs: Mapping[ScopeKey, Mapping[datetime, UpstreamRun]], at: datetime
    ) -> bool:
        """Return whether something was missing at this time, as far as the ledger shows."""
        counted = False
        for scope in gate.required:
            if self._upstream(scope) is None:
                return True
            of_scope = runs[scope]
            unfinished = (
                gate.after < plan_time <= gate.through and not _succeeded(run, at)
                for plan_time, run in of_scope.items()
            )
            if any(unfinished) or next(self._missing(gate, scope, of_scope, at), None) is not None:
                return True
            counted |= any(gate.after < plan_time <= gate.through for plan_time in of_scope)
        return not counted  # a required job that was not planned in time leaves no trace

    def _missing(
        self, gate: _Gate, scope: ScopeKey, runs: Mapping[datetime, UpstreamRun], at: datetime
    ) -> Iterator[str]:
        """Yield what had not succeeded by then, by plan_time."""
        found = self._upstream(scope)
        if found is None:
            return
        state = found.scopes[scope]
        for expected in found.history.expected(
            scope, max(gate.after, state.created_at), gate.through
        ):
            run = runs.get(expected.plan_time)
            if expected.excluded is None and (run is None or not _succeeded(run, at)):
                yield f"{scope.job_name} {expected.plan_time}"

    def _upstream(self, scope: ScopeKey) -> _Required | None:
        """Return the required job, or None if the ledger does not have its scope."""
        name = scope.job_name
        if name not in self._required:
            self._required[name] = self._read(name)
        found = self._required[name]
        return found if found is not None and scope in found.scopes else None

    def _read(self, name: str) -> _Required | None:
        revisions = self.audits.revisions([name])
        if name not in revisions:
            return None
        history = History(revisions[name], read_dates(self.audits.calendars(revisions)))
        states = self.audits.schedules(ScopeKey(name, "", ""), name, _SCOPES)
        return _Required(history, {state.key: state for state in states})

    def _violation(self, kind: str, end: GateEnd, text: str) -> Violation:
        return Violation(kind, *end.key, end.plan_time, end.id, text)


def _succeeded(run: UpstreamRun, at: datetime) -> bool:
    return run.status == "SUCCESS" and run.finished_at is not None and run.finished_at <= at


def _required(edit: Edit, key: ScopeKey) -> list[ScopeKey]:
    """Return the scopes that an execution of this scope requires, by the raw definition."""
    named: list[Any] = [*(edit.raw.get("after") or ()), *(edit.raw.get("requires") or ())]
    found: list[ScopeKey] = []
    for one in named:
        job, scope = (one, "same") if isinstance(one, str) else (one["job"], one.get("scope"))
        is_global = scope == GLOBAL
        found.append(ScopeKey(job, GLOBAL, GLOBAL) if is_global else key._replace(job_name=job))
    return found


def _previous(definition: Definition, key: ScopeKey, at: datetime) -> datetime:
    """Return the last included plan_time before `at`, or the start of the time that counts."""
    start = at - _TEN_YEARS
    if definition.starts_at is not None:
        start = max(start, definition.starts_at - _TICK)
    for step in _STEPS:
        found = [*_included(definition, key, max(start, at - step), at - _TICK)]
        if found:
            return found[-1]
    return start


def _following(definition: Definition, key: ScopeKey, at: datetime) -> datetime | None:
    return next(_included(definition, key, at, at + _TEN_YEARS), None)


def _included(
    definition: Definition, key: ScopeKey, after: datetime, through: datetime
) -> Iterator[datetime]:
    for plan_time in walk(definition, key, after, through):
        if definition.dates is None or excluded_day(definition, key, plan_time) is None:
            yield plan_time
