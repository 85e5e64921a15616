"""Forecast: the coming days, against the slots of the live runners and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from math import ceil

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.explain.forecast import Basis, caveats, read_basis
from cronledger.rules.forecast import STARTS, Forecast
from cronledger.web import queries
from cronledger.web.forecasting import MOST_FIRINGS, slots_of
from cronledger.web.site import Entry, site_of

CHOICES = (1, 7, 14)
"""The lengths in days."""
FRESH_SECONDS = 60.0
"""Schedules and durations change slowly."""
MOST_ROWS = 50

ENTRY = Entry("Forecast", "/forecast")


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue: its slots (None: no runner serves it), its limit, and the most at once."""

    name: str
    slots: int | None
    limit: int | None
    starts: int
    most_running: int


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour: its starts, and the most executions that run and wait in one of its minutes.

    `level`: how much of the slots they use, from 0 to 3, or `waits`.
    """

    starts: int
    running: float
    waiting: int
    level: str


async def show(request: Request) -> Response:
    """Return the page."""
    days = _days(request)
    basis = await site_of(request).reader.compute("forecast", read_basis, fresh=FRESH_SECONDS)
    drawn = None
    queues: Sequence[Queue] = ()
    hours: Sequence[tuple[date, Sequence[Hour | None]]] = ()
    if basis.value is not None:
        drawn = await site_of(request).forecasts.of(basis.value, days)
    if drawn is not None:
        queues = _queues(drawn.basis, drawn.found)
        hours = _hours(drawn.found, slots_of(drawn.basis))
    return await site_of(request).page(
        request, "forecast.html", basis=basis, drawn=drawn, found=drawn and drawn.found,
        is_computing=basis.value is not None and (drawn is None or drawn.basis is not basis.value),
        queues=queues, hours=hours, days=days, choices=CHOICES, starts=STARTS, caveats=caveats,
        most_firings=MOST_FIRINGS, most_rows=MOST_ROWS,
    )  # fmt: skip


def _days(request: Request) -> int:
    given = queries.text(request, "days")
    if given is None:
        return 7
    if given not in map(str, CHOICES):
        allowed = ", ".join(map(str, CHOICES))
        raise HTTPException(400, f"days is one of {allowed}, not {given[:100]!r}.")
    return int(given)


def _hours(found: Forecast, slots: int) -> list[tuple[date, Sequence[Hour | None]]]:
    """Return by day of UTC its 24 hours; None: an hour that is not part of the forecast."""
    days: dict[date, list[Hour | None]] = {}
    start, size = found.start.astimezone(UTC), len(found.starts)
    most = slots or max(found.running)
    for first in range(-start.minute, size, 60):
        part, at = slice(max(0, first), first + 60), start + timedelta(minutes=first)
        running, waiting = max(found.running[part]), max(found.waiting[part])
        level = str(min(3, ceil(3 * running / most)) if running else 0)
        hour = Hour(sum(found.starts[part]), running, waiting, "waits" if waiting else level)
        days.setdefault(at.date(), [None] * 24)[at.hour] = hour
    return [*days.items()]


def _queues(basis: Basis, found: Forecast) -> list[Queue]:
    starts: dict[str, int] = {}
    for (job, _), of in found.jobs.items():
        queue = basis.jobs[job].job.queue
        starts[queue] = starts.get(queue, 0) + of.get(STARTS, 0)
    return [
        Queue(
            name, basis.capacity.slots(name), basis.capacity.limits.get(name), count,
            found.most_running.get(name, 0),
        )
        for name, count in sorted(starts.items())
    ]  # fmt: skip


ROUTES = [Route("/forecast", show, methods=["GET"])]
