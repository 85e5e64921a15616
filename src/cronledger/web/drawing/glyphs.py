"""The shape of each state. A state is always shown by shape, colour and word."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from cronledger.explain.day.states import State
from cronledger.web.drawing.svg import add, element

SIZE = 12
"""Width and height of a glyph, whose centre is its origin."""

_DISC = "M0-4.2A4.2 4.2 0 1 1 0 4.2A4.2 4.2 0 1 1 0-4.2Z"
_BARS = "M-3.6-4.2h2.6v8.4h-2.6ZM1-4.2h2.6v8.4h-2.6Z"

# The paths of each state: those that are filled, and those that are lines.
_PATHS: dict[State, tuple[str, str]] = {
    State.ON_TIME: (_DISC, ""),
    State.RAN: (_DISC, ""),
    State.LATE: ("M0-4.2A4.2 4.2 0 0 1 0 4.2Z", _DISC),
    State.FAILED: ("", "M-3.8-3.8L3.8 3.8M3.8-3.8L-3.8 3.8"),
    State.RUNNING: ("M-1.6-2.6L2.8 0L-1.6 2.6Z", _DISC),
    State.CANCELLED: ("", _DISC + "M-3 3L3-3"),
    State.WAITING: ("M-3.6-4.6h7.2L-3.6 4.6h7.2Z", ""),
    State.OVERLAP: ("M-1-1h5v5h-5Z", "M-4.4-4.4h5.4v5.4h-5.4Z"),
    State.SUPERSEDED: ("", "M-3.6-4L0 0L-3.6 4M.6-4L4.2 0L.6 4"),
    State.MISSED: ("", "M-4.4-3.6h8.8L0 4.2Z"),
    State.PAUSED: (_BARS, ""),
    State.OPERATOR: ("M-4.2-4.2L-.4 0L-4.2 4.2ZM.8-4.2h2.6v8.4h-2.6Z", ""),
    State.TO_SKIP: ("", "M-3.8-3.4L-.4 0L-3.8 3.4ZM2.4-3.6v7.2"),
    State.CALENDAR: ("M-4.2-4h8.4v2.8h-8.4Z", "M-3.6-3.4h7.2v7h-7.2Z"),
    State.UPSTREAM: ("M-4.4 1.2h2.8v2.8h-2.8Z", "M-3-3.6v4.8M-3-3.6h6.4M.8-6L3.4-3.6L.8-1.2"),
    State.HOST_ABSENT: ("", "M-4.6-3.4h9.2v5.4h-9.2ZM-2.4 4.4h4.8M-4-5L4 4"),
    State.NOT_REPORTED: ("M-1 2.6h2v2h-2Z", "M-3-2.6a3 3 0 1 1 3 3v1"),
    State.RETIRED: ("M-4.6-1.3h9.2v2.6h-9.2Z", ""),
    State.FUTURE: ("", _DISC),
    State.HELD: ("", _BARS),
    State.OVERDUE: ("M0-4.6L4.8 3.8h-9.6Z", ""),
    State.UNEXPLAINED: ("M0-6L6 0L0 6L-6 0Z", ""),
    State.EXTRA: ("M-1.3-4.6h2.6v3.3h3.3v2.6h-3.3v3.3h-2.6v-3.3h-3.3v-2.6h3.3Z", ""),
}


def define(svg: Element, states: Iterable[State], prefix: str) -> None:
    """Define the glyphs of these states in an SVG. `prefix` makes their ids unique in the page."""
    definitions = add(svg, "defs")
    for state in states:
        symbol = add(definitions, "g", id=f"{prefix}-{state.value}")
        filled, drawn = _PATHS[state]
        if filled:
            add(symbol, "path", d=filled, class_="filled")
        if drawn:
            add(symbol, "path", d=drawn, class_="drawn")


def place(parent: Element, state: State, prefix: str, x: float, y: float) -> Element:
    """Place the glyph of a state around a point."""
    return add(
        parent, "use", href=f"#{prefix}-{state.value}", x=x, y=y, class_=f"state-{state.value}"
    )


def swatch(state: State, prefix: str) -> Element:
    """Return a small SVG with the glyph of a state that the page has defined, for a legend."""
    svg = element(
        "svg", class_="glyph", viewBox="-7 -7 14 14", width=14, height=14, aria_hidden="true"
    )
    place(svg, state, prefix, 0, 0)
    return svg
