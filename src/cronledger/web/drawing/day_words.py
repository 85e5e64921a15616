"""What the picture of an accounted day and its table say about a mark, and what they link to."""

from datetime import datetime, timedelta
from typing import Protocol

from cronledger.explain.day.account import AccountedDay, Edit, Mark, Skip
from cronledger.explain.day.states import State, summary
from cronledger.explain.durations import length
from cronledger.rules import durations
from cronledger.rules.instants import iso

_WITHOUT_ROW = {
    State.UNEXPLAINED: "neither an execution nor a skip accounts for it, which is a violation",
    State.OVERDUE: "it is due, and not planned yet",
    State.HELD: "the resume records the skip",
}


class Links(Protocol):
    """The addresses of what the picture refers to."""

    def execution(self, execution_id: int) -> str:
        """Return the address of an execution."""
        ...

    def why(self, plan_time: datetime) -> str:
        """Return the address of the explanation of a plan_time of this scope."""
        ...

    def revision(self, revision: int) -> str:
        """Return the address of a revision of this job."""
        ...


def clock(day: AccountedDay, instant: datetime) -> str:
    """Return the time that the clocks of the job's zone show, with the zone's abbreviation."""
    shown = day.local.local(instant)
    seconds = ":%S" if shown.second or shown.microsecond else ""
    return shown.strftime(f"%H:%M{seconds} %Z")


def edit_text(edit: Edit) -> str:
    """Return what an edit did, who did it and why."""
    by = f" by {edit.requested_by}" if edit.requested_by else ""
    until = f" until {iso(edit.paused_until, 'seconds')}" if edit.paused_until else ""
    reason = f": {edit.reason}" if edit.reason else ""
    return f"revision {edit.revision}, {edit.kind}{until}{by}{reason}"


def detail(day: AccountedDay, mark: Mark) -> str:
    """Return who ran it and for how long, or why it did not run, or nothing."""
    if mark.execution is not None:
        return _ran(mark)
    if mark.skip is not None:
        return _skipped(day, mark.skip)
    held = f"{edit_text(mark.pause)}; " if mark.pause is not None else ""
    return mark.obstacle or held + _WITHOUT_ROW.get(mark.state, "")


def _ran(mark: Mark) -> str:
    row = mark.execution
    assert row is not None
    parts = [f"execution {row['id']}"]
    if row["trigger"] != "schedule":
        parts.append(
            f"{row['trigger']}" + (f" by {row['requested_by']}" if row["requested_by"] else "")
        )
    if row["runner_id"]:
        parts.append(f"on {row['runner_id']}")
    if row["attempt"] > 1:
        parts.append(f"attempt {row['attempt']} of {row['max_attempts']}")
    if mark.state is State.LATE:
        late: timedelta = row["first_started_at"] - row["due_at"]
        parts.append(f"{_length(late)} late")
    if row["duration_ms"] is not None:
        parts.append(f"took {_length(length(row['duration_ms']))}")
    if row["error_code"] and mark.state is not State.RAN:
        parts.append(row["error_code"])
    return ", ".join(parts)


def _skipped(day: AccountedDay, skip: Skip) -> str:
    others = f"; one of {skip.count:,} skipped in a row" if skip.count > 1 else ""
    match skip.reason:
        case State.OVERLAP:
            text = f"execution {skip.blocked_by} was running"
        case State.SUPERSEDED:
            text = "a newer plan_time ran instead"
        case State.PAUSED if skip.pause is not None:
            text = edit_text(skip.pause)
        case State.PAUSED:
            text = "the job was paused"
        case State.OPERATOR:
            text = f"an operator skipped it: {skip.detail}"
        case State.CALENDAR:
            its = f"the calendar {skip.calendar}" if skip.calendar else "its calendar"
            text = f"{its} excludes this day: {skip.detail}"
        case State.UPSTREAM:
            text = f"it waited for a job that it requires: {skip.detail}"
        case State.HOST_ABSENT:
            text = "no replica of the host had checked in by the end of grace"
        case State.NOT_REPORTED:
            text = "no start was reported within grace"
        case State.RETIRED:
            text = "the job or this scope was retired"
        case _ if skip.gap is not None:
            text = (
                f"no runner checked in {clock(day, skip.gap.start)} to {clock(day, skip.gap.end)}"
            )
        case _:
            text = f"it had not started by {clock(day, skip.recorded_at)}"
    return text + others


def address(mark: Mark, links: Links) -> str:
    """Return what explains the mark: its execution, the one that blocked it, the pause, or why."""
    if mark.execution is not None:
        return links.execution(mark.execution["id"])
    skip = mark.skip
    if skip is not None and skip.blocked_by is not None:
        return links.execution(skip.blocked_by)
    if skip is not None and skip.pause is not None:
        return links.revision(skip.pause.revision)
    return links.why(mark.plan_time)


def beside_text(day: AccountedDay) -> str:
    """Return the counts of the executions beside the schedule: `3 manual (2 ran, 1 failed)`."""
    return ", ".join(
        f"{sum(counts.values()):,} {trigger} ({summary(counts)})"
        for trigger, counts in sorted(day.beside.items())
        if counts
    )


def _length(length: timedelta) -> str:
    if length < timedelta(seconds=10):
        return f"{length / timedelta(seconds=1):.3g} s"
    return durations.format(timedelta(seconds=int(length.total_seconds())))
