"""Draw the starts of a window as density, where there are too many for bars."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from xml.etree.ElementTree import Element

from cronledger.ledger.reports import Row
from cronledger.web.drawing.attempts import OF_STATUS, AttemptState
from cronledger.web.drawing.axis import LEFT, RIGHT, TOP, WIDTH, Axis
from cronledger.web.drawing.bars import lane_label
from cronledger.web.drawing.pauses import PauseBand, draw_pauses
from cronledger.web.drawing.svg import add, element

BUCKETS = 120
Counts = Mapping[AttemptState, int]
_ROW, _TALL = 30.0, 22.0
_STACK = (
    AttemptState.SUCCEEDED, AttemptState.RUNNING, AttemptState.RELEASED, AttemptState.CANCELLED,
    AttemptState.CRASHED, AttemptState.FAILED,
)  # fmt: skip
_OF_STATUS = {
    **OF_STATUS, "CRASHED": AttemptState.CRASHED, "RELEASED": AttemptState.RELEASED,
    "PENDING": AttemptState.RELEASED,
}  # fmt: skip
_HATCHES = {AttemptState.RUNNING: "M0 4L4 0", AttemptState.CANCELLED: "M0 0L4 4"}
_OUTLINED = (AttemptState.CRASHED, AttemptState.RELEASED)


@dataclass(slots=True)
class DenseLane:
    """The starts of one runner or queue, by bucket. `merged`: it stands for so many."""

    name: str
    merged: int = 0
    buckets: dict[int, Counter[AttemptState]] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[AttemptState]:
        """The starts by state."""
        return total(self.buckets.values())


def total(parts: Iterable[Counts]) -> Counter[AttemptState]:
    """Return the sum of counts by state."""
    found: Counter[AttemptState] = Counter()
    for part in parts:
        found.update(part)
    return found


def dense_lanes(rows: Iterable[Row]) -> list[DenseLane]:
    """Return the lanes of the rows of `list_density`, in their order."""
    lanes: dict[str | None, DenseLane] = {}
    for row in rows:
        name = row["lane"]
        merged = row["merged"] if name is None else 0
        lane = lanes.setdefault(name, DenseLane(name or "", merged))
        state = _OF_STATUS[row["status"]]
        lane.buckets.setdefault(row["bucket"], Counter())[state] += row["count"]
    return list(lanes.values())


def draw_density(
    lanes: Sequence[DenseLane], pauses: Sequence[PauseBand], axis: Axis, now: datetime
) -> Element:
    """Return the SVG. Its name says in words what it shows.

    The sum of all lanes and that of the merged ones have scales of their own.
    """
    everything = DenseLane("all")
    for bucket in range(1, BUCKETS + 1):
        if parts := [lane.buckets[bucket] for lane in lanes if bucket in lane.buckets]:
            everything.buckets[bucket] = total(parts)
    most = max((_most(lane) for lane in lanes if not lane.merged), default=1)
    words = (
        f"{everything.counts.total():,} starts, at most {_most(everything):,} in one of {BUCKETS}"
        f" equal parts of the window, and {most:,} of one lane"
    )
    rows = [everything, *lanes]
    height = TOP + len(rows) * _ROW
    svg = element(
        "svg", class_="timeline", role="img", aria_label=words,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
    )  # fmt: skip
    add(svg, "title", words)
    _hatch(svg)
    draw_pauses(svg, pauses, axis, height)
    axis.draw(svg, height, now)
    for number, lane in enumerate(rows):
        top = TOP + number * _ROW
        lane_label(svg, lane_name(lane), top, _ROW)
        is_sum = lane is everything or lane.merged
        _stacks(svg, lane, top + _ROW, _most(lane) if is_sum else most)
    return svg


def _most(lane: DenseLane) -> int:
    return max(part.total() for part in lane.buckets.values())


def lane_name(lane: DenseLane) -> str:
    """Return the name of a lane for people."""
    return f"{lane.merged:,} others" if lane.merged else lane.name or "none"


def _stacks(svg: Element, lane: DenseLane, bottom: float, most: int) -> None:
    """Stack the states of each bucket; a cross above a bucket marks failures."""
    width = (RIGHT - LEFT) / BUCKETS
    paths: dict[AttemptState, list[str]] = {}
    crosses: list[str] = []
    for bucket, counts in sorted(lane.buckets.items()):
        x, y = LEFT + (bucket - 1) * width, bottom
        for state in _STACK:
            if count := counts.get(state):
                tall = max(count / most * _TALL, 1.0)
                y -= tall
                paths.setdefault(state, []).append(
                    f"M{x:.2f} {y:.2f}h{width - 0.8:.2f}v{tall:.2f}h-{width - 0.8:.2f}Z"
                )
        if counts.get(AttemptState.FAILED):
            crosses.append(f"M{x + width / 2 - 2:.2f} {bottom - _ROW + 1.5:.2f}l4 4m0-4l-4 4")
    for state, parts in paths.items():
        _area(svg, "".join(parts), state)
    if crosses:
        add(svg, "path", d="".join(crosses), class_=f"drawn state-{AttemptState.FAILED.value}")


def _hatch(svg: Element) -> None:
    """Define the hatches, which tell states apart without their colours."""
    defs = add(svg, "defs")
    for state, line in _HATCHES.items():
        pattern = add(
            defs, "pattern", id=f"dense-{state.value}", width=4, height=4,
            patternUnits="userSpaceOnUse",
        )  # fmt: skip
        add(pattern, "path", d=line, class_=f"drawn state-{state.value}")


def _area(svg: Element, path: str, state: AttemptState) -> None:
    name = f"state-{state.value}"
    if state in _HATCHES:
        add(svg, "path", d=path, fill=f"url(#dense-{state.value})", class_=name)
    else:
        add(svg, "path", d=path, class_=f"{'outlined' if state in _OUTLINED else 'filled'} {name}")


def dense_legend(counts: Counts) -> Element:
    """Return the filling and the word of each state that occurs, with its number."""
    listed = element("ul", class_="legend")
    for state in AttemptState:
        if counts.get(state):
            item = add(listed, "li")
            svg = add(item, "svg", viewBox="0 0 20 14", width=20, height=14, aria_hidden="true")
            is_failed = state is AttemptState.FAILED  # its cross is above the bucket
            _area(svg, "M1 7h8v6h-8Z" if is_failed else "M1 2h16v10h-16Z", state)
            if is_failed:
                add(svg, "path", d="M3 1l4 4m0-4l-4 4", class_=f"drawn state-{state.value}")
            add(item, "span", f"{state.value} {counts[state]:,}")
    return listed
