"""Draw the durations of a scope by hour: median, 95th percentile, and failures as points."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from cronledger.ledger.reports import Row
from cronledger.web.drawing.svg import add, element, markup
from cronledger.web.formats import span

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000.0, 190.0, 70.0, 990.0, 12.0, 160.0
_HOUR = timedelta(hours=1)
_WORDS = {"p50": "median", "p95": "95th percentile", "failed": "failures"}


def draw_durations(rows: Sequence[Row], since: datetime, until: datetime) -> str:
    """Return the SVG as HTML. `rows`: those of `list_duration_hours`, at least one."""
    most = max((row["p95"] or 0 for row in rows), default=0) or 1
    failures = sum(row["failed"] for row in rows)
    words = (
        f"Durations from {since.astimezone(UTC):%Y-%m-%d} to {until.astimezone(UTC):%Y-%m-%d}:"
        f" 95th percentile of an hour at most {span(most / 1000)}, {failures:,} failed"
    )
    svg = element(
        "svg", class_="durations", role="img", aria_label=words,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
    )  # fmt: skip
    add(svg, "title", words)

    def x(at: datetime) -> float:
        return LEFT + (at - since) / (until - since) * (RIGHT - LEFT)

    def y(milliseconds: float) -> float:
        return BOTTOM - min(milliseconds / most, 1) * (BOTTOM - TOP)

    _draw_grid(svg, since, until, most)
    for name in ("p95", "p50"):
        path, last = [], None
        for row in rows:
            if row[name] is not None:
                step = "L" if last == row["hour"] - _HOUR else "M"
                # A line of length 0 with round ends shows an hour without neighbours.
                path.append(f"{step}{x(row['hour']):.1f} {y(row[name]):.1f}h0")
                last = row["hour"]
        add(svg, "path", d="".join(path), class_=f"curve {name}")
    for row in rows:
        if row["failed"]:
            at = f"{row['hour'].astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            left, top = x(row["hour"]), y(row["p95"] or 0)
            cross = add(
                svg, "path", d=f"M{left - 4:.1f} {top - 4:.1f}l8 8m0-8l-8 8", class_="failed"
            )
            add(cross, "title", f"{at}: {row['failed']:,} failed")
    return markup(svg) + _legend()


def _draw_grid(svg: Element, since: datetime, until: datetime, most: float) -> None:
    """Draw midnights in UTC, a date at about ten of them, and the highest and half the duration."""
    midnight = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = (until - since).days + 1
    step = max(days // 10, 1)
    for day in range(1, days + 1):
        at = midnight + timedelta(days=day)
        if at < until and day % step == 0:
            x = LEFT + (at - since) / (until - since) * (RIGHT - LEFT)
            add(svg, "path", d=f"M{x:.1f} {TOP:g}V{BOTTOM:g}", class_="grid", aria_hidden="true")
            add(svg, "text", f"{at:%b} {at.day}", x=x, y=BOTTOM + 18, class_="tick")
    for share in (0.0, 0.5, 1.0):
        y = BOTTOM - share * (BOTTOM - TOP)
        add(svg, "path", d=f"M{LEFT:g} {y:.1f}H{RIGHT:g}", class_="grid", aria_hidden="true")
        add(svg, "text", span(most * share / 1000), x=LEFT - 8, y=y + 4, class_="measure")


def _legend() -> str:
    listed = element("ul", class_="legend")
    for name, word in _WORDS.items():
        item = add(listed, "li")
        svg = add(item, "svg", viewBox="0 0 20 14", width=20, height=14, aria_hidden="true",
                  class_="durations")  # fmt: skip
        if name == "failed":
            add(svg, "path", d="M6 3l8 8m0-8l-8 8", class_="failed")
        else:
            add(svg, "path", d="M1 7h18", class_=f"curve {name}")
        add(item, "span", word)
    return markup(listed)
