"""What the end of a handler becomes; every outcome can be stored."""

import json
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer

from cronledger.rules import outcome as oc
from cronledger.rules.error_codes import CODE_LENGTH, ERROR_MEANINGS, ErrorCode
from cronledger.rules.model import Handler, Job, Status


class Model(BaseModel):
    at: date = date(2026, 1, 2)


class Hostile(BaseModel):
    at: int = 1

    @field_serializer("at")
    def raises(self, value: int) -> int:
        raise KeyError(value)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


def raised(exc: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise exc from cause
    except type(exc) as caught:
        return caught


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None), ({"ä": [1, "x"]}, '{"ä": [1, "x"]}'), (Model(), '{"at": "2026-01-02"}'),
        ("\\u0000", r'"\\u0000"'),
    ],
    ids=str,
)  # fmt: skip
def test_results_are_stored_as_json(value: Any, text: str | None) -> None:
    made = oc.success(value)
    assert (made.status, made.result_json, made.error_code) == (Status.SUCCESS, text, None)
    assert made.final


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [["x\ud800y"]]}, '{"a": [["xy"]]}'),
        (oc.Result({"a\x00": 1, "a": 2}, rows_affected=-1), '{"a": 2}'),
    ],
    ids=ascii,
)
def test_a_changed_result_has_a_note(value: Any, text: str) -> None:
    made = oc.success(value)
    assert (made.status, made.result_json) == (Status.SUCCESS, text)
    assert made.error_code == "result_changed"
    assert "were removed from the result" in str(made.error_msg)
    assert ("rows_affected" in str(made.error_msg)) is isinstance(value, oc.Result)


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(3_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "result_invalid"), (object(), "result_invalid"),
        (deep(), "result_invalid"), (10**309, "result_invalid"),
        ("ä" * 8_192, "result_too_large"),
    ],
    ids=lambda value: str(type(value)),
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("rows", "shown"),
    [(-1, "-1"), (2**63, f"{2**63}"), (True, "True"), (Silent(), "a Silent without text"),
     (10**5_000, "a int without text")],
    ids=["negative", "too large", "no number", "no text", "too long"],
)  # fmt: skip
def test_rows_affected_that_is_no_count_is_a_note(rows: Any, shown: str) -> None:
    made = oc.success(oc.Result({"kept": 1}, rows_affected=rows, watermark=rows))
    assert (made.status, made.rows_affected) == (Status.SUCCESS, None)
    assert (made.result_json, made.error_code) == ('{"kept": 1}', "result_invalid")
    assert made.error_msg == f"rows_affected = {shown} is not a count; not stored"


def test_an_exception_has_class_text_and_traceback() -> None:
    made = oc.failure(raised(ValueError("bo\x00om\ud800")), "a\x00b")
    assert (made.status, made.error_code, made.final) == (Status.FAILED, "handler_error", False)
    message = str(made.error_msg)
    assert message.startswith("ValueError: boom\n\nTraceback")
    assert "test_outcome.py" in message
    assert made.output == "ab"
    assert "Mute" in str(oc.failure(raised(Mute())).error_msg)
    long = str(oc.failure(raised(LookupError("x" * 5_000))).error_msg)
    assert len(long) <= oc.ERROR_LENGTH
    assert long.startswith("LookupError: xxx")


def test_discard_is_final_and_has_the_users_code_text_and_cause() -> None:
    made = oc.failure(raised(oc.Discard("no_such_tenant", "gone")))
    assert (made.error_code, made.error_msg, made.final) == ("no_such_tenant", "gone", True)
    caused = oc.failure(raised(oc.Discard("c", "m"), KeyError("why")))
    assert str(caused.error_msg).startswith("m\n\nKeyError: 'why'")
    assert oc.failure(oc.Discard("code")).error_msg == "code"
    assert oc.failure(oc.Discard(" \x00")).error_code == "discarded"
    assert len(str(oc.failure(oc.Discard("x" * 500)).error_code)) == CODE_LENGTH


def test_retry_requests_its_wait() -> None:
    made = oc.failure(oc.Retry(1.5, "later"))
    assert (made.error_code, made.error_msg) == ("retry_requested", "later")
    assert made.asked_after == timedelta(seconds=1.5)


@pytest.mark.parametrize("after", [-1, "soon", float("nan"), timedelta(days=40_000)], ids=str)
def test_an_invalid_wait_is_refused(after: Any) -> None:
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
        (FAILED, 1, False, timedelta(minutes=1)), (FAILED, 2, False, timedelta(minutes=5)),
        (FAILED, 3, False, None), (oc.failure(oc.Retry("3s")), 1, False, timedelta(seconds=3)),
        (oc.failure(oc.Retry()), 2, False, timedelta(minutes=5)),
        (oc.failure(oc.Discard("c")), 1, True, None),
        (oc.timed_out(timedelta(1), end_known=True), 1, False, timedelta(minutes=1)),
        (oc.timed_out(timedelta(1), end_known=False), 1, False, None),
        (oc.timed_out(timedelta(1), end_known=False), 1, True, timedelta(minutes=1)),
        (oc.shutdown(end_known=False), 1, False, None),
        (oc.payload_invalid("bad"), 1, True, None), (oc.cancelled(), 1, True, None),
    ],
)  # fmt: skip
def test_the_outcome_decides_the_next_attempt(
    outcome: oc.Outcome, attempt: int, reentrant: bool, expected: timedelta | None
) -> None:
    declared = job(allow_stale_reentry=reentrant)
    assert oc.next_attempt(declared, attempt, 3, outcome, 0.0) == expected
    decided = oc.decide(outcome, declared, attempt, 3, 0.0)
    assert (decided.retry_after, decided.final) == (expected, expected is None)
    assert oc.decide(decided, declared, attempt, 3, 0.0) == decided


def test_an_exit_status_a_signal_and_a_cancellation_have_their_texts() -> None:
    assert oc.exited(0, "o").status is Status.SUCCESS
    assert (oc.exited(3).error_code, oc.exited(3).error_msg) == ("exit_code", "exit status 3")
    assert oc.exited(-9).error_msg == "killed by signal 9 (SIGKILL)"
    assert oc.exited(-9).error_code == "signal"
    assert oc.exited(-250).error_msg == "killed by signal 250"
    made = oc.cancelled("out", by="an\x00na")
    assert (made.status, made.error_code) == (Status.CANCELLED, "cancelled")
    assert made.error_msg == "cancelled by anna"


def test_text_is_cut_at_either_end() -> None:
    assert oc.clean_text("abcdef", 4) == "abc…"
    assert oc.clean_text("abcdef", 4, tail=True) == "…def"
    assert oc.clean_text("a\x00b\ud800…", 3) == "ab…"


def test_a_count_is_stored() -> None:
    stored = oc.success(oc.Result(None, rows_affected=7))
    assert (stored.rows_affected, stored.result_json, stored.error_code) == (7, None, None)


def test_a_text_that_cannot_be_shown_is_named() -> None:
    assert oc.failure(oc.Discard("code", Silent())).error_msg == "a Silent without text"  # type: ignore[arg-type]


any_text = st.text(st.characters(exclude_categories=()))  # NUL and lone surrogates, too


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.binary()
    | st.decimals() | st.dates() | st.datetimes(timezones=st.none() | st.timezones())
    | st.timedeltas() | st.uuids() | st.complex_numbers() | st.fractions()
    | st.builds(Silent) | st.builds(Hostile)
    | st.just(10).map(lambda n: n**5_000)
    | st.sampled_from([object(), int, ..., oc.AtClaim.AT_CLAIM])
)  # fmt: skip
keys = st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.dates() | st.uuids()
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner)
        | st.frozensets(st.integers()) | st.builds(iter, st.lists(inner))
    ),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=60, derandomize=True)
@given(anything, st.integers(0, 60))
@pytest.mark.long
def test_clean_json_can_be_stored_or_has_an_error(value: Any, limit: int) -> None:
    stored = oc.clean_json(value, limit)
    if stored.text is None:
        assert value is None or (stored.error_code and stored.error_msg)
        assert len(stored.error_msg or "") <= oc.HEAD_LENGTH
        return
    assert stored.error_code in (None, "result_changed")
    assert len(stored.text.encode("utf-8")) <= limit
    read = json.loads(stored.text, parse_constant=pytest.fail)
    assert "\x00" not in json.dumps(read, ensure_ascii=False)
    if read is not None:
        assert oc.clean_json(read, limit).text == stored.text


def storable(text: str | None, most: int) -> bool:
    return text is None or (
        "\x00" not in text and len(text) <= most and bool(text.encode() or True)
    )


errors = st.builds(
    lambda kind, code, message: kind(code, message) if kind is oc.Discard else kind(message),
    st.sampled_from([ValueError, oc.Discard, oc.LeaseLost, KeyError, OSError, SystemExit]),
    anything, anything,
) | st.builds(oc.Retry, st.none() | st.floats(0, 1e6), anything)  # fmt: skip


results = st.builds(oc.Result, anything, anything, anything)


@settings(max_examples=100, derandomize=True)
@given(results | errors, st.none() | errors, st.none() | any_text)
@pytest.mark.long
def test_any_return_value_or_exception_has_an_outcome_that_can_be_stored(
    ended: Any, cause: BaseException | None, output: str | None
) -> None:
    if isinstance(ended, oc.Result):
        made = oc.success(ended, output)
        assert (made.status, made.final) == (Status.SUCCESS, True)
        assert (made.error_code is None) == (made.error_msg is None)
    else:
        ended.__cause__ = cause
        made = oc.failure(ended, output)
        assert (made.status, bool(made.error_code)) == (Status.FAILED, True)
    assert storable(made.error_code, CODE_LENGTH)
    assert storable(made.error_msg, oc.ERROR_LENGTH)
    assert storable(made.output, 10**9)
    assert made.rows_affected is None or 0 <= made.rows_affected <= oc.LARGEST_COUNT
    assert made.watermark is None or abs(made.watermark) <= oc.LARGEST_COUNT


def test_an_expired_lease_names_the_outage_its_length_and_the_setting() -> None:
    ended = oc.lease_expired(58.2, "OperationalError: refused", timedelta(minutes=1))
    assert ended.error_msg == (
        "stopped because its lease was not renewed for 58s (the ledger was unreachable:"
        " OperationalError: refused); attempts survive longer outages with a stale_timeout longer"
        " than 1m"
    )
    still = oc.lease_expired(58.2, None, timedelta(minutes=1))
    assert "(the process got no CPU time)" in (still.error_msg or "")


def test_every_error_code_has_a_meaning() -> None:
    assert list(ERROR_MEANINGS) == list(ErrorCode)
