"""What verify reads to judge the last skip of a schedule."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.audit.history import History, Window
from cronledger.audit.skip_reasons import OpenSkip, SkipReasons
from cronledger.audit.walk import walk
from cronledger.ledger.audits import ScheduleState, SkippedRange
from tests.unit.support.days import KEY, revision

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
