"""The table beside the picture of an accounted day, which has the same content."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from xml.etree.ElementTree import Element

from cronledger.explain.day.account import AccountedDay
from cronledger.explain.day.states import Counts, State, equation
from cronledger.rules.instants import iso
from cronledger.web.drawing.day_words import Links, beside_text, clock, detail, edit_text
from cronledger.web.drawing.day_words import address as address_of
from cronledger.web.drawing.svg import add, element

HOUR = timedelta(hours=1)


def hourly(day: AccountedDay) -> Iterator[tuple[datetime, datetime, Counts]]:
    """Yield the plan_times by state of each hour of time that has some, from the day's start."""
    hours: dict[int, Counter[State]] = {}
    for minute, counts in day.minutes.items():
        hours.setdefault(minute // 60, Counter()).update(counts)
    for hour in sorted(hours):
        start = day.local.start + hour * HOUR
        if start in day.local:
            yield start, min(start + HOUR, day.local.end), hours[hour]


def table(day: AccountedDay, links: Links) -> Element:
    """Return a table with the content of the picture, in the order of time."""
    root = element("table")
    add(root, "caption", f"{day.key.job_name} on {day.local.day}, in {day.local.timezone}")
    head = add(add(root, "thead"), "tr")
    for name in ("Time", "UTC", "What", "Detail"):
        add(head, "th", name, scope="col")
    body = add(root, "tbody")
    for _, row in sorted(_rows(day, links), key=lambda one: one[0]):
        body.append(row)
    return root


def _rows(day: AccountedDay, links: Links) -> Iterator[tuple[datetime, Element]]:
    for gap in day.local.gaps:
        at = next((p.start for p in day.local.pieces if p.local_start == gap.until), day.local.end)
        text = f"{gap.first:%H:%M} to {gap.until:%H:%M} does not occur"
        yield at, _row(day, at, "the clocks go forward", text, None)
    for piece in day.local.pieces:
        if piece.second:
            text = f"{piece.local_start:%H:%M} occurs for the second time"
            yield piece.start, _row(day, piece.start, "the clocks go back", text, None)
    for edit in day.edits:
        address = links.revision(edit.revision)
        yield edit.at, _row(day, edit.at, edit.kind, edit_text(edit), address)
    for missing in day.runner_gaps:
        text = f"until {clock(day, missing.end)}"
        yield missing.start, _row(day, missing.start, "no runner checked in", text, None)
    if day.marks is None:
        for start, end, counts in hourly(day):
            row = _row(day, start, f"until {clock(day, end)}", equation(counts), None)
            yield start, row
    for mark in (*(day.marks or ()), *(day.beside_marks or ())):
        address = address_of(mark, links)
        row = _row(day, mark.plan_time, mark.state.word, detail(day, mark), address)
        yield mark.plan_time, row
    if day.beside_marks is None:
        at = day.local.start
        yield at, _row(day, at, "beside the schedule", beside_text(day), None)


def _row(day: AccountedDay, at: datetime, what: str, text: str, address: str | None) -> Element:
    row = element("tr")
    again = ", second time" if day.local.is_second(at) else ""
    add(row, "td", clock(day, at) + again)
    add(row, "td", iso(at, "seconds"))
    cell = add(row, "td")
    if address is None:
        cell.text = what
    else:
        add(cell, "a", what, href=address)
    add(row, "td", text)
    return row
