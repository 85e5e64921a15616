"""Compare the breaches of a job with the deadlines that it missed.

The deadlines are computed anew from the history of the job, by code of this package alone. Each
missed deadline has exactly one breach, and there are no other breaches. Deadlines that are not
judged yet are left out, and so are attempts before the last one, whose durations are not kept.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import NamedTuple

from cronledger.audit.compare import Violation
from cronledger.audit.history import Edit, History, Window
from cronledger.audit.stream import Stream
from cronledger.audit.walk import is_zone, shown_next
from cronledger.ledger.audits import LAST, Audits, Row, ScheduleState, Span, TimedExecution
from cronledger.rules.model import ScopeKey

_KINDS = ("start_by", "finish_by", "expect_duration")
_WALL = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_QUANTILE = re.compile(r"([1-9][0-9]?(\.[0-9]{1,3})?\s*\*\s*)?p[1-9][0-9]")
_LENGTH = re.compile(
    r"(Nw)?(Nd)?(Nh)?(Nm)?(Ns)?(Nms)?(Nus)?"
    r"|P(NW)?(ND)?(T(?=[0-9])(NH)?(NM)?(N([.,][0-9]{1,6})?S)?)?".replace("N", "[0-9]{1,20}")
)
_PART = re.compile(r"([0-9]+(?:[.,][0-9]+)?)(ms|us|[wdhms])")
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6}
_LONGEST = 36_525 * 86_400 * 1e6
_FAR_OFF = datetime.fromisoformat("9999-12-30T00:00:00+00:00")

Found = tuple[ScopeKey, datetime, str]


class _Anchored(NamedTuple):
    """A plan_time of a scope, from when its deadlines count, and what ran."""

    key: ScopeKey
    plan_time: datetime
    anchor: datetime
    edit: Edit
    ran: TimedExecution | None


@dataclass(slots=True)
class BreachComparison:
    """The comparison of one job. `through`: how far its deadlines are computed; None: all are."""

    audits: Audits
    job: str
    history: History
    through: datetime | None
    _breaches: dict[Found, Row] = field(default_factory=dict)
    _unjudged: set[Found] = field(default_factory=set)

    def violations(self, windows: Sequence[tuple[ScheduleState, Window]]) -> Iterator[Violation]:
        """Yield the violations of all scopes of the job, within their windows."""
        if not windows:
            return
        lowest = min(window.after for _, window in windows)
        highest = max(window.through for _, window in windows)
        for row in self.audits.breaches(self.job, lowest, highest):
            found = (ScopeKey(self.job, row["scope_kind"], row["scope_id"]), row["plan_time"],
                     row["kind"])  # fmt: skip
            if row["judged"]:
                self._breaches[found] = row
            else:
                self._unjudged.add(found)
        span = Span(ScopeKey(self.job, "", ""), ScopeKey(self.job, LAST, LAST))
        rows = self.audits.timed_executions(span, lowest, highest)
        running = Stream(rows, lambda x: (x.key, x.plan_time))
        for state, window in windows:
            for _ in running.before((state.key, window.after)):
                pass
            for one in self._anchored(state, window, running):
                yield from self._check(one)
            yield from self._left(state, window)

    def _anchored(
        self, state: ScheduleState, window: Window, running: Stream[TimedExecution]
    ) -> Iterator[_Anchored]:
        """Yield what has deadlines, by plan_time."""
        key, now = state.key, window.now
        through = min(window.through, now, self.through or now)
        for expected in self.history.expected(key, window.after, through):
            at, edit = expected.plan_time, expected.edit
            yield from self._manual(running.before((key, at)))
            ran = next(iter(list(running.through((key, at)))), None)
            # A deadline may have been missed before an operator skipped the plan_time.
            if self.history.retired(state, expected.due_at) or expected.decisions:
                self._forget(key, at)
            elif expected.excluded is None and not self.history.paused(expected.due_at):
                yield _Anchored(key, at, at, edit, ran)
        yield from self._manual(running.through((key, window.through)))

    def _manual(self, ended: Iterator[TimedExecution]) -> Iterator[_Anchored]:
        for ran in ended:
            if ran.trigger == "manual":
                edit = next((x for x in self.history.edits if x.number == ran.revision), None)
                if edit is not None:
                    yield _Anchored(ran.key, ran.plan_time, ran.created_at, edit, ran)

    def _check(self, one: _Anchored) -> Iterator[Violation]:
        given = {kind: one.edit.raw.get(kind) for kind in _KINDS}
        texts = {kind: text.strip() for kind, text in given.items() if text is not None}
        zone = one.edit.raw["timezone"]
        if not is_zone(zone) or not all(_has_meaning(*given) for given in texts.items()):
            return  # no replica can read this job
        for kind, text in texts.items():
            found = (one.key, one.plan_time, kind)
            if found in self._unjudged:
                continue
            breach = self._breaches.pop(found, None)
            if kind == "expect_duration":
                expected = None if _QUANTILE.fullmatch(text) else _length(text)
                problem = self._wrong_duration(one, expected, breach)
            else:
                problem = self._wrong_deadline(one, kind, _deadline(text, zone, one.anchor), breach)
            if problem is not None:
                ident = None if one.ran is None else one.ran.id
                yield Violation("wrong_breach", *one.key, one.plan_time, ident, problem)

    def _wrong_deadline(
        self, one: _Anchored, kind: str, deadline: datetime, breach: Row | None
    ) -> str | None:
        ran, met = one.ran, False
        if ran is not None:
            at = ran.first_started_at if kind == "start_by" else None
            if kind == "finish_by" and ran.status == "SUCCESS":
                at = ran.finished_at
            met = at is not None and at <= deadline
        if breach is None:
            if met or self._excused(one, kind, deadline):
                return None
            # A manual execution may be newer than the last step.
            return f"{kind} = {deadline} was missed, and breaches has no row"
        if breach["deadline"] != deadline:
            return f"the breach of {kind} names {breach['deadline']}, but it was {deadline}"
        return self._false_breach(kind, breach) if met else None

    def _excused(self, one: _Anchored, kind: str, deadline: datetime) -> bool:
        """Return whether a missed deadline has no breach, because a person ended the execution."""
        ran = one.ran
        if ran is None:
            return False
        cancelled = ran.status == "CANCELLED" and (
            ran.finished_at is not None and ran.finished_at <= deadline
        )
        if cancelled and (kind == "finish_by" or ran.first_started_at is None):
            return True
        return self.audits.was_retried(self.job, ran.id)

    @staticmethod
    def _wrong_duration(
        one: _Anchored, expected: timedelta | None, breach: Row | None
    ) -> str | None:
        """Return what is wrong. `expected` is None if it was a quantile: only a breach shows it."""
        ran = one.ran
        if ran is None:
            return None if breach is None else "a breach of expect_duration has no execution"
        # The durations of earlier attempts are not kept.
        if ran.attempt != 1 or ran.duration_ms is None or ran.status not in ("SUCCESS", "FAILED"):
            return None
        if expected is None:
            if breach is None or ran.first_started_at is None:
                return None
            expected = breach["deadline"] - ran.first_started_at
        too_long = timedelta(milliseconds=ran.duration_ms) > expected
        if too_long and breach is None:
            return f"it ran for {ran.duration_ms} ms, and breaches has no row of expect_duration"
        if not too_long and breach is not None and ran.status == "SUCCESS":
            return BreachComparison._false_breach("expect_duration", breach)
        return None

    @staticmethod
    def _false_breach(kind: str, breach: Row) -> str | None:
        """Return the problem of a breach whose deadline was met."""
        closed = breach["closed_at"]
        if closed is None or closed <= breach["deadline"]:
            return None  # it was found to be none, or is looked at again
        return f"{kind} = {breach['deadline']} was met, but breaches has a row"

    def _left(self, state: ScheduleState, window: Window) -> Iterator[Violation]:
        """Yield the breaches of the scope that no deadline explains."""
        # Those of a pass that is under way are after the cursor.
        through = min(window.through, self.through or window.through)
        left = sorted(
            x for x in self._breaches if x[0] == state.key and window.after < x[1] <= through
        )
        for key, plan_time, kind in left:
            del self._breaches[key, plan_time, kind]
            text = f"breaches has a row of {kind}, but the plan_time has no such deadline"
            yield Violation("wrong_breach", *key, plan_time, None, text)

    def _forget(self, key: ScopeKey, plan_time: datetime) -> None:
        for kind in _KINDS:
            self._breaches.pop((key, plan_time, kind), None)


def _has_meaning(kind: str, text: str) -> bool:
    other = _QUANTILE if kind == "expect_duration" else _WALL
    return other.fullmatch(text) is not None or _length(text) is not None


def _deadline(text: str, timezone: str, anchor: datetime) -> datetime:
    found = _WALL.fullmatch(text)
    if found is None:
        length = _length(text) or timedelta(0)
        return anchor + length if length < _FAR_OFF - anchor else _FAR_OFF
    hour, minute, second = (int(part or 0) for part in found.groups())
    return shown_next(time(hour, minute, second), timezone, anchor)


def _length(text: str) -> timedelta | None:
    """Return the duration, or None if the text is none, or one that no job may have."""
    if _LENGTH.fullmatch(text) is None:
        return None
    # ISO 8601 has the same units, with M for minutes after T; months are refused.
    parts = _PART.findall(re.sub("[PT]", "", text).lower())
    micro = sum(float(n.replace(",", ".")) * _SECONDS[unit] * 1e6 for n, unit in parts)
    return timedelta(microseconds=round(micro)) if 0 < micro <= _LONGEST else None
