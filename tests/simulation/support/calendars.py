"""A calendar that jobs use, and that an operator edits again and again, also while jobs are edited.

Its dates are those around the instant at which the simulation starts.
"""

import asyncio
from datetime import date, datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.support.jobs import FUNCTION, is_sound, s

if TYPE_CHECKING:
    from tests.simulation.support.clients import Client

CALENDAR = "closed"
MODES = ("skip", "next", "previous")
NAMED_DAYS = ("0", "1-5", "2,4,6", "0,3", "*")
"""Days of the week, so that excluded dates are named, and moved to dates that are not."""


def make_calendars(random: Random, jobs: list[dict[str, Any]]) -> None:
    """Add a job for each mode. Some of the others use the calendar too, as far as they can."""
    for columns in jobs:
        used = {"calendar": CALENDAR, "on_excluded": random.choice(MODES)}
        if random.random() < 0.4 and is_sound({**columns, **used}):
            columns.update(used)
    for mode in MODES:
        jobs.append({
            "name": f"dated_{mode}", "handler": "python", "target": {"python": FUNCTION},
            "schedule": f"*/{random.choice((3, 4, 10))} * * * * {random.choice(NAMED_DAYS)}",
            "overlap": random.choice(("skip", "wait")), "catch_up": "latest", "grace": s(15),
            "catch_up_window": s(60), "stale_timeout": s(4), "allow_stale_reentry": True,
            "max_attempts": 2, "retry_backoff": [s(0.5)], "queue": "default",
            "calendar": CALENDAR, "on_excluded": mode,
        })  # fmt: skip


def draw_dates(random: Random, start: datetime) -> dict[str, str]:
    """Return excluded dates with their names, in the days around the start."""
    days = [start.date() + timedelta(days=n) for n in range(-4, 5)]
    return {f"{day}": random.choice(("Closed", f"Day {day}")) for day in days
            if random.random() < 0.4}  # fmt: skip


def covered(start: datetime) -> tuple[date, date]:
    """Return the first and the last date that the calendar knows."""
    return start.date() - timedelta(days=400), start.date() + timedelta(days=4000)


async def edit_calendar(client: "Client", random: Random, start: datetime, until: float) -> None:
    """Set other dates every few seconds."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(random.choice((0.05, 1.0, 3.0, 6.0)))
        dates = draw_dates(random, start)
        await client.act(partial(client.set_calendar, dates, *covered(start)))
