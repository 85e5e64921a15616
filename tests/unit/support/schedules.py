"""Schedules as the planner reads them, and as the walk of `verify` does, without shared code."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from cronledger.audit.walk import Definition, walk
from cronledger.rules import cron
from cronledger.rules.cron import Cron, CronError
from cronledger.rules.model import ScopeKey

KEY = ScopeKey("report", "global", "global")
FAR = datetime(9999, 12, 31, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def parsed(schedule: str, key: ScopeKey, **policies: Any) -> Cron:
    job, kind, scope = key
    return cron.parse(schedule, job=job, scope=f"{kind}/{scope}", **policies)


def plan_times(
    schedule: str,
    after: datetime,
    through: datetime = FAR,
    most: int | None = None,
    *,
    key: ScopeKey = KEY,
    **policies: Any,
) -> list[datetime]:
    """Return the first `most` plan_times in (after, through], which are the same for both."""
    found = list(islice(parsed(schedule, key, **policies).plan_times(after, through), most))
    walked = walk(Definition(schedule, **policies), key, after, through)
    assert list(islice(walked, most)) == found
    return found


def refusal(schedule: str, *, key: ScopeKey = KEY, **policies: Any) -> CronError:
    """Return the error of the planner for a schedule that both refuse."""
    with pytest.raises(ValueError, match=r"."):
        walk(Definition(schedule, **policies), key, FAR, FAR)
    with pytest.raises(CronError) as caught:
        parsed(schedule, key, **policies)
    return caught.value


def agree(
    schedule: str,
    after: datetime,
    through: datetime,
    most: int | None = None,
    *,
    key: ScopeKey = KEY,
    **policies: Any,
) -> None:
    """Both plan the same, or both refuse the schedule."""
    try:
        parsed(schedule, key, **policies)
    except CronError as error:
        assert error.value in (schedule, *policies.values())
        refusal(schedule, key=key, **policies)
    else:
        plan_times(schedule, after, through, most, key=key, **policies)
