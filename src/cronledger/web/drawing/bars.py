"""Draw the attempts of a window as bars, packed into the lanes of each runner or queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from itertools import groupby
from xml.etree.ElementTree import Element

from cronledger.web.drawing.attempts import Attempt, AttemptState
from cronledger.web.drawing.axis import RIGHT, TOP, WIDTH, Axis
from cronledger.web.drawing.pauses import PauseBand, draw_pauses
from cronledger.web.drawing.svg import add, element
from cronledger.web.formats import span
from cronledger.web.links import Links

LANE, BAR, LEAST = 16.0, 10.0, 3.0
"""Height of a lane and of a bar, and the width of the shortest bar."""
_GAP, _PADDING = 2.0, 6.0
_LONGEST_NAME = 24
_MARKED = (AttemptState.FAILED, AttemptState.RUNNING)
_MARK = 9.0  # the room for the cross or the arrow after a bar
_OUTLINED = (AttemptState.CRASHED, AttemptState.RELEASED, AttemptState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Group:
    """The lanes of one runner or queue. The attempts of one lane do not overlap."""

    name: str
    lanes: Sequence[Sequence[Attempt]]


def pack(attempts: Sequence[Attempt], by: str, axis: Axis, now: datetime) -> list[Group]:
    """Return the attempts in as few lanes as the picture needs, by the name of their group."""
    named = sorted(attempts, key=lambda one: (one.group(by), one.start))
    return [
        Group(name, _lanes(list(members), axis, now))
        for name, members in groupby(named, key=lambda one: one.group(by))
    ]


def _lanes(members: Sequence[Attempt], axis: Axis, now: datetime) -> list[list[Attempt]]:
    lanes: list[list[Attempt]] = []
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for one in members:
        left, right = _extent(one, axis, now)
        while busy and busy[0][0] <= left:
            heappush(free, heappop(busy)[1])
        if not free:
            free.append(len(lanes))
            lanes.append([])
        lane = heappop(free)
        lanes[lane].append(one)
        heappush(busy, (right + _GAP + (_MARK if one.state in _MARKED else 0), lane))
    return lanes


def _extent(one: Attempt, axis: Axis, now: datetime) -> tuple[float, float]:
    left = min(axis.x(one.start), RIGHT - LEAST)
    return left, max(axis.x(one.end or now), left + LEAST)


def draw_bars(
    groups: Sequence[Group], pauses: Sequence[PauseBand], axis: Axis, now: datetime, to: Links
) -> Element:
    """Return the SVG. The table beside it has the same links for the keyboard."""
    total = sum(len(lane) for group in groups for lane in group.lanes)
    words = f"{total:,} attempts in {sum(len(group.lanes) for group in groups):,} lanes"
    height = TOP + max(LANE, sum(_height(group) for group in groups))
    svg = element(
        "svg", class_="timeline", role="group", aria_label=words,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
    )  # fmt: skip
    draw_pauses(svg, pauses, axis, height)
    axis.draw(svg, height, now)
    top = TOP
    for group in groups:
        lane_label(svg, group.name or "none", top, _height(group))
        for number, lane in enumerate(group.lanes):
            y = top + _PADDING / 2 + number * LANE + (LANE - BAR) / 2
            for one in lane:
                _bar(
                    add(svg, "a", href=to("/execution", id=one.id), tabindex=-1), one, y, axis, now
                )
        top += _height(group)
    return svg


def _height(group: Group) -> float:
    return len(group.lanes) * LANE + _PADDING


def lane_label(svg: Element, name: str, top: float, height: float) -> None:
    """Draw the name of a runner or queue to the left of what it ran, and a line above it."""
    shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    add(svg, "path", d=f"M0 {top:g}H{WIDTH:g}", class_="line")
    y = top + min(height / 2, LANE) + 3
    add(add(svg, "text", shown, x=10, y=y, class_="lane"), "title", name)


def _bar(link: Element, one: Attempt, y: float, axis: Axis, now: datetime) -> None:
    left, right = _extent(one, axis, now)
    name = f"state-{one.state.value}"
    rest = f"H{right:.2f}v{BAR:g}H{left:.2f}Z"
    if one.state is AttemptState.RUNNING:  # open at its end
        rest = f"H{right:.2f}l5 {BAR / 2:g}l-5 {BAR / 2:g}H{left:.2f}Z"
    kind = "outlined" if one.state in _OUTLINED else "filled"
    add(link, "path", d=f"M{left:.2f} {y:.2f}{rest}", class_=f"{kind} {name}")
    if one.state is AttemptState.FAILED:
        cross = f"M{right + 2:.2f} {y + 2:.2f}l6 6m0-6l-6 6"
        add(link, "path", d=cross, class_=f"drawn {name}")
    elif one.state is AttemptState.CANCELLED:
        add(
            link, "path", d=f"M{left:.2f} {y + BAR:.2f}L{right:.2f} {y:.2f}", class_=f"drawn {name}"
        )
    if one.stolen:
        add(link, "path", d=f"M{left:.2f} {y - 2:.2f}v{BAR + 4:g}", class_="stolen")
    # Easier to hit than a short bar.
    middle, width = (left + right) / 2, max(right - left, 8.0)
    add(link, "rect", x=middle - width / 2, y=y - 2, width=width, height=BAR + 4, class_="reach")
    add(link, "title", title(one, now))


def title(one: Attempt, now: datetime) -> str:
    """Return what an attempt was, in one line."""
    how = "stolen, " if one.stolen else ""
    why = f" ({one.error_code})" if one.error_code else ""
    lasted = span((one.end or now) - one.start)
    return (
        f"{one.key.job_name}, execution {one.id}, attempt {one.number}: {how}{one.state.value}{why}"
        f" after {lasted} on {one.runner}"
    )


def legend(counts: Mapping[AttemptState, int], stolen: int) -> Element:
    """Return the shape, the colour and the word of each state that occurs, with its number."""
    listed = element("ul", class_="legend")
    for state in AttemptState:
        if counts.get(state):
            item = add(listed, "li")
            item.append(_swatch(state))
            add(item, "span", f"{state.value} {counts[state]:,}")
    if stolen:
        item = add(listed, "li")
        svg = add(item, "svg", viewBox="0 0 6 14", width=6, height=14, aria_hidden="true")
        add(svg, "path", d="M3 0v14", class_="stolen")
        add(item, "span", f"stolen {stolen:,}")
    return listed


def _swatch(state: AttemptState) -> Element:
    svg = element("svg", viewBox="0 0 20 14", width=20, height=14, aria_hidden="true")
    name = f"state-{state.value}"
    if state is AttemptState.RUNNING:
        add(svg, "path", d="M1 2h10l5 5l-5 5H1Z", class_=f"filled {name}")
    else:
        wide = 8 if state is AttemptState.FAILED else 16
        kind = "outlined" if state in _OUTLINED else "filled"
        add(svg, "path", d=f"M1 2h{wide}v10h-{wide}Z", class_=f"{kind} {name}")
    if state is AttemptState.FAILED:
        add(svg, "path", d="M12 4l6 6m0-6l-6 6", class_=f"drawn {name}")
    elif state is AttemptState.CANCELLED:
        add(svg, "path", d="M1 12L17 2", class_=f"drawn {name}")
    return svg
