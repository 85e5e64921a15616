"""The sums of an accounted day, compared with a count of its plan_times one by one."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from cronledger.audit.history import Expected, History
from cronledger.explain.day import plan_times
from cronledger.explain.day.account import AccountedDay
from cronledger.explain.day.local_day import LocalDay
from cronledger.explain.day.states import Counts, State
from tests.marks import first_short, slow
from tests.unit.support.days import KEY, accounted, counted, revision, skipped

BEGAN = datetime(2010, 1, 1, tzinfo=UTC)
TICK, SECOND, HOUR = timedelta(microseconds=1), timedelta(seconds=1), timedelta(hours=1)
MINUTE = 60 * SECOND
SCHEDULES = ("* * * * * *", "*/7 * * * * *", "@every 11s", "*/5 * * * *", "0 30 2 * * *")
ZONES = ("UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe")
DAYS = [date(2026, 5, 5), date(2026, 3, 29), date(2026, 10, 25), date(2026, 4, 4), date(2026, 9, 6)]
SECONDS = "* * * * * *"


class Case:
    """Rows of one day, at random: edits, pauses, retirements, executions and skips."""

    def __init__(self, seed: int, zone: str | None = None, day: date | None = None) -> None:
        draw = random.Random(seed)
        self.zone, self.day = zone or draw.choice(ZONES), day or draw.choice(DAYS)
        self.local = LocalDay.of(self.zone, self.day)
        self._draw = draw
        self.cursor, self.now = sorted((self._instant(), self._instant()))
        changes = sorted(self._instant() for _ in range(2 * draw.choice((0, 0, 0, 1, 1, 3))))
        self.retirements: list[datetime] = changes[::2]
        self.returns: list[datetime | None] = list(changes[1::2])
        if self.returns and draw.random() < 0.5:
            self.returns[-1] = None
        edits = sorted(self._instant() for _ in range(draw.randrange(4)))
        self.revisions = [
            self._revision(number, at) for number, at in enumerate([BEGAN, *edits], start=2)
        ]
        first, second = sorted((self._instant(), self._instant()))
        self.skips = [skipped(first, second, draw.choice(("overlap", "paused", "missed")))]
        self.ran = {
            self.local.start + draw.randrange(self._length) * SECOND for _ in range(500)
        }  # fmt: skip

    @property
    def _length(self) -> int:
        return (self.local.end - self.local.start) // SECOND

    def _instant(self) -> datetime:
        return self.local.start + self._draw.randrange(self._length) * SECOND

    def _revision(self, number: int, at: datetime) -> dict[str, Any]:
        state = self._draw.choice(("active", "active", "paused", "retired"))
        until = self._instant() if state == "paused" and self._draw.random() < 0.5 else None
        return revision(
            number, at, state, paused_until=until, schedule=self._draw.choice(SCHEDULES),
            timezone=self.zone, jitter=self._draw.choice(("00:00:00", "00:00:40", "02:00:00")),
            schedule_delay=self._draw.choice(("00:00:00", "00:10:00")),
        )  # fmt: skip

    def accounted(self) -> AccountedDay:
        ran = [(at - self.local.start) // SECOND for at in self.ran]
        return accounted(
            self.day, zone=self.zone, planned_through=self.cursor, now=self.now,
            revisions=self.revisions, skips=self.skips, executions=None, beside=None,
            counts=[counted(*ran)], retirements=self.retirements, returns=self.returns,
        )  # fmt: skip

    def one_by_one(self) -> dict[int, Counter[State]]:
        """What became of each plan_time, by minute."""
        history = History([revision(1, BEGAN, timezone=self.zone), *self.revisions], {})
        minutes: dict[int, Counter[State]] = {}
        left = {at for at in self.ran if at in self.local}
        for expected in history.expected(KEY, self.local.start - TICK, self.local.end - TICK):
            at = expected.plan_time
            if at in self.local and (state := self._state(history, expected)):
                self._count(minutes, at, state)
                left.discard(at)
        for at in left:
            self._count(minutes, at, State.EXTRA)
        return minutes

    def _state(self, history: History, expected: Expected) -> State | None:
        at, due = expected.plan_time, expected.due_at
        if at in self.ran:
            return State.ON_TIME
        if at <= self.cursor:
            (skip,) = self.skips
            within = skip["from_plan_time"] <= at <= skip["through_plan_time"]
            return State(skip["reason"]) if within else State.UNEXPLAINED
        if expected.edit.state == "retired" or self._is_retired(due):
            return None
        if due > self.now:
            return State.FUTURE
        return State.HELD if history.paused(due) else State.OVERDUE

    def _is_retired(self, due: datetime) -> bool:
        changes = zip(self.retirements, self.returns, strict=True)
        return any(start < due and (end is None or due <= end) for start, end in changes)

    def _count(self, minutes: dict[int, Counter[State]], at: datetime, state: State) -> None:
        minute = (at - self.local.start) // MINUTE
        minutes.setdefault(minute, Counter())[state] += 1


def present(minutes: Mapping[int, Counts]) -> dict[int, dict[State, int]]:
    found = {
        n: {state: count for state, count in one.items() if count} for n, one in minutes.items()
    }
    return {n: one for n, one in found.items() if one}


# The clocks of St. John's went back over midnight: a minute of the next date lies in this one.
INTERRUPTED = ("America/St_Johns", date(2010, 11, 6))


@pytest.mark.parametrize("case", [
    *first_short(map(Case, range(8))), Case(0, *INTERRUPTED), *slow(map(Case, range(8, 24))),
    *slow(Case(seed, *INTERRUPTED) for seed in (1, 2, 3)),
])  # fmt: skip
def test_the_sums_are_those_of_its_plan_times_one_by_one(case: Case) -> None:
    day, expected = case.accounted(), case.one_by_one()
    assert present(day.minutes) == present(expected)
    assert +Counter(day.counts) == sum(expected.values(), Counter())


def of_each_second(revisions: Sequence[dict[str, Any]] = (), **columns: str) -> AccountedDay:
    """A day that is planned until noon, of a job that fires every second."""
    noon = datetime(2026, 5, 5, 12, tzinfo=UTC)
    every = revision(2, BEGAN, schedule=SECONDS, **columns)
    return accounted(
        noon.date(), planned_through=noon, now=noon + HOUR, revisions=[every, *revisions],
        executions=None, beside=None,
    )  # fmt: skip


def test_a_job_of_each_second_is_accounted_without_enumeration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[datetime] = []
    state = plan_times.PlanTimes._state

    def counting(self: plan_times.PlanTimes, due: datetime, owner: Any) -> State | None:
        looked.append(due)
        return state(self, due, owner)

    monkeypatch.setattr(plan_times.PlanTimes, "_state", counting)
    pause = revision(
        3, datetime(2026, 5, 5, 12, 30, tzinfo=UTC), "paused", schedule=SECONDS, jitter="00:00:30"
    )
    day = of_each_second([pause], jitter="00:00:30")
    assert sum(day.counts.values()) == 86_400
    assert day.counts[State.UNEXPLAINED] == 43_200 + 1
    assert State.HELD in day.counts and State.OVERDUE in day.counts
    # Two changes, over each of which the jitter may move 30 plan_times, and the times between them.
    assert len(looked) < 100
