"""Draw the executions at once of the coming hours against slots, and the hours with waits."""

from datetime import UTC, timedelta
from xml.etree.ElementTree import Element

from cronledger.rules.forecast import Forecast
from cronledger.web.drawing.svg import add, element, markup

_LEFT, _WIDTH, _TOP, _HEIGHT = 44.0, 1060.0, 12.0, 150.0
_BOTTOM = _TOP + _HEIGHT
_HOUR = 60


def draw_forecast(found: Forecast, slots: int) -> str:
    """Return the SVG as HTML. Its name says in words what it shows.

    Each column is an hour: the greatest average number of executions in one of its minutes.
    """
    size = len(found.running)
    hours = [max(found.running[first : first + _HOUR]) for first in range(0, size, _HOUR)]
    waits = [any(found.waiting[first : first + _HOUR]) for first in range(0, size, _HOUR)]
    most = max(*hours, 1.0)
    top = max(most, float(slots)) if slots <= 4 * most else most
    words = (
        f"At most {max(hours):.1f} executions at once in the next {len(hours):,} hours;"
        f" live runners have {slots:,} slots; executions wait in {sum(waits):,} hours"
    )
    svg = element("svg", class_="load", role="img", aria_label=words, viewBox="0 0 1120 186")
    add(svg, "title", words)
    for value in (0.0, top / 2, top):
        y = _y(value, top)
        add(svg, "path", d=f"M{_LEFT:g} {y:.2f}H{_LEFT + _WIDTH:g}", class_="grid")
        add(svg, "text", f"{value:.3g}", x=_LEFT - 6, y=y + 4, class_="scale")
    _ticks(svg, found, len(hours))
    width = _WIDTH / len(hours)
    columns = "".join(
        f"M{_LEFT + n * width:.2f} {_BOTTOM:g}V{_y(value, top):.2f}h{width:.2f}V{_BOTTOM:g}Z"
        for n, value in enumerate(hours)
        if value
    )
    add(svg, "path", d=columns, class_="running")
    waiting = "".join(
        f"M{_LEFT + n * width:.2f} {_BOTTOM + 2:g}h{width:.2f}v4h-{width:.2f}Z"
        for n, is_waiting in enumerate(waits)
        if is_waiting
    )
    if waiting:
        add(svg, "path", d=waiting, class_="over")
    if slots <= top:
        y = _y(slots, top)
        add(svg, "path", d=f"M{_LEFT:g} {y:.2f}H{_LEFT + _WIDTH:g}", class_="slots")
        label = add(svg, "text", f"{slots:,} slots", x=_LEFT + _WIDTH - 4, class_="slots-label")
        label.set("y", f"{y - 5 if y > _TOP + 9 else y + 14:.2f}")
    return markup(svg)


def _y(value: float, top: float) -> float:
    return _BOTTOM - value / top * _HEIGHT


def _ticks(svg: Element, found: Forecast, hours: int) -> None:
    """Label the days of UTC, and within one day the even hours."""
    start = found.start.astimezone(UTC)
    for minute in range((-start.minute) % 60, len(found.running), 60):
        at = start + timedelta(minutes=minute)
        is_shown = at.hour == 0 or (hours <= 26 and at.hour % 2 == 0)
        if not is_shown:
            continue
        x = _LEFT + minute * _WIDTH / (hours * 60)
        add(svg, "path", d=f"M{x:.2f} {_BOTTOM:g}v5", class_="tick")
        text = f"{at:%H}" if hours <= 26 else f"{at:%a} {at.day}"
        add(svg, "text", text, x=x, y=_BOTTOM + 20, class_="hour")
