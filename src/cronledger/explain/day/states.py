"""What became of a plan_time, in one word, and the groups that are summed up."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """What became of a plan_time, or of an execution beside the schedule.

    `on_time`, `late`: it succeeded, and its first attempt started within the grace of its revision
    after due_at, or later. `ran`: it succeeded; an execution beside the schedule cannot be late.
    `waiting`: PENDING, or FAILED and retried later. `overlap` to `not_reported`: the reasons of
    skips. `future`: not due yet. `to_skip`: not due yet, and a calendar, a planned skip or a pause
    will skip it. `held`: due in a pause; the resume records the skip. `overdue`: due, and not
    planned yet. `unexplained`: neither an execution nor a skip accounts for it. `extra`: the
    execution of a plan_time that no revision in force has.
    """

    ON_TIME = "on_time"
    LATE = "late"
    RAN = "ran"
    FAILED = "failed"
    RUNNING = "running"
    CANCELLED = "cancelled"
    WAITING = "waiting"
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
    FUTURE = "future"
    TO_SKIP = "to_skip"
    HELD = "held"
    OVERDUE = "overdue"
    UNEXPLAINED = "unexplained"
    EXTRA = "extra"

    @property
    def word(self) -> str:
        """The state for people."""
        if self in SKIPPED:
            return f"skipped: {self.value.replace('_', ' ')}"
        return _WORDS.get(self, self.value.replace("_", " "))


BY_URGENCY = (
    State.UNEXPLAINED, State.EXTRA, State.FAILED, State.OVERDUE, State.MISSED,
    State.HOST_ABSENT, State.NOT_REPORTED,
    State.CANCELLED, State.LATE, State.UPSTREAM, State.OVERLAP, State.SUPERSEDED, State.WAITING,
    State.RUNNING,
    State.PAUSED, State.HELD, State.RETIRED, State.OPERATOR, State.TO_SKIP, State.CALENDAR,
    State.ON_TIME, State.RAN, State.FUTURE,
)  # fmt: skip
"""All states. Where there is room for one, the first of those that are present is shown."""

SKIPPED = (
    State.OVERLAP, State.SUPERSEDED, State.MISSED, State.PAUSED, State.RETIRED, State.OPERATOR,
    State.CALENDAR, State.UPSTREAM, State.HOST_ABSENT, State.NOT_REPORTED,
)  # fmt: skip
_WORDS = {
    State.HELD: "held by a pause",
    State.FUTURE: "to come",
    State.TO_SKIP: "will be skipped",
    State.EXTRA: "not in the schedule",
}
_SUCCEEDED = (State.ON_TIME, State.LATE, State.RAN)
_ORDER = (State.FAILED, State.CANCELLED, State.RUNNING, State.WAITING)
_NOT_YET = (State.OVERDUE, State.HELD, State.TO_SKIP, State.FUTURE)

Counts = Mapping[State, int]


def state_of(status: str, again: bool, late: bool, planned: bool) -> State:
    """Return the state of an execution. `again`: a further attempt will follow."""
    if again:
        return State.WAITING
    match status:
        case "SUCCESS" if not planned:
            return State.RAN
        case "SUCCESS":
            return State.LATE if late else State.ON_TIME
        case "PENDING":
            return State.WAITING
        case _:
            return State(status.lower())


def equation(counts: Counts) -> str:
    """Return the sum of a day: `96 planned = 90 ran + 2 failed + 4 skipped (…) · 0 unexplained`.

    Every plan_time is in exactly one term. Terms that are 0 are left out, except those that ran.
    """
    terms = [_ran(counts)]
    terms += [f"{counts[one]:,} {one.word}" for one in _ORDER if counts.get(one)]
    if skipped := [(counts[one], one) for one in SKIPPED if counts.get(one)]:
        reasons = ", ".join(f"{count:,} {one.value}" for count, one in skipped)
        terms.append(f"{sum(count for count, _ in skipped):,} skipped ({reasons})")
    terms += [f"{counts[one]:,} {one.word}" for one in _NOT_YET if counts.get(one)]
    unexplained = counts.get(State.UNEXPLAINED, 0)
    end = f" + {unexplained:,} unexplained" if unexplained else " · 0 unexplained"
    extra = f" · {counts[State.EXTRA]:,} {State.EXTRA.word}" if counts.get(State.EXTRA) else ""
    return f"{planned(counts):,} planned = {' + '.join(terms)}{end}{extra}"


def planned(counts: Counts) -> int:
    """Return the number of plan_times. Executions that are `extra` are not among them."""
    return sum(count for state, count in counts.items() if state is not State.EXTRA)


def _ran(counts: Counts) -> str:
    ran = sum(counts.get(one, 0) for one in _SUCCEEDED)
    late = counts.get(State.LATE, 0)
    return f"{ran:,} ran" + (f" ({late:,} late)" if late else "")


def summary(counts: Counts) -> str:
    """Return the counts of executions beside the schedule: `2 ran, 1 failed`."""
    present = [one for one in State if counts.get(one)]
    return ", ".join(f"{counts[one]:,} {one.word}" for one in present)
