"""One row for each job in trouble: its worst problem decides its place."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.web import attention
from cronledger.web.attention import Kind

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def failing(job: str, ago: timedelta, **columns: Any) -> dict[str, Any]:
    row = {"job_name": job, "failures": 1, "failing_since": NOON - ago, "error_code": "exit_code"}
    return row | {"error_msg": "it broke\nand more", "scopes": 1, "id": 7} | columns


def overdue(job: str, ago: timedelta, reason: str = "no_runner") -> dict[str, Any]:
    row = {"job_name": job, "due_at": NOON - ago, "reason": reason, "detail": "no live runner"}
    return row | {"plan_times": 3, "id": None, "is_held": reason in ("paused", "limit")}


def alert(job: str | None, runner: str | None, ago: timedelta) -> dict[str, Any]:
    row = {"job_name": job, "runner_id": runner, "event": "runner_lost", "since": NOON - ago}
    return row | {"summary": "it is lost", "scopes": 0, "execution_id": 9}


def test_all_problems_of_a_job_are_one_row_and_the_worst_decides() -> None:
    found = attention.folded(attention.problems(
        failing=[failing("b", HOUR), failing("c", 2 * HOUR)],
        overdue=[overdue("a", 9 * HOUR), overdue("b", 3 * HOUR)],
        alerts=[alert("b", None, HOUR), alert(None, "r1", HOUR), alert(None, "r2", HOUR)],
    ))  # fmt: skip
    assert [one.row["job_name"] or one.runner for one in found] == ["b", "c", "a", "r1", "r2"]
    b = found[0]
    assert [one.kind for one in b.problems] == [Kind.FAILING, Kind.OVERDUE, Kind.ALERT]
    assert (b.since, b.execution) == (NOON - 3 * HOUR, 7)
    assert (b.worst.word, b.worst.text) == ("failed", "exit_code: it broke")
    assert found[2].execution is None
    assert [one.runner for one in attention.of_kind(found, "alert")] == [None, "r1", "r2"]


def test_the_number_of_failures_is_bounded() -> None:
    (one,) = attention.problems(failing=[failing("a", HOUR, failures=100, error_msg=None)])
    assert (one.word, one.text) == ("failed 100 times or more in a row", "exit_code")


def test_a_pause_and_a_limit_hold_a_job_on_purpose() -> None:
    found = attention.problems(overdue=[overdue("a", HOUR, "paused"), overdue("b", HOUR, "limit")])
    assert [(one.kind, one.word) for one in found] == [
        (Kind.PAUSED, "paused"), (Kind.WAITING, "limit"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "kind", "text", "shown"),
    [
        ("alerts", "deadline", "a did not start by {}", 1),
        ("alerts", "deadline", "a ran for longer than expected: until after {}", 1),
        ("alerts", "skipped", "a skipped a firing: b {} is RUNNING", 1),
        ("alerts", "failed", "a failed: at {}", 0),
        ("alerts", "overdue", "a has not ended: its lease ended at {}; paused by bob: until {}", 1),
        ("alerts", "overdue", "a: b has not ended: its lease ended at {} (attempt 1 on r1)", 1),
        ("overdue", "no_provider", "no live runner calls it: last called at {} by r1: since {}", 1),
        ("overdue", "paused", "its lease ended at {} (attempt 1 on r1); paused by {}: until {}", 1),
        ("overdue", "no_provider", "no live runner calls its scope provider: last called at {}", 1),
        ("overdue", "provider_failed", "failed twice, most recently at {} on r1: since {}", 1),
        ("overdue", "queue_paused", "queue mail paused by bob: until {}", 0),
        ("overdue", "spec_error", "{} is not a schedule", 0),
    ],
)
def test_instants_are_those_of_the_product(
    statement: str, kind: str, text: str, shown: int
) -> None:
    for written in (NOON.isoformat(" "), "2026-03-04T12:00:00Z", "2026-03-04 12:00:00 UTC"):
        key, value = {"alerts": ("event", "summary"), "overdue": ("reason", "detail")}[statement]
        row = {"alerts": alert("a", None, HOUR), "overdue": overdue("a", HOUR)}[statement]
        row |= {key: kind, value: text.replace("{}", written)}
        (one,) = attention.problems(**{statement: [row]})
        instants = [piece for piece in one.pieces if piece == NOON]
        assert len(instants) == shown
        assert "".join(written if piece == NOON else str(piece) for piece in one.pieces) == one.text
