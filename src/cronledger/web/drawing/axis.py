"""The axis of time of a picture of a window."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from cronledger.web.drawing.svg import add

WIDTH, LEFT, RIGHT, TOP = 1120.0, 176.0, 1108.0, 24.0
_MOST_TICKS = 13
_STEPS = [
    timedelta(seconds=seconds)
    for seconds in (5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800)
]


@dataclass(frozen=True, slots=True)
class Axis:
    """The window [since, until) on the width of a picture, whose times are those of UTC."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        """The length of the window."""
        return self.until - self.since

    def x(self, at: datetime) -> float:
        """Return the place of an instant; of one outside of the window, the nearest end."""
        share = (at - self.since) / self.length
        return LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT)

    @property
    def step(self) -> timedelta:
        """The time between two ticks."""
        return next((step for step in _STEPS if self.length / step <= _MOST_TICKS), _STEPS[-1])

    def ticks(self) -> Iterator[datetime]:
        """Yield the instants of the ticks, which are whole steps of a day of UTC."""
        step, day = self.step, self.since.astimezone(UTC).replace(hour=0, minute=0, second=0)
        at = day.replace(microsecond=0)
        at += -((at - self.since) // step) * step
        while at < self.until:
            if at >= self.since:
                yield at
            at += step

    def draw(self, svg: Element, bottom: float, now: datetime) -> None:
        """Draw the ticks and their times, and the present instant if it is in the window."""
        lines = []
        form = "%H:%M:%S" if self.step < timedelta(minutes=1) else "%H:%M"
        for at in self.ticks():
            x = self.x(at)
            lines.append(f"M{x:.2f} {TOP - 6:g}V{bottom:g}")
            add(svg, "text", f"{at:{form}}", x=x, y=12, class_="tick")
        add(svg, "path", d="".join(lines), class_="grid", aria_hidden="true")
        if self.since <= now < self.until:
            add(svg, "path", d=f"M{self.x(now):.2f} {TOP - 6:g}V{bottom:g}", class_="now")
