"""Draw the load of the next 24 hours against the slots of the live runners."""

from datetime import UTC, timedelta
from itertools import groupby
from xml.etree.ElementTree import Element

from cronledger.rules.load import MINUTES, Load
from cronledger.web.drawing.svg import add, element, markup

_LEFT, _WIDTH, _TOP, _HEIGHT = 44.0, 1060.0, 12.0, 150.0
_BOTTOM = _TOP + _HEIGHT


def draw_load(load: Load, slots: int) -> str:
    """Return the SVG as HTML. Its name says in words what it shows."""
    most = max(*load.running, 1.0)
    top = max(most, float(slots)) if slots <= 4 * most else most
    words = (
        f"At most {most:.1f} executions at once in the next 24 hours;"
        f" live runners have {slots:,} slots"
    )
    svg = element(
        "svg", class_="load", role="img", aria_label=words, viewBox="0 0 1120 186",
    )  # fmt: skip
    add(svg, "title", words)
    _scale(svg, top)
    _hours(svg, load)
    add(svg, "path", d=_steps(load, top), class_="running")
    over = [minute for minute in range(MINUTES) if load.running[minute] > slots]
    if over:
        parts = []
        for _, run in groupby(enumerate(over), key=lambda one: one[1] - one[0]):
            minutes = [minute for _, minute in run]
            width = len(minutes) * _WIDTH / MINUTES
            parts.append(f"M{_x(minutes[0]):.2f} {_BOTTOM + 2:g}h{width:.2f}v4h-{width:.2f}Z")
        add(svg, "path", d="".join(parts), class_="over")
    if slots <= top:
        y = _BOTTOM - slots / top * _HEIGHT
        add(svg, "path", d=f"M{_LEFT:g} {y:.2f}H{_LEFT + _WIDTH:g}", class_="slots")
        label = add(svg, "text", f"{slots:,} slots", x=_LEFT + _WIDTH - 4, class_="slots-label")
        label.set("y", f"{y - 5 if y > _TOP + 9 else y + 14:.2f}")
    return markup(svg)


def _x(minute: int) -> float:
    return _LEFT + minute * _WIDTH / MINUTES


def _steps(load: Load, top: float) -> str:
    """Return the area below the number that runs, minute by minute."""
    parts = [f"M{_LEFT:g} {_BOTTOM:g}"]
    before = -1.0
    for minute, value in enumerate(load.running):
        y = round(_BOTTOM - value / top * _HEIGHT, 2)
        if y != before:
            parts.append(f"H{_x(minute):.2f}V{y:g}")
            before = y
    return "".join([*parts, f"H{_LEFT + _WIDTH:g}V{_BOTTOM:g}Z"])


def _scale(svg: Element, top: float) -> None:
    for value in (0.0, top / 2, top):
        y = _BOTTOM - value / top * _HEIGHT
        add(svg, "path", d=f"M{_LEFT:g} {y:.2f}H{_LEFT + _WIDTH:g}", class_="grid")
        add(svg, "text", f"{value:.3g}", x=_LEFT - 6, y=y + 4, class_="scale")


def _hours(svg: Element, load: Load) -> None:
    """Label the full hours of UTC."""
    first = (-load.start.astimezone(UTC).minute) % 60
    for minute in range(first, MINUTES, 60):
        at = load.start.astimezone(UTC) + timedelta(minutes=minute)
        add(svg, "path", d=f"M{_x(minute):.2f} {_BOTTOM:g}v5", class_="tick")
        if at.hour % 2 == 0:
            add(svg, "text", f"{at:%H}", x=_x(minute), y=_BOTTOM + 20, class_="hour")
