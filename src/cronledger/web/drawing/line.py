"""The line of an execution: due, claimed, ended, with its attempts."""

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from cronledger.ledger.reports import Row
from cronledger.web.formats import span

WIDTH, HEIGHT, MARGIN, MIDDLE = 1000, 64, 12, 30
LEAST = 4.0
"""Width of the shortest bar, so that a fast attempt can be seen."""


def line(due_at: datetime, attempts: Sequence[Row], until: datetime) -> Markup:
    """Return the line from `due_at` to `until`, the end or the present instant.

    An attempt is a bar; one that ended with an error is crossed, and one that runs is open at its
    end. Gaps between bars are waits.
    """
    first = min([due_at, *(row["started_at"] for row in attempts)])
    last = max([until, due_at, *(_end(row, until) for row in attempts)])
    length = (last - first).total_seconds() or 1.0

    def x(at: datetime) -> float:
        share: float = (at - first).total_seconds() / length
        return MARGIN + share * (WIDTH - 2 * MARGIN)

    parts = [
        Markup('<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
            MARGIN, MIDDLE, WIDTH - MARGIN, MIDDLE
        ),
        Markup('<circle class="due" cx="{:.1f}" cy="{}" r="5"><title>due</title></circle>').format(
            x(due_at), MIDDLE
        ),
    ]
    for row in attempts:
        parts += _attempt(row, x(row["started_at"]), x(_end(row, until)))
    texts = [
        Markup('<text x="{}" y="{}">due</text>').format(MARGIN, HEIGHT - 6),
        Markup('<text x="{}" y="{}" text-anchor="end">{} later</text>').format(
            WIDTH - MARGIN, HEIGHT - 6, span(last - due_at)
        ),
    ]
    return Markup(
        '<svg class="line" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(
        WIDTH, HEIGHT, f"{len(attempts)} attempts within {span(last - due_at)}",
        Markup("").join(parts + texts),
    )  # fmt: skip


def _end(row: Row, until: datetime) -> datetime:
    """Return how long an attempt is known to have run. A stolen one has no end of its own."""
    end: datetime | None = row["ended_at"]
    if end is not None:
        return end
    last_seen: datetime = until if row["is_last"] else row["last_seen"] or row["started_at"]
    return last_seen


def _attempt(row: Row, left: float, right: float) -> list[Markup]:
    runs = row["ended_at"] is None and row["is_last"]
    kind = "bad" if row["error_code"] else "run" if runs else "ok"
    width = max(right - left, LEAST)
    left = min(left, WIDTH - MARGIN - width)
    title = f"attempt {row['attempt']} on {row['runner_id']}: {row['error_code'] or kind}"
    bar = Markup(
        '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="14" rx="2"><title>{}</title>'
        "</rect>"
    ).format(kind, left, MIDDLE - 7, width, title)
    if kind != "bad":
        return [bar]
    middle = left + width / 2
    cross = Markup('<path class="cross" d="M{0:.1f} {2}l6 6M{1:.1f} {2}l-6 6"/>').format(
        middle - 3, middle + 3, MIDDLE - 19
    )
    return [bar, cross]
