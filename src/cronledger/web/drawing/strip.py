"""Draw the strip of a job: 24 hours on one line, for lists of jobs, and as text."""

from datetime import UTC, datetime
from itertools import groupby
from xml.etree.ElementTree import Element

from cronledger.explain.day.states import BY_URGENCY, SKIPPED, Counts, State
from cronledger.explain.day.strips import CELLS, WIDTH, Strip
from cronledger.web.drawing.svg import add, element, markup

_CELL, _HEIGHT = 2, 16
_PLACES = {state: place for place, state in enumerate(State)}
_CALM = (State.ON_TIME, State.RAN)
# Beside the colour, the height tells a cell that went wrong from one that ran or was skipped.
_FULL, _RAN, _LOW = 16, 8, 4


def draw_strip(strip: Strip) -> str:
    """Return the SVG as HTML. Its name says in words what it shows."""
    words = strip_words(strip)
    svg = element(
        "svg", class_="strip", role="img", aria_label=words,
        viewBox=f"0 0 {CELLS * _CELL} {_HEIGHT}",
    )  # fmt: skip
    add(svg, "title", words)
    add(svg, "path", d=f"M0 {_HEIGHT - 0.5}H{CELLS * _CELL}", class_="base")
    paths: dict[str, list[str]] = {}
    for index, cell in enumerate(strip.cells):
        if not strip.is_known(index):
            paths.setdefault("unread", []).append(_bar(index, _RAN))
        elif cell:
            state = next(one for one in BY_URGENCY if one in cell)
            paths.setdefault(f"state-{state.value}", []).append(_bar(index, _tall(state)))
    for name, parts in paths.items():
        _path(svg, name, parts)
    return markup(svg)


def strip_words(strip: Strip) -> str:
    """Return the executions of the strip by state, and the reasons of its skips."""
    part = " of those that were read" if strip.read_from is not None else ""
    return f"24 hours: {_words(strip.totals()) or 'nothing'}{part}"


def _words(counts: Counts) -> str:
    states = sorted(counts, key=_PLACES.__getitem__)
    terms = [f"{counts[one]:,} {one.word}" for one in states if counts[one]]
    reasons = [one.value for one in states if one in SKIPPED]
    if reasons:
        terms.append(f"skipped: {', '.join(reasons)}")
    return ", ".join(terms)


def list_strip(strip: Strip) -> str:
    """Return what the strip shows as a list of HTML, for readers who do not see it.

    It has an item for each period of equal states. Cells in which nothing happened end no period.
    """
    found = element("ul", class_="unseen")
    shown = [cell for cell in range(CELLS) if strip.cells[cell] or not strip.is_known(cell)]
    for states, cells in groupby(shown, lambda cell: _states(strip, cell)):
        places = list(cells)
        counts = {state: sum(strip.cells[cell][state] for cell in places) for state in states}
        first, end = (strip.start + cell * WIDTH for cell in (places[0], places[-1] + 1))
        add(found, "li", f"{_time(first)} to {_time(end)} UTC: {_words(counts) or 'not read'}")
    return markup(found) if len(found) else ""


def _states(strip: Strip, cell: int) -> frozenset[State]:
    """Return the states of a cell; none: not everything in it was read."""
    return frozenset(strip.cells[cell]) if strip.is_known(cell) else frozenset()


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _tall(state: State) -> int:
    if state in _CALM:
        return _RAN
    return _LOW if state in SKIPPED and state is not State.MISSED else _FULL


def _bar(cell: int, height: int) -> str:
    return f"M{cell * _CELL} {_HEIGHT}v-{height}h{_CELL}v{height}Z"


def _path(svg: Element, name: str, parts: list[str]) -> None:
    add(svg, "path", d="".join(parts), class_=name)
