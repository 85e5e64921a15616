"""The planner and the audit apply calendars with code of their own: both find the same firings.

All years from 2000 to 2037 in ten zones and three modes, around each clock change and New Year.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Literal

import pytest

from cronledger.audit.dates import Dates
from cronledger.audit.walk import Definition, excluded_day, walk
from cronledger.rules import zones
from cronledger.rules.calendar_days import OnExcluded
from cronledger.rules.calendars import Calendar
from cronledger.rules.cron import parse
from cronledger.rules.model import ScopeKey
from tests.marks import first_short

KEY = ScopeKey("job", "global", "global")
DAY = timedelta(days=1)
GAPS: list[Literal["shift", "skip"]] = ["shift", "skip"]
FOLDS: list[Literal["first", "both"]] = ["first", "both"]
YEARS = range(2000, 2038)
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Nuuk", "America/Santiago", "Asia/Beirut",
    "Asia/Tehran", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo",
)  # fmt: skip
"""Some change their clocks at midnight, one by half an hour, and one left out a whole day."""
SCHEDULES = (
    "30 2 * * *", "*/20 * * * *", "0,30 0,23 * * *", "15 0-3 L * *", "0 18 1,15 * *",
    "30 23 * * 1-5", "0 0 * * 0", "59 23 * * *", "@every 45m", "5 * * * *",
)  # fmt: skip


def windows(zone: str, year: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield some days around each clock change of a year, and around its end."""
    low, high = (int(datetime(one, 1, 1, tzinfo=UTC).timestamp()) for one in (year, year + 1))
    changes = [start for start, _, _, jump in zones.pieces(zones.named(zone), low, high) if jump]
    for instant in (*changes, high):
        at = datetime.fromtimestamp(instant, UTC)
        yield at - 4 * DAY, at + 4 * DAY


def drawn(random: Random, after: datetime, through: datetime) -> Calendar:
    """Return a calendar that knows most of the window, and excludes some runs of its days."""
    first = after.date() - random.randrange(4) * DAY
    last = through.date() - random.choice([0, 0, 0, 3, 6]) * DAY
    excluded: dict[date, str] = {}
    often = random.choice([0.2, 0.5, 0.8])
    for number in range((last - first).days + 1):
        day = first + number * DAY
        if random.random() < often:
            excluded[day] = f"{day:%A}"
    return Calendar("c", 1, first, last, excluded)


@pytest.mark.parametrize("on_excluded", ["skip", "next", "previous"])
@pytest.mark.parametrize("zone", first_short(ZONES))
def test_the_audit_finds_the_firings_of_the_planner(zone: str, on_excluded: OnExcluded) -> None:
    random = Random(f"{zone} {on_excluded}")
    compared = 0
    for year in YEARS:
        for after, through in 2 * list(windows(zone, year)):
            calendar = drawn(random, after, through)
            schedule = random.choice(SCHEDULES)
            if schedule.startswith("@every") and on_excluded != "skip":
                continue
            gap, fold = random.choice(GAPS), random.choice(FOLDS)
            cron = parse(
                schedule, timezone=zone, dst_gap=gap, dst_fold=fold, calendar=calendar,
                on_excluded=on_excluded,
            )  # fmt: skip
            definition = Definition(
                schedule, zone, True, gap, fold, on_excluded=on_excluded,
                dates=Dates("c", calendar.through, calendar.excluded),
            )  # fmt: skip
            planned = list(cron.with_excluded(after, through))
            audited = [
                (at, excluded_day(definition, KEY, at))
                for at in walk(definition, KEY, after, through)
            ]
            assert planned == audited, (zone, schedule, gap, fold, calendar)
            assert cron.count(after, through) == len(planned)
            included = [at for at, name in planned if name is None]
            assert list(cron.included.plan_times(after, through)) == included
            assert cron.included.count(after, through) == len(included)
            compared += len(planned)
    assert compared > 200
