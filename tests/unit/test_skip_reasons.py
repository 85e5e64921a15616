"""What verify reads to judge the last skip of a schedule."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.audit.history import History, Window
from cronledger.audit.skip_reasons import FalseReason, OpenSkip, SkipReasons
from cronledger.audit.walk import walk
from cronledger.ledger.audits import ScheduleState, SkippedRange
from tests.unit.support.days import KEY, revision
from tests.unit.support.planning import KEY as PLANNED

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RETURNED = BEGAN + DAY


@pytest.mark.parametrize(("adopted_again", "violations"), [(None, 1), (300 * DAY, 0)])
def test_the_plan_times_of_another_scheduler_are_not_enumerated(
    monkeypatch: pytest.MonkeyPatch, adopted_again: timedelta | None, violations: int
) -> None:
    """One each second, for a year."""

    def adopted(number: int, at: datetime, **switch: str) -> dict[str, Any]:
        row = revision(number, at, schedule="* * * * * *")
        return row | {"definition": row["definition"] | {"observed": True} | switch}

    edits = [adopted(1, BEGAN, adopted_at=f"{BEGAN}", returned_at=f"{RETURNED}")]
    if adopted_again is not None:
        edits.append(adopted(2, RETURNED + DAY, adopted_at=f"{RETURNED + adopted_again}"))
    known = History(edits, {})
    walked = 0

    def counting(*arguments: Any) -> Iterator[datetime]:
        nonlocal walked
        for plan_time in walk(*arguments):
            walked += 1
            assert walked < 1000
            yield plan_time

    monkeypatch.setattr("cronledger.audit.history.walk", counting)
    last = RETURNED - SECOND
    state = ScheduleState(KEY, last, 2, None, BEGAN, [], [])
    reasons = SkipReasons(state, known, Window(BEGAN, last, last + 365 * DAY, last))
    (expected,) = known.expected(KEY, last - SECOND, last)
    skip = SkippedRange(KEY, last, last, 1, "superseded", None, None, 1, RETURNED)
    assert [*reasons.reach(expected), *reasons.skipped(OpenSkip(skip), expected)] == []
    assert len(list(reasons.finish(to_the_cursor=True))) == violations


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-04T{text}Z")


JITTER = {"schedule": "6,7,8 9 * * *", "jitter": "00:20:00", "grace": "01:00:00"}
DELAY = {"schedule": "0 9 * * *", "schedule_delay": "01:00:00", "grace": "00:10:00"}
OBSERVED = {"handler": "observed"}


@pytest.mark.parametrize("stop", [OBSERVED, {"state": "retired"}])
@pytest.mark.parametrize(
    ("definition", "times", "violations"),
    [
        # 09:06 is due at 09:17:15, 09:07 at 09:21:40, but 09:08 at 09:09:06.
        (JITTER, "09:09:26 09:10:06 09:08 09:08 09:21:45", 0),
        (JITTER, "09:09:26 09:10:06 09:07 09:08 09:21:45", 1),
        (JITTER, "09:09:26 09:10:06 09:06 09:06 09:21:45", 0),  # 09:07 is newer
        (JITTER, "09:21:41 09:21:42 09:06 09:08 09:21:45", 0),
        # 09:00 is due at 10:00.
        (DELAY, "09:10 09:20 09:00 09:00 10:00:05", 1),
        (DELAY, "09:10 10:00 09:00 09:00 10:00:05", 0),
        (DELAY, "10:00:05 11:00 09:00 09:00 10:00:05", 0),
        (DELAY, "10:00:06 11:00 09:00 09:00 10:00:05", 1),
    ],
)  # fmt: skip
def test_what_was_due_before_a_job_was_stopped_is_missed_and_nothing_else(
    definition: dict[str, str], times: str, violations: int, stop: dict[str, str]
) -> None:
    """`times`: of the stop, its end, the first and last missed plan_time, and its record."""
    began, ended, first, last, recorded = map(at, times.split())
    starts = enumerate((BEGAN, began, ended), 1)
    rows = [revision(number, start, **definition) for number, start in starts]
    for row in rows:
        row["definition"]["scope_kind"] = "global"
    rows[1] |= stop if "state" in stop else {"definition": rows[1]["definition"] | stop}
    known = History(rows, {})
    state = ScheduleState(PLANNED, at("12:00"), 3, None, BEGAN, [], [])
    reasons = SkipReasons(state, known, Window(BEGAN, at("12:00"), at("12:00"), at("12:00")))
    skip = OpenSkip(SkippedRange(PLANNED, first, last, 1, "missed", None, None, 1, recorded))
    found: list[FalseReason] = []
    for expected in known.expected(PLANNED, at("08:00"), at("12:00")):
        found += reasons.reach(expected)
        reasons.executed(expected, 1)
        if first <= expected.plan_time <= last:
            found += reasons.skipped(skip, expected)
    found += reasons.finish(to_the_cursor=True)
    assert [one.plan_time for one in found] == [first] * violations
