"""Timeline: what ran in a window, as bars by runner or queue, or as density if that is too much."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from xml.etree.ElementTree import Element

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.explain.forecast import Pause, as_job
from cronledger.explain.pauses import selected
from cronledger.ledger.reports import Row
from cronledger.rules.instants import iso
from cronledger.web import queries
from cronledger.web.drawing.attempts import attempts_of
from cronledger.web.drawing.axis import Axis
from cronledger.web.drawing.bars import draw_bars, legend, pack
from cronledger.web.drawing.density import BUCKETS, dense_lanes, dense_legend, draw_density, total
from cronledger.web.drawing.pauses import PauseBand, pause_legend
from cronledger.web.drawing.svg import markup
from cronledger.web.drawing.timeline_tables import attempts_table, lanes_table, times_table
from cronledger.web.formats import span
from cronledger.web.links import Links, root_of
from cronledger.web.reading import Reading
from cronledger.web.site import Entry, site_of

PATH = "/timeline"
MOST_BARS = 2_000
MOST_LANES = 120
"""Lanes of bars. With more, the picture would be too tall to see anything."""
DENSE_LANES = 20
FRESH_SECONDS = 5.0
"""A large picture costs more than the statement."""
MOST_PAUSES = 50
MOST_ROWS = (DENSE_LANES + 1) * BUCKETS * 5
WINDOW = timedelta(hours=1)
ZOOMS = tuple(timedelta(minutes=minutes) for minutes in (5, 15, 60, 180, 360, 720, 1440))
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=1)
GROUPS = ("runner", "queue")
_MINUTE = timedelta(minutes=1)

ENTRY = Entry("Timeline", PATH)


@dataclass(frozen=True, slots=True)
class Window:
    """What the address asks for. `follows`: the window ends at the present minute."""

    since: datetime
    until: datetime
    follows: bool
    by: str
    job: str | None

    @property
    def planned_from(self) -> datetime:
        """The first plan_time of executions that are looked for, unless they are RUNNING."""
        return self.since - max(self.until - self.since, WINDOW)

    def query(self, length: timedelta, until: datetime | None) -> Mapping[str, object]:
        """Return the query of a window of this length. `until` None: it follows the present."""
        found: dict[str, object] = {"by": self.by, "job": self.job}
        if until is None:
            return found | {"since": _text(length)}
        return found | {"since": iso(until - length), "until": iso(until)}


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with its legend and the table beside it, and what it shows in words."""

    kind: Literal["bars", "density"]
    picture: Markup
    legend: Markup
    tables: Sequence[Markup]
    words: str


async def show(request: Request) -> Response:
    """Return the page."""
    window, now = await _window(request)
    read = site_of(request).reader.read
    bounds: dict[str, Any] = {
        "since": window.since, "until": window.until, "planned_from": window.planned_from,
        "job": window.job,
    }  # fmt: skip
    found = await read("list_timeline", fresh=FRESH_SECONDS, max_rows=MOST_BARS + 1, **bounds)
    pauses = await _pauses(request, window)
    figure = None
    if not found.has_more(MOST_BARS):
        figure = await _drawn(request, window, found, pauses, _bars)
    is_dense, many = figure is None and bool(found.known), min(len(found.known), MOST_BARS)
    if is_dense:
        found = await read(
            "list_density", by=window.by, buckets=BUCKETS, lanes=DENSE_LANES,
            max_rows=MOST_ROWS, fresh=FRESH_SECONDS, **bounds,
        )  # fmt: skip
        figure = await _drawn(request, window, found, pauses, _density)
    return await site_of(request).page(
        request, "timeline.html", window=window, found=found, figure=figure, groups=GROUPS,
        links=_links(window, now), most=MOST_BARS,
        fields={name: queries.moment_of(request, name) for name in ("since", "until")},
        is_dense=is_dense, many=many,
        back=span(window.since - window.planned_from), most_lanes=MOST_LANES,
        ends=None if window.follows else iso(window.until),
    )  # fmt: skip


async def _pauses(request: Request, window: Window) -> tuple[PauseBand, ...]:
    """Return the pauses that apply in the window, of the job if one is chosen."""
    read = site_of(request).reader.read
    found = (await read(
        "list_window_pauses", since=window.since, until=window.until, max_rows=MOST_PAUSES,
        fresh=FRESH_SECONDS,
    )).known  # fmt: skip
    if found and window.job is not None:
        jobs = (await read("show_job", job=window.job, fresh=FRESH_SECONDS)).known
        found = [row for row in found if jobs and Pause.from_row(row).covers(as_job(jobs[0]))]
    return tuple(PauseBand(row["from_at"], row["ends_at"], _pause_words(row)) for row in found)


def _pause_words(row: Row) -> str:
    reason = f": {row['reason']}" if row["reason"] else ""
    until = f" until {iso(row['ends_at'], 'seconds')}" if row["ends_at"] else ""
    when = f"{row['state']}, from {iso(row['from_at'], 'seconds')}{until}"
    return f"pause {row['id']} of {selected(row)} ({when}) by {row['requested_by']}{reason}"


async def _window(request: Request) -> tuple[Window, datetime]:
    now = (await site_of(request).reader.read("read_head")).now
    if now is None:
        raise HTTPException(503, "The database does not respond.")
    present = now.replace(second=0, microsecond=0) + _MINUTE
    given = queries.instant(request, "until", now)
    until = given or present
    since = queries.instant(request, "since", until) or until - WINDOW
    length = until - since
    if not SHORTEST <= length <= LONGEST:
        raise HTTPException(
            400, f"The window from {iso(since)} to {iso(until)} has {span(length)};"
            " use a window of 1m to 1d.",
        )  # fmt: skip
    (by,) = queries.choices(request, "by", GROUPS)[:1] or GROUPS[:1]
    return Window(since, until, given is None, by, queries.text(request, "job")), now


def _links(window: Window, now: datetime) -> Mapping[str, Mapping[str, object]]:
    """Return the queries of the windows beside this one, and of a shorter and a longer one."""
    length = window.until - window.since
    found = {"before": window.query(length, window.since)}
    if not window.follows:
        after = window.until + length
        found["after"] = window.query(length, after if after < now else None)
    shorter = max((zoom for zoom in ZOOMS if zoom < length), default=None)
    longer = min((zoom for zoom in ZOOMS if zoom > length), default=None)
    middle = window.since + length / 2
    for name, zoom in (("closer", shorter), ("wider", longer)):
        if zoom is not None:
            end = None if window.follows or middle + zoom / 2 >= now else middle + zoom / 2
            found[name] = window.query(zoom, end)
    return found


def _text(length: timedelta) -> str:
    minutes = round(length / _MINUTE)
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


class _Read:
    """One reading of a window. Readings of the same instant are the same, so are drawn once."""

    def __init__(
        self, reading: Reading, window: Window, pauses: tuple[PauseBand, ...], root: str, to: Links
    ) -> None:
        assert reading.now is not None
        self.rows, self.now, self.window, self.to = reading.known, reading.now, window, to
        self.pauses = pauses
        self._key = (reading.now, window, pauses, root)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Read) and self._key == other._key and self.rows is other.rows

    @property
    def axis(self) -> Axis:
        return Axis(self.window.since, self.window.until)


async def _drawn(
    request: Request, window: Window, reading: Reading, pauses: tuple[PauseBand, ...],
    draw: Callable[[_Read], Figure | None],
) -> Figure | None:  # fmt: skip
    if reading.now is None or not (reading.known or (pauses and draw is _bars)):
        return None
    read = _Read(reading, window, pauses, root_of(request), Links(request))
    return await asyncio.to_thread(draw, read)


@lru_cache(maxsize=8)
def _bars(read: _Read) -> Figure | None:
    """Return the bars, or None if they need too many lanes."""
    window = read.window
    attempts = attempts_of(read.rows, window.since, window.until)
    groups = pack(attempts, window.by, read.axis, read.now)
    if sum(len(group.lanes) for group in groups) > MOST_LANES:
        return None
    counts = Counter(one.state for one in attempts)
    return Figure(
        "bars", _markup(draw_bars(groups, read.pauses, read.axis, read.now, read.to)),
        _markup(pause_legend(legend(counts, sum(one.stolen for one in attempts)), read.pauses)),
        [_markup(attempts_table(attempts, read.now, read.to))],
        f"{len(attempts):,} attempts",
    )  # fmt: skip


@lru_cache(maxsize=8)
def _density(read: _Read) -> Figure | None:
    lanes = dense_lanes(read.rows)
    counts = total(lane.counts for lane in lanes)
    query = read.window.query(WINDOW, read.window.until)
    return Figure(
        "density", _markup(draw_density(lanes, read.pauses, read.axis, read.now)),
        _markup(pause_legend(dense_legend(counts), read.pauses)),
        [
            _markup(lanes_table(lanes, read.window.by)),
            _markup(times_table(lanes, read.axis, SHORTEST, query, read.to)),
        ],
        f"{counts.total():,} starts",
    )  # fmt: skip


def _markup(root: Element) -> Markup:
    return Markup(markup(root))


ROUTES = [Route(PATH, show, methods=["GET"])]
