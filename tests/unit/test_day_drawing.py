"""The picture of the accounted day: escaped, without styles, and with an equal table."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from xml.etree import ElementTree

import pytest

from cronledger.explain.day.account import RunnerGap
from cronledger.explain.day.states import State, equation, state_of
from cronledger.web.drawing.accounted_day import draw
from tests.unit.support.days import accounted, counted, executed, requested, revision, skipped

DAY = date(2026, 6, 1)
START = datetime(2026, 6, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
EVIL = "<script>alert('\x00')</script> & \"co\""


class Addresses:
    """Links of a page."""

    def execution(self, execution_id: int) -> str:
        return f"executions/{execution_id}?a=1&b=2"

    def why(self, plan_time: datetime) -> str:
        return f"why/{plan_time.timestamp():.0f}"

    def revision(self, revision: int) -> str:
        return f"#r{revision}"


def whole_day() -> str:
    """A day with something of everything, and names that have to be escaped."""
    day = accounted(
        DAY,
        revisions=[
            revision(2, START + 5 * HOUR + HOUR / 2, "paused", requested_by="anna", reason=EVIL),
            revision(3, START + 6 * HOUR + HOUR / 2, requested_by="ben"),
        ],
        counts=[
            counted(0, 61 * 60 + 1), counted(60 * 60, late=True),
            counted(120 * 60, status="FAILED"), counted(180 * 60, status="RUNNING"),
            counted(240 * 60, status="CANCELLED"),
            counted(300 * 60, status="FAILED", again=True),
            requested(33, "manual"), requested(34, "enqueue", "FAILED"),
        ],
        skips=[
            skipped(START + 6 * HOUR, START + 6 * HOUR, "paused"),
            skipped(START + 7 * HOUR, START + 8 * HOUR, "overlap", blocked_by=77, count=2),
            skipped(START + 9 * HOUR, START + 9 * HOUR, "missed"),
            skipped(START + 10 * HOUR, START + 10 * HOUR, "missed"),
            skipped(START + 11 * HOUR, START + 11 * HOUR, "superseded"),
            skipped(START + 12 * HOUR, START + 12 * HOUR, "retired"),
            skipped(START + 13 * HOUR, START + 13 * HOUR, "calendar", detail=EVIL),
            skipped(START + 14 * HOUR, START + 14 * HOUR, "upstream", detail="x FAILED"),
        ],
        planned_through=START + 15 * HOUR,
        now=START + 16 * HOUR + HOUR / 2,
        executions=[
            executed(1, START), executed(2, START + HOUR, first_started_at=START + 2 * HOUR),
            executed(3, START + 2 * HOUR, "FAILED", error_code=EVIL, runner_id=EVIL),
            executed(4, START + 3 * HOUR, "RUNNING", duration_ms=None),
            executed(5, START + 4 * HOUR, duration_ms=2**63 - 1),
        ],
        beside=[
            executed(9, START + HOUR / 2, trigger="manual", requested_by=EVIL),
            executed(10, START + HOUR / 2 + HOUR / 60, "FAILED", trigger="enqueue"),
        ],
        gaps=[RunnerGap(START + 9 * HOUR - HOUR / 2, START + 9 * HOUR + HOUR / 2)],
    )  # fmt: skip
    return draw(replace(day, verified_at=START + 30 * HOUR), Addresses())


def test_every_value_is_escaped_and_nothing_has_a_style() -> None:
    text = whole_day()
    assert "/>" not in text  # no element of HTML closes itself
    assert "<script" not in text
    assert "style=" not in text
    assert "\x00" not in text
    assert "onclick" not in text
    ElementTree.fromstring(text)
    assert "&lt;script&gt;alert('\N{REPLACEMENT CHARACTER}')&lt;/script&gt; &amp;" in text
    assert "billing &lt;b&gt;&amp; on 2026-06-01" in text


def test_each_state_has_shape_word_and_colour() -> None:
    root = ElementTree.fromstring(whole_day())
    shapes = {one.get("id") for one in root.iter("{http://www.w3.org/2000/svg}g")}
    legend = {"".join(one.itertext()) for one in root.iter("li")}
    for state in (
        State.ON_TIME, State.LATE, State.FAILED, State.RUNNING, State.CANCELLED, State.WAITING,
        State.OVERLAP, State.MISSED, State.PAUSED, State.SUPERSEDED, State.RETIRED, State.FUTURE,
        State.OVERDUE, State.UNEXPLAINED, State.EXTRA,
    ):  # fmt: skip
        assert f"day-glyph-{state.value}" in shapes, state
        assert any(word.startswith(state.word) for word in legend), state
    used = {one.get("href") for one in root.iter() if one.tag.endswith("use")}
    assert {href.removeprefix("#") for href in used if href} <= shapes


def test_the_table_has_what_the_picture_has() -> None:
    root = ElementTree.fromstring(whole_day())
    svg = next(one for one in root.iter() if one.tag.endswith("svg"))
    titles = [one.text or "" for one in svg.iter("{http://www.w3.org/2000/svg}title")]
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")][1:]
    assert rows == sorted(rows, key=lambda row: row[1])
    for time, instant, what, detail in rows:
        assert any(
            time in title and detail in title and (instant in title or "no runner" in what)
            for title in titles
        ), (time, what, detail)
    links = {one.get("href") for one in root.iter("a")}
    in_table = {one.get("href") for row in root.iter("tr") for one in row.iter("a")}
    in_picture = {one.get("href") for one in svg.iter("{http://www.w3.org/2000/svg}a")}
    assert in_picture == in_table
    assert {"executions/77?a=1&b=2", "#r2", "executions/9?a=1&b=2"} <= links


def test_reasons_are_named() -> None:
    text = " ".join(ElementTree.fromstring(whole_day()).itertext())
    assert "execution 77 was running; one of 2 skipped in a row" in text
    assert "revision 2, paused by anna: <script>" in text
    assert "its calendar excludes this day: <script>" in text
    assert "it waited for a job that it requires: x FAILED" in text
    assert "no runner checked in 08:30 UTC to 09:30 UTC" in text
    assert "execution 2, on r1, 1h late, took 4.2 s" in text
    assert "neither an execution nor a skip accounts for it" in text
    assert " · verified 2026-06-02 06:00" in text
    assert "Beside the schedule: 1 enqueue (1 failed), 1 manual (1 ran)" in text
    assert (
        "24 planned = 2 ran (1 late) + 1 failed + 1 cancelled + 1 running + 1 waiting"
        " + 9 skipped (2 overlap, 1 superseded, 2 missed, 1 paused, 1 retired, 1 calendar,"
        " 1 upstream) + 1 overdue + 7 to come + 1 unexplained · 1 not in the schedule"
    ) in text


@pytest.mark.parametrize(
    ("zone", "day", "bands", "labels"),
    [
        ("Europe/Berlin", date(2026, 3, 29), {"gap"}, ["01", "no 02", "03"]),
        ("America/Santiago", date(2026, 9, 6), {"gap"}, ["no 00", "01"]),
        ("America/Santiago", date(2026, 4, 4), {"fold"}, ["23", "23 again", "24"]),
    ],
)
def test_changes_of_the_clocks_are_drawn(
    zone: str, day: date, bands: set[str], labels: list[str]
) -> None:
    text = draw(accounted(day, zone=zone), Addresses())
    assert set(re.findall(r"band-(\w+)", text)) == bands
    places = re.findall(r'<text x="([\d.]+)" y="14" class="hour[^>]*>([^<]+)', text)
    shown = [label for _, label in sorted(places, key=lambda one: float(one[0]))]
    assert any(shown[n : n + len(labels)] == labels for n in range(len(shown))), shown
    assert ("url(#day-hatch)" in text) == ("gap" in bands)


def test_a_dense_day_is_drawn_by_minutes_and_listed_by_hours() -> None:
    ran = [second for second in range(86_400) if second // 60 != 600]
    day = accounted(
        DAY,
        revisions=[revision(2, START - HOUR, schedule="* * * * * *")],
        counts=[counted(*ran)],
        executions=None,
    )
    assert equation(day.counts) == "86,400 planned = 86,340 ran + 60 unexplained"
    text = draw(day, Addresses())
    root = ElementTree.fromstring(text)
    assert len(text) < 200_000
    assert len(list(root.iter("tr"))) == 1 + 24
    rows = ["".join(row.itertext()) for row in root.iter("tr")]
    assert any("3,600 planned = 3,540 ran + 60 unexplained" in row for row in rows)
    paths = [one.get("class") for one in root.iter("{http://www.w3.org/2000/svg}path")]
    assert paths.count("density state-unexplained") == 2  # its column, and the mark above it
    empty = accounted(DAY, revisions=[revision(2, START - HOUR, schedule=None)])
    assert "0 planned = 0 ran · 0 unexplained" in draw(empty, Addresses())


def test_an_execution_before_its_first_or_next_attempt_waits() -> None:
    assert state_of("PENDING", again=False, late=False, planned=True) is State.WAITING
    assert state_of("FAILED", again=True, late=True, planned=True) is State.WAITING
