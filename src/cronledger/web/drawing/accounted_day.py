"""Draw the accounted day: the picture, its legend, its sum, and a table with the same content."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from xml.etree.ElementTree import Element

from cronledger.explain.day.account import AccountedDay, Mark
from cronledger.explain.day.states import BY_URGENCY, State, equation
from cronledger.rules.instants import iso
from cronledger.web.drawing import glyphs
from cronledger.web.drawing.day_table import HOUR, hourly, table
from cronledger.web.drawing.day_words import (
    Links,
    address,
    beside_text,
    clock,
    detail,
    edit_text,
)
from cronledger.web.drawing.svg import add, element, markup

_WIDTH, _LEFT, _RIGHT = 1120.0, 16.0, 1104.0
_AXIS, _PLAN, _PLAN_HEIGHT = 22.0, 46.0, 40.0
_BESIDE, _BESIDE_HEIGHT, _FLAGS = 74.0, 24.0, 14.0
_CROWDED = 9.0  # between two marks; closer ones that are as planned are drawn as thin lines
_CALM = (State.ON_TIME, State.RAN, State.FUTURE)
_MINUTE = timedelta(minutes=1)


def draw(day: AccountedDay, links: Links) -> str:
    """Return the figure as HTML.

    The ids in it begin with `day`, so a page has one accounted day at most.
    """
    figure = element("figure", class_="accounted-day")
    scroller = add(figure, "div", class_="scroll", tabindex=0, role="group", aria_label="Picture")
    scroller.append(_Picture(day, links).svg())
    caption = add(figure, "figcaption")
    caption.append(_sum(day))
    caption.append(_legend(day))
    details = add(figure, "details", class_="as-table")
    add(details, "summary", "The same as a table")
    details.append(table(day, links))
    return markup(figure)


class _Picture:
    """The SVG of one day."""

    def __init__(self, day: AccountedDay, links: Links) -> None:
        self._day = day
        self._links = links
        self._scale = (_RIGHT - _LEFT) / day.local.hours
        self._has_beside = any(day.beside.values())
        self._bottom = _BESIDE + _BESIDE_HEIGHT if self._has_beside else _BESIDE
        self._height = self._bottom + (_FLAGS if day.edits else 0) + 2

    def svg(self) -> Element:
        day, local = self._day, self._day.local
        root = element(
            "svg", xmlns="http://www.w3.org/2000/svg", class_="day", role="group",
            viewBox=f"0 0 {_WIDTH:g} {self._height:g}", aria_labelledby="day-title day-text",
        )  # fmt: skip
        add(root, "title", f"{day.key.job_name} on {local.day} in {local.timezone}", id="day-title")
        add(root, "desc", equation(day.counts), id="day-text")
        states = [state for state in State if day.counts.get(state) or self._beside_has(state)]
        glyphs.define(root, states, "day-glyph")
        self._hatch(root)
        self._bands(root)
        self._hours(root)
        if day.marks is None:
            self._density(root)
        else:
            self._marks(root, day.marks, _PLAN, _PLAN_HEIGHT)
        if self._has_beside:
            self._beside(root)
        self._edits(root)
        if local.start <= day.now < local.end and day.now in local:
            x = self._x(day.now)
            add(root, "path", d=f"M{x:.2f} {_AXIS:g}V{self._bottom:g}", class_="now")
        return root

    def _x(self, instant: datetime) -> float:
        return _LEFT + self._day.local.x(instant) * self._scale

    def _beside_has(self, state: State) -> bool:
        return any(counts.get(state) for counts in self._day.beside.values())

    # --- the axis -----------------------------------------------------------------------------

    def _hatch(self, root: Element) -> None:
        pattern = add(
            add(root, "defs"), "pattern", id="day-hatch", width=6, height=6,
            patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
        )  # fmt: skip
        add(pattern, "rect", width=6, height=6, class_="hatch-ground")
        add(pattern, "path", d="M0 0V6", class_="hatch")

    def _bands(self, root: Element) -> None:
        """Draw what lies behind the marks: gap, fold, the time before the ledger, runner gaps."""
        day, local = self._day, self._day.local
        for gap in local.gaps:
            text = f"The clocks go forward: {gap.first:%H:%M} to {gap.until:%H:%M} does not occur"
            band = self._band(root, "gap", (gap.x, gap.x + gap.width), text)
            band.set("fill", "url(#day-hatch)")
            middle = _LEFT + (gap.x + gap.width / 2) * self._scale - 6  # beside the next hour
            label = add(root, "text", f"no {gap.first:%H}", x=middle, y=14, class_="hour none")
            add(label, "title", text)
        for before, piece in pairwise(local.pieces):
            if piece.second:
                again = min(before.local_end - piece.local_start, piece.end - piece.start)
                shown = f"{piece.local_start:%H:%M} to {piece.local_start + again:%H:%M}"
                text = f"The clocks go back: {shown} occurs for the second time"
                self._band(root, "fold", (piece.x, piece.x + again / HOUR), text)
        if day.complete_after is not None:
            why = "this scope began" if day.began else "older rows were pruned"
            text = f"Not accounted for: {why} at {iso(day.complete_after, 'seconds')}"
            self._band(root, "before", (0, self._place(day.complete_after)), text)
        for missing in day.runner_gaps:
            clocks = f"{self._clock(missing.start)} until {self._clock(missing.end)}"
            places = self._place(missing.start), self._place(missing.end)
            self._band(root, "runners", places, f"No runner checked in: {clocks}")

    def _place(self, instant: datetime) -> float:
        """Return the place of an instant on the axis; of a later one, its right end."""
        local = self._day.local
        return local.x(instant) if instant in local else local.hours

    def _band(self, root: Element, kind: str, hours: tuple[float, float], text: str) -> Element:
        """Draw a band between two places of the axis, behind the marks."""
        start, end = hours
        thin = kind == "runners"
        band = add(
            root, "rect", x=_LEFT + start * self._scale, width=(end - start) * self._scale,
            y=_PLAN + _PLAN_HEIGHT / 2 + 1 if thin else _AXIS,
            height=5 if thin else self._bottom - _AXIS, class_=f"band-{kind}",
        )  # fmt: skip
        add(band, "title", text)
        return band

    def _hours(self, root: Element) -> None:
        lines = []
        for mark in self._day.local.hour_marks():
            x = _LEFT + mark.x * self._scale
            lines.append(f"M{x:.2f} {_AXIS:g}V{self._bottom:g}")
            text = f"{mark.label[:2]} again" if mark.second else mark.label[:2]
            kind = "hour again" if mark.second else "hour"
            label = add(root, "text", text, x=x, y=14, class_=kind)
            if mark.second:
                add(label, "title", f"{mark.label}, for the second time")
        grid = add(root, "path", d="".join(lines), class_="grid")
        add(root, "path", d=f"M{_LEFT:g} {_AXIS:g}H{_RIGHT:g}", class_="axis")
        grid.set("aria-hidden", "true")

    # --- plan_times ---------------------------------------------------------------------------

    def _marks(self, root: Element, marks: Sequence[Mark], y: float, height: float) -> None:
        places = [self._x(mark.plan_time) for mark in marks]
        closest = min((b - a for a, b in pairwise(places)), default=_WIDTH)
        for mark, x in zip(marks, places, strict=True):
            group = self._linked(root, mark)
            if closest < _CROWDED and mark.state in _CALM:
                line = f"M{x:.2f} {y - height / 4:g}V{y + height / 4:g}"
                add(group, "path", d=line, class_=f"thin state-{mark.state.value}")
                width = max(3.0, closest)
                add(
                    group, "rect", x=x - width / 2, y=y - height / 2, width=width, height=height,
                    class_="reach",
                )  # fmt: skip
            else:
                glyphs.place(group, mark.state, "day-glyph", x, y)
            add(group, "title", ". ".join(self._sentences(mark)))

    def _linked(self, root: Element, mark: Mark) -> Element:
        # The table has the same links for the keyboard.
        return add(root, "a", href=address(mark, self._links), tabindex=-1)

    def _sentences(self, mark: Mark) -> Iterator[str]:
        yield f"{self._clock(mark.plan_time)} ({iso(mark.plan_time, 'seconds')}): {mark.state.word}"
        if text := detail(self._day, mark):
            yield text

    def _density(self, root: Element) -> None:
        minutes = self._day.minutes
        most = max((sum(counts.values()) for counts in minutes.values()), default=1)
        paths: dict[State, list[str]] = {}
        worst: dict[State, list[str]] = {}
        for minute in sorted(minutes):
            at = self._day.local.start + minute * _MINUTE
            if at not in self._day.local:
                continue
            x, width = self._x(at), self._scale / 60
            base = _PLAN + _PLAN_HEIGHT / 2
            for state in reversed(BY_URGENCY):
                if count := minutes[minute].get(state):
                    height = count / most * (_PLAN_HEIGHT - 10)
                    base -= height
                    paths.setdefault(state, []).append(
                        f"M{x:.2f} {base:.2f}h{width:.2f}v{height:.2f}h-{width:.2f}Z"
                    )
            state = next(one for one in BY_URGENCY if minutes[minute].get(one))
            if state not in _CALM:
                top, wide = _PLAN - _PLAN_HEIGHT / 2, width + 1
                worst.setdefault(state, []).append(
                    f"M{x - 0.5:.2f} {top:g}h{wide:.2f}v6h-{wide:.2f}Z"
                )
        for state, parts in (*paths.items(), *worst.items()):
            add(root, "path", d="".join(parts), class_=f"density state-{state.value}")
        for start, end, counts in hourly(self._day):
            rect = add(
                root, "rect", x=self._x(start), y=_AXIS, width=(end - start) / HOUR * self._scale,
                height=_BESIDE - _AXIS, class_="reach",
            )  # fmt: skip
            add(rect, "title", f"{self._clock(start)} to {self._clock(end)}: {equation(counts)}")

    def _beside(self, root: Element) -> None:
        day = self._day
        y = _BESIDE + _BESIDE_HEIGHT / 2
        add(root, "path", d=f"M{_LEFT:g} {_BESIDE:g}H{_RIGHT:g}", class_="axis")
        if day.beside_marks is not None:
            for mark in day.beside_marks:
                group = self._linked(root, mark)
                glyphs.place(group, mark.state, "day-glyph", self._x(mark.plan_time), y)
                add(group, "title", ". ".join(self._sentences(mark)))
            return
        most = max(sum(counts.values()) for counts in day.beside_minutes.values())
        parts = []
        for minute, counts in sorted(day.beside_minutes.items()):
            at = day.local.start + minute * _MINUTE
            if at in day.local:
                height = sum(counts.values()) / most * (_BESIDE_HEIGHT - 4)
                top, width = _BESIDE + _BESIDE_HEIGHT - height, self._scale / 60
                parts.append(f"M{self._x(at):.2f} {top:.2f}h{width:.2f}v{height:.2f}h-{width:.2f}Z")
        path = add(root, "path", d="".join(parts), class_="density state-ran")
        add(path, "title", beside_text(day))

    def _edits(self, root: Element) -> None:
        free = 0.0
        for edit in self._day.edits:
            x = self._x(edit.at)
            group = add(
                root, "a", href=self._links.revision(edit.revision), tabindex=-1, class_="edit"
            )
            add(group, "path", d=f"M{x:.2f} {_AXIS:g}V{self._bottom + 4:g}")
            when = f"{self._clock(edit.at)} ({iso(edit.at, 'seconds')})"
            add(group, "title", f"{when}: {edit_text(edit)}")
            for label in (f"r{edit.revision} {edit.kind}", f"r{edit.revision}"):
                width = 5.6 * len(label)
                place = min(max(x, _LEFT + width / 2), _RIGHT - width / 2)
                if place - width / 2 >= free:
                    add(group, "text", label, x=place, y=self._bottom + 13)
                    free = place + width / 2 + 4
                    break

    def _clock(self, instant: datetime) -> str:
        return clock(self._day, instant)


# --- beneath the picture -------------------------------------------------------------------------


def _sum(day: AccountedDay) -> Element:
    paragraph = element("p", class_="sum")
    wrong = day.counts.get(State.UNEXPLAINED) or day.counts.get(State.EXTRA)
    add(
        paragraph,
        "strong" if wrong else "span",
        equation(day.counts),
        class_="bad" if wrong else None,
    )
    if (verified := day.verified_at) is not None:
        local = day.local.local(verified)
        date = "" if local.date() == day.local.day else f"{local:%Y-%m-%d} "
        shown = add(paragraph, "span", f" · verified {date}{local:%H:%M}")
        shown.set("title", iso(verified, "seconds"))
    if text := beside_text(day):
        add(paragraph, "span", f"Beside the schedule: {text}", class_="beside")
    return paragraph


def _legend(day: AccountedDay) -> Element:
    counts: Counter[State] = Counter(day.counts)
    for one in day.beside.values():
        counts.update(one)
    legend = element("ul", class_="legend")
    for state in State:
        if counts.get(state):
            item = add(legend, "li")
            item.append(glyphs.swatch(state, "day-glyph"))
            add(item, "span", f"{state.word} {counts[state]:,}")
    return legend
