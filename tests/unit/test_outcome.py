"""What the end of a handler becomes; every outcome can be stored."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer

from cronledger.rules import outcome as oc
from cronledger.rules.model import Handler, Job, Status


class Model(BaseModel):
    at: date = date(2026, 1, 2)


class Hostile(BaseModel):
    at: int = 1

    @field_serializer("at")
    def raises(self, value: int) -> int:
        raise KeyError(value)


@dataclass
class Data:
    name: str
    when: datetime


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(exc: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise exc from cause
    except type(exc) as caught:
        return caught


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (0, "0"),
        ({"ä": [1, "x"]}, '{"ä": [1, "x"]}'),
        (Model(), '{"at": "2026-01-02"}'),
        (
            Data("n", datetime(2026, 1, 2, tzinfo=UTC)),
            '{"name": "n", "when": "2026-01-02T00:00:00Z"}',
        ),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.50"), '"1.50"'),
        ({3}, "[3]"),
        ({"a\x00": "b\x00c"}, '{"a": "bc"}'),
        ("x\ud800y", '"xy"'),
        ("\\u0000", r'"\\u0000"'),
    ],
    ids=str,
)
def test_results_are_stored_as_json(value: Any, text: str | None) -> None:
    made = oc.success(value)
    assert (made.status, made.result_json, made.error_code) == (Status.SUCCESS, text, None)
    assert made.final


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(3_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "result_invalid"),
        ({"a": float("-inf")}, "result_invalid"),
        (object(), "result_invalid"),
        (b"\xff", "result_invalid"),
        (Hostile(), "result_invalid"),
        (deep(), "result_invalid"),
        (10**5_000, "result_invalid"),
        ("x" * 16_383, "result_too_large"),
        ("ä" * 8_192, "result_too_large"),
    ],
    ids=lambda value: str(type(value)),
)
def test_work_with_a_result_that_cannot_be_stored_is_success(value: Any, code: str) -> None:
    made = oc.success(value, "out")
    assert made.status is Status.SUCCESS
    assert made.result_json is None
    assert made.error_code == code
    assert made.error_msg
    assert made.output == "out"
    job = Job(name="j", handler=Handler.EXTERNAL)
    assert oc.next_attempt(job, 1, 5, made, 0.0) is None


def test_a_result_just_fits() -> None:
    assert oc.success("x" * 98, None, 100).result_json == '"' + "x" * 98 + '"'
    assert oc.success("x" * 99, None, 100).error_code == "result_too_large"


@pytest.mark.parametrize("rows", [-1, 2**63, True, 1.5, "3"], ids=str)
def test_rows_affected_that_is_no_count_is_a_note(rows: Any) -> None:
    made = oc.success(oc.Result({"kept": 1}, rows_affected=rows))
    assert made.rows_affected is None
    assert made.result_json == '{"kept": 1}'
    assert made.error_code == "result_invalid"
    assert "rows_affected" in str(made.error_msg)


def test_rows_affected_is_stored() -> None:
    made = oc.success(oc.Result(None, rows_affected=7))
    assert (made.rows_affected, made.result_json, made.error_code) == (7, None, None)


def test_an_exception_has_class_text_and_traceback() -> None:
    made = oc.failure(raised(ValueError("bo\x00om\ud800")), "a\x00b")
    assert (made.status, made.error_code, made.final) == (Status.FAILED, "handler_error", False)
    message = str(made.error_msg)
    assert message.startswith("ValueError: boom\n\nTraceback")
    assert "test_outcome.py" in message
    assert made.output == "ab"


def test_a_long_traceback_keeps_its_end() -> None:
    def sink(depth: int) -> None:
        if depth == 0:
            raise LookupError("x" * 5_000)
        sink(depth - 1)

    with pytest.raises(LookupError) as caught:
        sink(200)
    message = str(oc.failure(caught.value).error_msg)
    assert len(message) <= oc.ERROR_LENGTH
    assert message.startswith("LookupError: xxx")


def test_an_exception_without_text_is_told() -> None:
    assert "Mute" in str(oc.failure(raised(Mute())).error_msg)


def test_discard_is_final_and_has_the_users_code() -> None:
    made = oc.failure(raised(oc.Discard("no_such_tenant", "gone")))
    assert (made.error_code, made.error_msg, made.final) == ("no_such_tenant", "gone", True)
    assert oc.failure(oc.Discard("code")).error_msg == "code"
    assert oc.failure(oc.Discard(" \x00")).error_code == "discarded"
    assert len(str(oc.failure(oc.Discard("x" * 500)).error_code)) == oc.CODE_LENGTH


def test_what_led_to_retry_or_discard_is_kept() -> None:
    message = str(oc.failure(raised(oc.Discard("c", "m"), KeyError("why"))).error_msg)
    assert message.startswith("m\n\nKeyError: 'why'")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (None, None),
        ("90s", timedelta(seconds=90)),
        (1.5, timedelta(seconds=1.5)),
        (timedelta(0), timedelta(0)),
    ],
)
def test_retry(after: Any, expected: timedelta | None) -> None:
    made = oc.failure(oc.Retry(after, "later"))
    assert (made.error_code, made.error_msg) == ("retry_requested", "later")
    assert made.asked_after == expected


@pytest.mark.parametrize("after", [-1, "soon", float("nan"), timedelta(days=40_000)], ids=str)
def test_a_wait_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        oc.Retry(after)


def job(**fields: Any) -> Job:
    return Job.model_validate({"name": "j", "handler": "external", **fields})


def test_backoff_repeats_its_last_step_and_adds_a_share() -> None:
    steps = job(retry_backoff=["1m", "5m", "15m"], retry_jitter=0.5)
    minutes = [oc.backoff(steps, attempt, 0.0) / timedelta(minutes=1) for attempt in range(1, 6)]
    assert minutes == [1, 5, 15, 15, 15]
    assert oc.backoff(steps, 1, 0.5) == timedelta(seconds=75)


FAILED = oc.failure(ValueError("x"))


@pytest.mark.parametrize(
    ("outcome", "attempt", "reentrant", "expected"),
    [
        (FAILED, 1, False, timedelta(minutes=1)),
        (FAILED, 2, False, timedelta(minutes=5)),
        (FAILED, 3, False, None),
        (FAILED, 4, True, None),
        (oc.failure(oc.Retry("3s")), 1, False, timedelta(seconds=3)),
        (oc.failure(oc.Retry(0)), 1, False, timedelta(0)),
        (oc.failure(oc.Retry("3s")), 3, False, None),
        (oc.failure(oc.Retry()), 2, False, timedelta(minutes=5)),
        (oc.failure(oc.Discard("c")), 1, True, None),
        (oc.timed_out(timedelta(1), end_known=True), 1, False, timedelta(minutes=1)),
        (oc.timed_out(timedelta(1), end_known=False), 1, False, None),
        (oc.timed_out(timedelta(1), end_known=False), 1, True, timedelta(minutes=1)),
        (oc.shutdown(end_known=True), 1, False, timedelta(minutes=1)),
        (oc.shutdown(end_known=False), 1, False, None),
        (oc.exited(3), 1, False, timedelta(minutes=1)),
        (oc.not_started("no such file"), 1, False, timedelta(minutes=1)),
        (oc.payload_invalid("bad"), 1, True, None),
        (oc.cancelled(), 1, True, None),
        (oc.success(1), 1, True, None),
    ],
)
def test_next_attempt(
    outcome: oc.Outcome, attempt: int, reentrant: bool, expected: timedelta | None
) -> None:
    declared = job(allow_stale_reentry=reentrant)
    assert oc.next_attempt(declared, attempt, 3, outcome, 0.0) == expected
    decided = oc.decide(outcome, declared, attempt, 3, 0.0)
    assert (decided.retry_after, decided.final) == (expected, expected is None)


def test_how_a_command_ended() -> None:
    assert oc.exited(0, "o").status is Status.SUCCESS
    assert (oc.exited(3).error_code, oc.exited(3).error_msg) == ("exit_code", "exit status 3")
    assert oc.exited(-9).error_msg == "killed by signal 9 (SIGKILL)"
    assert oc.exited(-9).error_code == "signal"
    assert oc.exited(-250).error_msg == "killed by signal 250"


def test_cancelled_says_by_whom() -> None:
    made = oc.cancelled("out", by="an\x00na")
    assert (made.status, made.error_code, made.error_msg) == (
        Status.CANCELLED,
        "cancelled",
        "cancelled by anna",
    )


def test_text_is_cut_at_either_end() -> None:
    assert oc.clean_text("abcdef", 4) == "abc…"
    assert oc.clean_text("abcdef", 4, tail=True) == "…def"
    assert oc.clean_text("ab\x00cd", 4) == "abcd"


@given(st.text(st.characters(exclude_categories=())), st.integers(1, 20))
def test_clean_text_can_be_stored(text: str, limit: int) -> None:
    clean = oc.clean_text(text, limit)
    assert len(clean) <= limit
    assert b"\x00" not in clean.encode("utf-8")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_like, st.integers(0, 60))
def test_clean_json_can_be_stored_or_says_why_not(value: Any, limit: int) -> None:
    stored = oc.clean_json(value, limit)
    if stored.text is None:
        assert value is None or (stored.error_code and stored.error_msg)
        return
    assert stored.error_code is None
    assert len(stored.text.encode("utf-8")) <= limit
    assert "\x00" not in json.dumps(json.loads(stored.text), ensure_ascii=False)


def test_every_error_code_has_a_meaning() -> None:
    assert list(oc.ERROR_MEANINGS) == list(oc.ErrorCode)
