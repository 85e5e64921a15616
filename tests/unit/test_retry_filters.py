"""F44: which failures `retry_on` and `never_retry_on` match, and what they may contain."""

import signal
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronledger.declaring.app import App
from cronledger.rules import outcome as oc
from cronledger.rules import retry_filters
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError
from cronledger.rules.retry_items import problems

TARGETS: dict[str, dict[str, Any]] = {
    "python": {"python": "a:b"}, "command": {"command": ["true"]}, "sql": {"sql": "SELECT 1"},
    "http": {"url": "http://x/"}, "external": {},
}  # fmt: skip
MINUTE = timedelta(minutes=1)


class Busy(ConnectionError):
    pass


class Coded(Exception):
    def __init__(self, state: object) -> None:
        super().__init__()
        self.sqlstate = state


class Hostile(Exception):
    @property
    def sqlstate(self) -> str:
        raise KeyError("no")


def job(handler: str = "python", **fields: Any) -> Job:
    base = {"name": "j", "handler": handler, "target": TARGETS[handler], "max_attempts": 3}
    return Job.model_validate(base | fields)


def decided(ended: oc.Outcome, **filters: Any) -> oc.Outcome:
    return oc.decide(ended, job(**filters), 1, 3, 0.0)


BUSY = oc.failure(Busy("no"))
SERIALIZATION = oc.failure(psycopg.errors.SerializationFailure("no"))
GROUP = oc.failure(ExceptionGroup("two", [Busy(), ExceptionGroup("one", [KeyError()])]))
HTTP = oc.failed("http_status", "no", causes=retry_filters.one_cause("429"))


@pytest.mark.parametrize(
    ("ended", "matching", "others"),
    [
        (
            BUSY,
            [f"{__name__}.Busy", "ConnectionError", "OSError", "Exception", "handler_error"],
            ["Busy", "ValueError", "timeout", "builtins.OSError"],
        ),
        (
            SERIALIZATION,
            ["psycopg.errors.SerializationFailure", "psycopg.OperationalError", "psycopg.Error"],
            ["psycopg.errors.OperationalError", "psycopg.IntegrityError"],
        ),
        (oc.exited(75), ["75", "64-78", "75-75", "exit_code"], ["7", "64-74", "signal", "5xx"]),
        (oc.exited(-signal.SIGKILL), ["SIGKILL", "signal"], ["9", "1-255", "SIGTERM", "exit_code"]),
        (HTTP, ["429", "4xx", "400-499", "http_status"], ["5xx", "42-43", "handler_error"]),
        (oc.failed("handler_error", "x", causes=retry_filters.causes_of(Coded("40001"))),
         ["40001", "40", "handler_error"], ["40P01", "4"]),
        (oc.failure(Hostile()), [f"{__name__}.Hostile"], ["40"]),
        (oc.timed_out(MINUTE, end_known=True), ["timeout"], ["TimeoutError", "handler_error"]),
    ],
    ids=lambda value: str(getattr(value, "error_msg", ""))[:20],
)  # fmt: skip
def test_an_item_matches_its_failures_and_no_others(
    ended: oc.Outcome, matching: list[str], others: list[str]
) -> None:
    # Jobs that were not validated: what matters here is what matches.
    for item in [*matching, *others]:
        wanted, unwanted = (
            oc.decide(ended, job().model_copy(update={field: (item,)}), 1, 3, 0.0)
            for field in ("retry_on", "never_retry_on")
        )
        retried, left = (wanted, unwanted) if item in matching else (unwanted, wanted)
        assert retried.retry_after == MINUTE, item
        why = f"never_retry_on has {item}" if item in matching else "retry_on has no match"
        assert left.not_retried == why


def test_never_wins_and_no_filter_matches_all() -> None:
    both = decided(BUSY, retry_on=["OSError"], never_retry_on=["ConnectionError"])
    assert (both.retry_after, both.final) == (None, True)
    assert decided(BUSY, retry_on=[], never_retry_on=[]).retry_after == MINUTE
    assert decided(BUSY, never_retry_on=["ValueError"]).retry_after == MINUTE


def test_a_group_is_retried_if_each_of_its_exceptions_is() -> None:
    for filters in ({"retry_on": ["OSError"]}, {"retry_on": ["KeyError"]},
                    {"never_retry_on": ["LookupError"]}, {"never_retry_on": ["ExceptionGroup"]},
                    ):  # fmt: skip
        assert decided(GROUP, **filters).final, filters
    assert decided(GROUP, retry_on=["OSError", "LookupError"]).retry_after == MINUTE
    assert decided(GROUP, retry_on=["ExceptionGroup"]).retry_after == MINUTE


def test_requested_retries_and_ends_by_the_runner_pass_all_filters() -> None:
    filters = {"retry_on": ["KeyError"], "never_retry_on": ["Exception", "handler_error"]}
    assert decided(oc.failure(oc.Retry("3s")), **filters).retry_after == timedelta(seconds=3)
    assert decided(oc.lease_over("lease"), **filters).retry_after == MINUTE
    assert decided(oc.shutdown(end_known=True), **filters).retry_after == MINUTE
    assert decided(oc.failure(oc.Discard("KeyError")), retry_on=["KeyError"]).final
    assert decided(oc.failure(oc.Retry()), retry_on=["retry_requested"]).retry_after == MINUTE
    assert decided(BUSY, retry_on=["retry_requested"]).not_retried == "retry_on has no match"


def test_the_error_names_the_filter_that_matched() -> None:
    refused = decided(BUSY, never_retry_on=["OSError"])
    assert refused.error_msg is not None
    assert refused.error_msg.startswith(f"{__name__}.Busy: no\n")
    assert refused.error_msg.endswith("\nnot retried: never_retry_on has OSError")
    assert retry_filters.split_note(refused.error_msg) == (
        BUSY.error_msg, "never_retry_on has OSError",
    )  # fmt: skip
    assert retry_filters.split_note("plain") == ("plain", None)
    assert retry_filters.split_note(None) == (None, None)
    assert retry_filters.split_note("not retried: x") == (None, "x")
    longest = oc.failed("handler_error", "x" * 5_000, causes=BUSY.causes)
    long = str(decided(longest, never_retry_on=["OSError"]).error_msg)
    assert len(long) <= oc.ERROR_LENGTH
    assert long.endswith("\nnot retried: never_retry_on has OSError")
    # The last attempt ends without a filter.
    last = oc.decide(BUSY, job(never_retry_on=["OSError"]), 3, 3, 0.0)
    assert (last.error_msg, last.not_retried) == (BUSY.error_msg, None)


FINE: list[tuple[str, list[Any]]] = [
    ("python", ["ValueError", "a.B", "a.b.C.D", "a.f.<locals>.E", "timeout", "handler_error"]),
    ("command", [1, "255", "64-78", "75-75", "SIGKILL", "exit_code", "signal", "not_started"]),
    ("sql", ["40001", "40P01", "40", 57014, "XX", "timeout"]),
    ("http", [503, "5xx", "429", "100-599", "http_status", "not_started"]),
    ("external", ["anything", "with a space", "503", "x" * 100, "ä"]),
]


@pytest.mark.parametrize(("handler", "items"), FINE, ids=[handler for handler, _ in FINE])
def test_valid_items_have_no_problem(handler: str, items: list[Any]) -> None:
    requested = ["retry_requested"] if handler in ("python", "external") else []
    declared = job(handler, retry_on=[*items, *requested], never_retry_on=items)
    assert declared.never_retry_on == tuple(map(str, items))
    assert list(problems(declared)) == []


BAD = {
    "python": (
        "ConectionError", "print", "a b", "a.", ".a", "builtins.OSError", "IOError", "lease_lost",
        "exit_code"),
    "command": (
        "0", "256", "78-64", "0-9", "1-256", "SIGNONE", "SIGIOT", "ValueError", "5xx", "shutdown",
        "retry_requested"),
    "sql": ("4000", "400011", "40p01", "4", "40-42", "http_status", "a.B"),
    "http": ("99", "600", "5XX", "6xx", "0xx", "599-500", "exit_code"),
    "external": (" a", "a ", "x" * 101, "stale_timeout"),
}  # fmt: skip


@pytest.mark.parametrize("handler", BAD)
@pytest.mark.parametrize("field", retry_filters.FILTERS)
def test_invalid_items_have_a_problem_with_a_remedy(handler: str, field: str) -> None:
    for item in BAD[handler]:
        (problem,) = problems(job(handler, **{field: [item]}), "f")
        assert (problem.job, problem.field, problem.where) == ("j", field, "f")
        assert problem.value == f'"{item}"' or len(item) > 100
        assert problem.message and problem.remedy


@pytest.mark.parametrize(
    ("item", "remedy"),
    [
        ("IOError", 'write "OSError"'),
        ("retry_requested", "remove it"),  # a requested retry bypasses all filters
    ],
)
def test_an_item_without_effect_has_its_remedy(item: str, remedy: str) -> None:
    (problem,) = problems(job(never_retry_on=[item]))
    assert problem.remedy == remedy


@pytest.mark.parametrize("value", ["75", ["x"] * 101, [""], [True], [["75"]], [None], {"a": 1}])
def test_a_value_that_is_not_a_list_of_texts_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="retry_on"):
        job("command", retry_on=value)


def plain_function() -> None: ...


def test_classes_are_stored_by_name() -> None:
    class Local(Exception):
        pass

    app = App()
    kinds = (Busy, OSError, psycopg.OperationalError, Local, "timeout", "shop.errors.Busy")
    app.job(name="a", max_attempts=2, retry_on=kinds)(plain_function)
    stored = app.jobs["a"].retry_on
    assert stored == (
        f"{__name__}.Busy", "OSError", "psycopg.OperationalError",
        f"{__name__}.test_classes_are_stored_by_name.<locals>.Local", "timeout",
        "shop.errors.Busy",
    )  # fmt: skip
    assert list(problems(app.jobs["a"])) == []
    assert oc.decide(oc.failure(Local()), app.jobs["a"], 1, 2, 0.0).retry_after == MINUTE


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (int, "never_retry_on: has int, which is not an exception class; remove it"),
        (oc.Retry, r"has cronledger\.rules\.outcome\.Retry, but filters do not apply"),
        (OSError("x"), "never_retry_on"),
    ],
)
def test_classes_that_no_filter_applies_to_are_refused(item: Any, said: str) -> None:
    app = App()
    with pytest.raises(ConfigurationError, match=said):
        app.job(name="a", max_attempts=2, never_retry_on=[item])(plain_function)
        raise ConfigurationError(problems(app.jobs["a"]))
    with pytest.raises(ConfigurationError):
        app.job(name="b", max_attempts=2, never_retry_on=item)(plain_function)


def test_only_a_known_end_that_matches_for_each_cause_is_not_ready() -> None:
    lost = oc.timed_out(MINUTE, end_known=False)
    waits = {
        "busy": decided(BUSY, not_ready_on=["ConnectionError"], never_retry_on=["OSError"]),
        "longer": decided(BUSY, not_ready_on=["OSError"], not_ready_after="5m"),
        "asked": decided(oc.failure(oc.Retry("1s")), not_ready_on=["handler_error"]),
        "group": decided(GROUP, not_ready_on=["ConnectionError"]),
        "lost": decided(lost, not_ready_on=["timeout"]),
    }
    assert {name: ended.postpone for name, ended in waits.items()} == {
        "busy": MINUTE, "longer": 5 * MINUTE, "asked": None, "group": None, "lost": None,
    }  # fmt: skip
    assert waits["busy"].error_code == "not_ready"
