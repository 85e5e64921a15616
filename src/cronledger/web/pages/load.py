"""Load: the planned starts of the next 24 hours against the slots of the live runners."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger.reports import Row
from cronledger.rules.calendars import Calendar, CalendarKey
from cronledger.rules.load import MINUTES, Load, Planned, load
from cronledger.rules.model import Job
from cronledger.web.drawing.load import draw_load
from cronledger.web.reading import Reading
from cronledger.web.site import Entry, site_of

MOST_SCOPES = 1000
FRESH_SECONDS = 60.0
"""Medians and schedules change slowly, and the picture has minutes."""

ENTRY = Entry("Load", "/load")


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour of the table: its starts, and the greatest average number in one of its minutes."""

    at: datetime
    starts: int
    running: float


async def show(request: Request) -> Response:
    """Return the page."""
    site = site_of(request)
    scopes, runners = await asyncio.gather(
        site.reader.read("list_planned_scopes", fresh=FRESH_SECONDS, max_rows=MOST_SCOPES + 1),
        site.reader.read("show_slots"),
    )
    slots = runners.known[0]["slots"] if runners.known else 0
    found, figure = None, None
    if scopes.now is not None:
        rows = _Rows(scopes)
        rows.calendars = await site.reader.calendars(rows.rows)
        found, figure = await asyncio.to_thread(_drawn, rows, slots)
    return await site.page(
        request, "load.html", scopes=scopes, runners=runners, slots=slots, load=found,
        figure=figure, hours=_hours(found), most=MOST_SCOPES,
    )  # fmt: skip


class _Rows:
    """The rows of one reading. Equal ones are the same rows, so they are computed once."""

    def __init__(self, reading: Reading) -> None:
        assert reading.now is not None
        self.rows = reading.first(MOST_SCOPES)
        self.now = reading.now
        self.calendars: Sequence[Row] = ()

    def __hash__(self) -> int:
        return hash(self.now)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and self.now == other.now and self.rows == other.rows


@lru_cache(maxsize=2)
def _drawn(rows: _Rows, slots: int) -> tuple[Load, Markup]:
    read = {calendar.key: calendar for calendar in map(Calendar.from_row, rows.calendars)}
    found = load([_planned(row, read) for row in rows.rows], rows.now)
    return found, Markup(draw_load(found, slots))


def _planned(row: Row, calendars: Mapping[CalendarKey, Calendar]) -> Planned:
    job = Job.model_construct(name=row["job_name"], **row)
    calendar = calendars.get(CalendarKey(row["calendar"], row["calendar_revision"]))
    return Planned(job, row["scope_id"], (row["median_ms"] or 0.0) / 1000, calendar)


def _hours(found: Load | None) -> list[Hour]:
    if found is None:
        return []
    return [
        Hour(
            found.at(first), sum(found.starts[first : first + 60]),
            max(found.running[first : first + 60]),
        )
        for first in range(0, MINUTES, 60)
    ]  # fmt: skip


ROUTES = [Route("/load", show, methods=["GET"])]
