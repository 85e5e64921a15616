"""Draw the executions at once of the coming time against slots, what waits, and the starts."""

from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from itertools import groupby
from typing import TypeVar
from xml.etree.ElementTree import Element

from cronledger.rules.forecast import Forecast
from cronledger.web.drawing.svg import add, element, markup

_LEFT, _WIDTH = 44.0, 1060.0
_TOP, _BOTTOM = 12.0, 162.0
_STARTS_TOP, _STARTS_BOTTOM = 196.0, 246.0
_MOST_COLUMNS = 1440
_HOURS_OF_ONE_DAY = 26

Number = TypeVar("Number", int, float)


def draw_forecast(found: Forecast, slots: int) -> str:
    """Return the SVG as HTML. Its name says in words what it shows.

    A column is a minute, or some minutes with the most of one of them. Above are the executions at
    once, and below the starts.
    """
    step = -(-len(found.running) // _MOST_COLUMNS)
    running = _columns(found.running, step)
    starts = _columns(found.starts, step)
    waits = [count > 0 for count in _columns(found.waiting, step)]
    most = max(*running, 1.0)
    top = max(most, float(slots)) if slots <= 4 * most else most
    minutes = sum(count > 0 for count in found.waiting)
    words = (
        f"At most {max(running):.1f} executions at once in the next "
        f"{-(-len(found.running) // 60):,} hours, and {max(starts):,} starts in one minute;"
        f" live runners have {slots:,} slots; executions wait in {minutes:,} minutes"
    )
    svg = element("svg", class_="forecast", role="img", aria_label=words, viewBox="0 0 1120 270")
    add(svg, "title", words)
    _scale(svg, _TOP, _BOTTOM, (0.0, top / 2, top))
    add(svg, "path", d=_steps(running, top, _TOP, _BOTTOM), class_="running")
    if any(waits):
        add(svg, "path", d="".join(_marks(waits)), class_="over")
    if slots <= top:
        y = _y(slots, top, _TOP, _BOTTOM)
        add(svg, "path", d=f"M{_LEFT:g} {y:.2f}H{_LEFT + _WIDTH:g}", class_="slots")
        label = add(svg, "text", f"{slots:,} slots", x=_LEFT + _WIDTH - 4, class_="slots-label")
        label.set("y", f"{y - 5 if y > _TOP + 9 else y + 14:.2f}")
    highest = max(*starts, 1)
    _scale(svg, _STARTS_TOP, _STARTS_BOTTOM, (0, highest))
    add(svg, "text", "starts per minute", x=_LEFT, y=_STARTS_TOP - 6, class_="label")
    bars = _steps(starts, highest, _STARTS_TOP, _STARTS_BOTTOM)
    add(svg, "path", d=bars, class_="starts")
    _ticks(svg, found)
    return markup(svg)


def _columns(values: Sequence[Number], step: int) -> list[Number]:
    return [max(values[first : first + step]) for first in range(0, len(values), step)]


def _y(value: float, top: float, high: float, low: float) -> float:
    return low - value / top * (low - high)


def _steps(values: Sequence[float], top: float, high: float, low: float) -> str:
    """Return the area below the values."""
    parts = [f"M{_LEFT:g} {low:g}"]
    before, width = low, _WIDTH / len(values)
    for column, value in enumerate(values):
        y = round(_y(value, top, high, low), 2)
        if y != before:
            parts.append(f"H{_LEFT + column * width:.2f}V{y:g}")
            before = y
    return "".join([*parts, f"H{_LEFT + _WIDTH:g}V{low:g}Z"])


def _marks(waits: Sequence[bool]) -> Iterator[str]:
    """Yield a mark for each run of columns in which executions wait."""
    width = _WIDTH / len(waits)
    for is_waiting, run in groupby(range(len(waits)), key=lambda column: waits[column]):
        columns = list(run)
        if is_waiting:
            length = len(columns) * width
            yield f"M{_LEFT + columns[0] * width:.2f} {_BOTTOM + 2:g}h{length:.2f}v4h-{length:.2f}Z"


def _scale(svg: Element, high: float, low: float, values: Sequence[float]) -> None:
    for value in values:
        y = _y(value, values[-1], high, low)
        add(svg, "path", d=f"M{_LEFT:g} {y:.2f}H{_LEFT + _WIDTH:g}", class_="grid")
        add(svg, "text", f"{value:.3g}", x=_LEFT - 6, y=y + 4, class_="scale")


def _ticks(svg: Element, found: Forecast) -> None:
    """Label the days of UTC, and within one day the even hours."""
    start, minutes = found.start.astimezone(UTC), len(found.running)
    hours = -(-minutes // 60)
    for minute in range((-start.minute) % 60, minutes, 60):
        at = start + timedelta(minutes=minute)
        is_short = hours <= _HOURS_OF_ONE_DAY
        if at.hour and not (is_short and at.hour % 2 == 0):
            continue
        x = _LEFT + minute * _WIDTH / minutes
        for low in (_BOTTOM, _STARTS_BOTTOM):
            add(svg, "path", d=f"M{x:.2f} {low:g}v5", class_="tick")
        text = f"{at:%H}" if is_short else f"{at:%a} {at.day}"
        add(svg, "text", text, x=x, y=_STARTS_BOTTOM + 20, class_="hour")
