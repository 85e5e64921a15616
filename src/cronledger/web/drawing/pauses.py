"""Draw the pauses of a window behind what ran in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from xml.etree.ElementTree import Element

from cronledger.web.drawing.axis import TOP, Axis
from cronledger.web.drawing.svg import add

_LEAST = 2.0


@dataclass(frozen=True, slots=True)
class PauseBand:
    """A pause of some jobs. `end` None: its end is open."""

    start: datetime
    end: datetime | None
    words: str


def draw_pauses(svg: Element, pauses: Sequence[PauseBand], axis: Axis, bottom: float) -> None:
    """Draw each pause as a band from the axis to the bottom, with a title that identifies it."""
    for one in pauses:
        left = axis.x(one.start)
        width = max(axis.x(one.end or axis.until) - left, _LEAST)
        band = add(
            svg, "rect", x=left, y=TOP - 6, width=width, height=bottom - TOP + 6, class_="pause"
        )
        add(band, "title", one.words)


def pause_legend(listed: Element, pauses: Sequence[PauseBand]) -> Element:
    """Add the pauses to a legend, each with its words, and return the legend."""
    for one in pauses:
        item = add(listed, "li")
        svg = add(item, "svg", viewBox="0 0 20 14", width=20, height=14, aria_hidden="true")
        add(svg, "rect", x=1, y=1, width=18, height=12, class_="pause")
        add(item, "span", one.words)
    return listed
