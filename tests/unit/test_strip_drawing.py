"""The strip: the worst state of each cell, by colour and height, and all of it in words."""

from datetime import UTC, datetime
from xml.etree import ElementTree

from cronledger.explain.day.states import State
from cronledger.explain.day.strips import CELLS, MAX_ROWS, WIDTH, joined, parameters, strips, worst
from cronledger.rules.model import ScopeKey
from cronledger.web.drawing.strip import draw_strip, list_strip

KEY = ScopeKey("job", "global", "global")
NOW = datetime(2026, 6, 1, 12, 7, tzinfo=UTC)
START = datetime(2026, 5, 31, 12, 15, tzinfo=UTC)


def cell(
    n: int, cell: int, state: str, count: int = 1, read_from: datetime | None = None
) -> dict[str, object]:
    return {"n": n, "cell": cell, "state": state, "count": count, "read_from": read_from}


def test_the_24_hours_end_with_the_present_quarter_of_an_hour() -> None:
    given = parameters([KEY], NOW)
    assert (given["start"], given["end"]) == (START, START + CELLS * WIDTH)


def test_a_cell_shows_its_worst_state_and_the_words_show_all() -> None:
    rows = [
        cell(1, 0, "ran", 3), cell(1, 1, "ran", 2), cell(1, 1, "failed"), cell(1, 2, "paused", 0),
        cell(1, 3, "overlap", 0), cell(1, 3, "ran"), cell(2, 95, "running"),
    ]  # fmt: skip
    one, other = strips([KEY, KEY], START, rows)
    root = ElementTree.fromstring(draw_strip(one))
    assert root.get("aria-label") == "24 hours: 6 ran, 1 failed, skipped: overlap, paused"
    shown = {path.get("class"): path.get("d") for path in root.iter("path")}
    assert shown["state-ran"] == "M0 16v-8h2v8Z"
    assert shown["state-failed"] == "M2 16v-16h2v16Z"
    assert shown["state-paused"] == "M4 16v-4h2v4Z"
    assert 'aria-label="24 hours: 1 running"' in draw_strip(other)


def test_cells_that_were_not_read_are_not_shown_as_empty() -> None:
    (strip,) = strips([KEY], START, [cell(1, 95, "ran", 1500, START + 95 * WIDTH)])
    assert (strip.is_known(94), strip.is_known(95)) == (False, True)
    assert 'class="unread"' in draw_strip(strip)
    assert "1,500 ran of those that were read" in draw_strip(strip)
    assert items(list_strip(strip))[0] == "2026-05-31 12:15 to 2026-06-01 12:00 UTC: not read"


def items(html: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(html).iter("li")]


def test_the_list_has_the_numbers_of_the_strip_by_period() -> None:
    rows = [
        cell(1, 0, "ran", 3), cell(1, 1, "ran", 2), cell(1, 2, "ran"), cell(1, 2, "failed", 2),
        cell(1, 95, "running"),
    ]  # fmt: skip
    (strip,) = strips([KEY], START, rows)
    assert items(list_strip(strip)) == [
        "2026-05-31 12:15 to 2026-05-31 12:45 UTC: 5 ran",
        "2026-05-31 12:45 to 2026-05-31 13:00 UTC: 1 ran, 2 failed",
        "2026-06-01 12:00 to 2026-06-01 12:15 UTC: 1 running",
    ]
    (strip,) = strips([KEY], START, [cell(1, 4 * hour, "ran") for hour in range(24)])
    assert items(list_strip(strip)) == ["2026-05-31 12:15 to 2026-06-01 11:30 UTC: 24 ran"]
    (empty,) = strips([KEY], START, [])
    assert 'aria-label="24 hours: nothing"' in draw_strip(empty)
    assert list_strip(empty) == ""


SCOPES = [ScopeKey("job", "shard", name) for name in "abc"]


def test_the_strip_of_several_scopes_has_the_executions_of_all() -> None:
    read_from = START + 40 * WIDTH
    rows = [
        cell(1, 50, "ran", 3), cell(2, 50, "ran"), cell(2, 50, "failed"),
        cell(3, 51, "ran", 500, read_from),
    ]  # fmt: skip
    strip = joined(strips(SCOPES, START, rows))
    assert strip.totals() == {State.RAN: 504, State.FAILED: 1}
    assert strip.cells[50] == {State.RAN: 4, State.FAILED: 1}
    assert strip.read_from == read_from


def test_the_worst_scope_has_the_most_urgent_state_most_often() -> None:
    rows = [
        cell(1, 0, "failed"), cell(2, 1, "failed", 2), cell(2, 3, "failed"), cell(3, 0, "ran", 90),
        cell(3, 1, "cancelled", 50),
    ]  # fmt: skip
    found = worst(strips(SCOPES, START, rows))
    assert found is not None
    assert (found[0].key, found[1]) == (SCOPES[1], State.FAILED)
    assert worst(strips(SCOPES, START, [])) is None


def test_the_scopes_of_a_job_share_the_rows_that_are_read() -> None:
    other = ScopeKey("other", "global", "global")
    assert parameters([*SCOPES, other], NOW)["max_rows"] == [MAX_ROWS // 3] * 3 + [MAX_ROWS]
