"""The tables beside the pictures of a timeline, which have the same content."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from cronledger.rules.instants import iso
from cronledger.web.drawing.attempts import Attempt, AttemptState
from cronledger.web.drawing.axis import Axis
from cronledger.web.drawing.density import BUCKETS, Counts, DenseLane, lane_name, total
from cronledger.web.drawing.svg import add, element
from cronledger.web.formats import span
from cronledger.web.links import Links

PART = 10
"""Buckets in one row of the table by time."""


def attempts_table(attempts: Sequence[Attempt], now: datetime, to: Links) -> Element:
    """Return a table of attempts in the order of their start."""
    names = ("Start (UTC)", "Job", "State", "Duration", "Attempt", "Runner", "Queue", "Execution")
    root, body = _table("Attempts", names)
    for one in attempts:
        row = add(body, "tr", data_key=f"{one.id}/{one.number}")
        add(row, "td", f"{one.start.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
        job = add(row, "th", scope="row")
        key = one.key
        address = to("/job", name=key.job_name, scope_kind=key.scope_kind, scope=key.scope_id)
        add(job, "a", key.job_name, href=address)
        if (key.scope_kind, key.scope_id) != ("global", "global"):
            add(job, "span", f" {key.scope_kind}/{key.scope_id}", class_="scope")
        add(row, "td", _words(one))
        add(row, "td", span((one.end or now) - one.start), class_="num")
        add(row, "td", str(one.number), class_="num")
        add(row, "td", one.runner)
        add(row, "td", one.queue)
        add(add(row, "td"), "a", str(one.id), href=to("/execution", id=one.id))
    return root


def _words(one: Attempt) -> str:
    words = f"{one.state.value} ({one.error_code})" if one.error_code else one.state.value
    return f"{words}, stolen" if one.stolen else words


def lanes_table(lanes: Sequence[DenseLane], by: str) -> Element:
    """Return a table of the starts of each lane by state."""
    states = _states(lanes)
    root, body = _table(f"Starts by {by}", (by.capitalize(), "Starts", *_names(states)), numbers=1)
    for lane in lanes:
        row = add(body, "tr", data_key=lane_name(lane))
        add(row, "th", lane_name(lane), scope="row")
        _cells(row, lane.counts, states)
    return root


def times_table(
    lanes: Sequence[DenseLane], axis: Axis, least: timedelta, query: Mapping[str, object], to: Links
) -> Element:
    """Return a table of the starts by time and state.

    Each row leads to its own window, or to a longer one of the length `least`.
    """
    states = _states(lanes)
    root, body = _table("Starts by time", ("From (UTC)", "Starts", *_names(states)), numbers=1)
    is_one_day = axis.since.astimezone(UTC).date() == axis.until.astimezone(UTC).date()
    shown = "%H:%M:%S" if is_one_day else "%Y-%m-%d %H:%M:%S"
    for start, end, counts in _parts(lanes, axis):
        row = add(body, "tr", data_key=iso(start))
        window = {"since": iso(start), "until": iso(max(end, start + least))}
        address = to("/timeline", **{**query, **window})
        add(add(row, "th", scope="row"), "a", f"{start.astimezone(UTC):{shown}}", href=address)
        _cells(row, counts, states)
    return root


def _parts(lanes: Sequence[DenseLane], axis: Axis) -> Iterator[tuple[datetime, datetime, Counts]]:
    width: timedelta = axis.length / BUCKETS
    for first in range(1, BUCKETS + 1, PART):
        counts = total(
            lane.buckets[bucket]
            for lane in lanes
            for bucket in range(first, first + PART)
            if bucket in lane.buckets
        )
        start = axis.since + (first - 1) * width
        yield start, start + PART * width, counts


def _states(lanes: Sequence[DenseLane]) -> list[AttemptState]:
    counts = total(lane.counts for lane in lanes)
    return [state for state in AttemptState if counts.get(state)]


def _names(states: Sequence[AttemptState]) -> list[str]:
    return [state.value.capitalize() for state in states]


def _cells(row: Element, counts: Counts, states: Sequence[AttemptState]) -> None:
    add(row, "td", f"{sum(counts.values()):,}", class_="num")
    for state in states:
        add(row, "td", f"{counts.get(state, 0):,}", class_="num")


def _table(
    caption: str, names: Sequence[str], *, numbers: int | None = None
) -> tuple[Element, Element]:
    """Return a table and its body. The columns from `numbers` on are numbers."""
    root = element("table")
    add(root, "caption", caption)
    head = add(add(root, "thead"), "tr")
    for place, name in enumerate(names):
        number = numbers is not None and place >= numbers
        number = number or name in ("Duration", "Attempt")
        add(head, "th", name, scope="col", class_="num" if number else None)
    return root, add(root, "tbody")
