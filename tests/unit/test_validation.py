"""What is refused when a job is declared: every case names field, value and remedy."""

from typing import Any

import pytest

from cronledger.rules import validation
from cronledger.rules.model import Handler, Job
from cronledger.rules.problems import ConfigurationError, Problem

BASE: dict[str, Any] = {"name": "j", "handler": "command", "target": {"command": ["true"]}}


def found(has_provider: bool = False, **fields: Any) -> list[Problem]:
    job = Job.model_validate(BASE | fields)
    return list(validation.problems(job, where="f", has_provider=has_provider))


def refused(has_provider: bool = False, **fields: Any) -> list[str]:
    return [str(p.field) for p in found(has_provider, **fields) if not p.warning]


def warned(**fields: Any) -> list[str]:
    return [str(p.field) for p in found(**fields) if p.warning]


def nested(levels: int, value: Any = 1) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


ALL = {"catch_up": "all", "overlap": "wait"}
FINE: list[dict[str, Any]] = [
    {"schedule": "*/5 * * * *", "timezone": "Europe/Berlin", "dst_gap": "skip"},
    {"schedule": "@every 90s", "jitter": "89s", "schedule_delay": "89s"},
    {**ALL, "catch_up_limit": 5, "catch_up_window": "90d"},
    {"stale_timeout": "3s", "max_attempts": 3, "retry_jitter": 0.5, "allow_stale_reentry": True},
    {"starts_at": "2026-01-01T00:00:00Z", "ends_at": "2026-01-01T00:00:00.000001Z"},
    {"scope_kind": "tenant", "schedule": None},  # its scopes appear when they are pushed
    {"scope_kind": "tenant", "scopes": ["a", "b"], "payload": {"a": [1, 2.5, None, True, "ä"]}},
    {"keep_output": "1h"},
    {"not_ready_on": [75], "not_ready_after": "5m", "wait_at_most": "3h"},
    {"schedule": "0 18 L * *", "calendar": "de", "on_excluded": "previous"},
    {"schedule": "@every 90s", "calendar": "de", "on_excluded": "skip"},
    {"windows": True, "overlap": "wait"},
    {"schedule": "@daily", "requires": ["a", {"job": "b", "scope": "global"}], "after": []},
    {"after": "a", "requires": "b", "wait_at_most": "2h", "scope_kind": "t", "scopes": ["x"]},
    {"payload": nested(100)},
    {"payload": nested(99, [])},
    {"payload": "ä" * 32_767},
]


@pytest.mark.parametrize("fields", FINE, ids=str)
def test_valid_jobs_have_no_problem(fields: dict[str, Any]) -> None:
    assert found(**fields) == []


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"catch_up": "all"}, ["catch_up"]),
    ({"schedule": "@every 90s", "jitter": "90s"}, ["jitter"]),
    ({"schedule": "@every 90s", "schedule_delay": "2m"}, ["schedule_delay"]),
    ({"catch_up_limit": 5}, ["catch_up_limit"]),
    ({"schedule": "@daily", "requires": "j"}, ["requires"]),
    ({"schedule": "@daily", "requires": ["a", "a"]}, ["requires"]),
    ({"requires": "a"}, ["requires"]),
    ({"after": "j"}, ["after"]),
    ({"after": "a", "schedule": "@daily"}, ["schedule"]),
    ({"after": "a", "calendar": "de", "timezone": "UTC"}, ["calendar", "timezone"]),
    ({"after": "a", "scope_kind": "tenant"}, ["scope_kind"]),
    ({"after": "a", "wait_at_most": "0s"}, ["wait_at_most"]),
    ({"not_ready_on": ["5xx"]}, ["not_ready_on"]),
    ({"not_ready_on": ["x"], "handler": "external", "target": {}}, ["not_ready_on"]),
    ({"on_excluded": "next"}, ["on_excluded"]),
    ({"windows": True, "overlap": "allow"}, ["windows"]),
    ({"stale_timeout": "2s999ms"}, ["stale_timeout"]),
    ({"keep_output": "59m"}, ["keep_output"]),
    ({"run_timeout": "0s"}, ["run_timeout"]),
    ({"retry_backoff": ["1s", "36526d"], "max_attempts": 2}, ["retry_backoff"]),
    ({"schedule": "@every 90s", "dst_gap": "shift"}, ["dst_gap"]),
    ({"starts_at": "2026-01-01T00:00:00"}, ["starts_at"]),
    ({"starts_at": "2026-01-01T00:00:00Z", "ends_at": "2026-01-01T00:00:00Z"}, ["starts_at"]),
    ({"scopes": ["a"]}, ["scopes"]),
    ({"scope_kind": "tenant", "schedule": "0 6 * * *"}, ["scope_kind"]),
    ({"scope_kind": "tenant", "scopes": ["a", "a"]}, ["scopes"]),
    ({"scope_kind": "k\x85", "scopes": ["a", " b"]}, ["scope_kind", "scopes[1]"]),
    ({"schedule": " @EVERY 90s", "calendar": "de", "on_excluded": "next"}, ["on_excluded"]),
    ({"every": ["role=web"], "on": ["role=web"], "scope_kind": "host", "scopes": ["a"]}, ["every"]),
    ({"every": ["role=web"], "on": ["role=web"], "scope_kind": "tenant"}, ["every"]),
    ({"payload": [float("nan")]}, ["payload"]),
    ({"payload": {"a": ["b\x00"]}}, ["payload"]),
    ({"payload": "\ud800"}, ["payload"]),
    ({"description": "a\x00b"}, ["description"]),
    ({"name": "pay\u2003"}, ["name"]),  # people cannot tell it from others
    ({"target": {}}, ["target.command"]),
    ({"target": {"command": ["a"], "shell": "a"}}, ["target.shell"]),
    ({"target": {"command": []}}, ["target.command"]),
    ({"target": {"command": ["a\x00"]}}, ["target"]),
    ({"target": {"command": "a", "env": {"A=B": "1"}}}, ["target.env.A=B"]),
    ({"target": {"command": "a", "env": {"A": {"env": "PGPASSWORD"}}}}, ["target.env.A"]),
    ({"target": {"command": "a", "env": {"A": {"file": "a"}}}}, ["target.env.A"]),
    ({"target": {"command": "a", "dir": "/"}}, ["target.dir"]),
    ({"handler": "python", "target": {"python": "no_colon"}}, ["target.python"]),
    ({"handler": "sql", "target": {"sql": " \n"}}, ["target.sql"]),
    ({"handler": "http", "target": {"url": "ftp://x"}}, ["target.url"]),
    ({"handler": "http", "target": {"url": "http://x", "expect": [99]}}, ["target.expect[0]"]),
    ({"handler": "http", "target": {"url": "http://x:99999/"}}, ["target.url"]),
    (
        {"handler": "http", "target": {"url": "http://x", "headers": {"A b": "1"}}},
        ["target.headers.A b"],
    ),
    ({"handler": "observed", "target": {"a": 1}}, ["target.a"]),
    ({"handler": "observed", "target": {}, "scope_kind": "host", "scopes": ["a"]}, ["scope_kind"]),
    (
        {"handler": "observed", "target": {}, "catch_up": "skip", "max_attempts": 2, "grace": "1h"},
        ["catch_up", "max_attempts"],
    ),
    (
        {"observed": True, "jitter": "1s", "windows": True, "overlap": "wait", "catch_up": "skip"},
        ["jitter", "windows"],
    ),
    ({"observed": True, "scope_kind": "host", "scopes": ["a"]}, ["scope_kind"]),
    ({"target": {"command": "a", "cwd": "work"}}, ["target.cwd"]),
    ({"payload": nested(101)}, ["payload"]),
    ({"payload": nested(99, [[]])}, ["payload"]),
    ({"payload": {"a": [-(10**309)]}}, ["payload"]),
    ({"payload": {"a": "ä" * 32_767}}, ["payload"]),
]


@pytest.mark.parametrize(("fields", "expected"), REFUSED, ids=str)
def test_a_wrong_field_is_refused_with_its_remedy(
    fields: dict[str, Any], expected: list[str]
) -> None:
    assert refused(**fields) == expected
    for problem in found(**fields):
        assert problem.message
        assert problem.where == "f"
        assert problem.job == fields.get("name", "j")
        assert problem.remedy or problem.warning


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"retry_jitter": 0.1, "retry_backoff": ["1s"]}, ["retry_backoff", "retry_jitter"]),
        ({"never_retry_on": ["75"], "retry_on": [75]}, ["never_retry_on", "retry_on"]),
        ({"schedule": "*/7 * * * *"}, ["schedule"]),
        ({"scope_kind": "t", "scopes": []}, ["scopes"]),
    ],
    ids=str,
)
def test_warned_but_not_refused(fields: dict[str, Any], expected: list[str]) -> None:
    assert warned(**fields) == expected
    assert refused(**fields) == []


def test_a_job_read_from_a_row_counts_as_set_what_differs() -> None:
    job = Job(name="j", handler=Handler.EXTERNAL, schedule="@every 90s")
    row = Job.model_validate(job.model_dump())
    assert [p.field for p in validation.problems(row) if not p.warning] != []
    lean = Job.model_validate(row.model_dump(exclude_defaults=True))
    assert validation.problems(lean) == ()


@pytest.mark.parametrize(
    ("handler", "target", "problems"),
    [
        ("command", {"command": [""], "shell": "x", "env": {"A=": "s3cret", "B": ["s3cret"]}}, 4),
        ("http", {"url": "htp://user:s3cret@x", "hedaers": {"Authorization": "s3cret"}}, 2),
    ],
)
def test_values_that_may_be_secret_are_not_shown(
    handler: str, target: dict[str, Any], problems: int
) -> None:
    said = [str(problem) for problem in found(handler=handler, target=target)]
    assert len(said) == problems
    assert "s3cret" not in "".join(said)


def test_a_payload_that_no_reader_of_json_takes_is_a_problem_not_a_crash() -> None:
    assert refused(payload=nested(5000)) == ["payload"]
    cycle: list[Any] = []
    cycle.append(cycle)
    job = Job.model_construct(**(Job.model_validate(BASE).model_dump() | {"payload": cycle}))
    assert "payload" in [p.field for p in validation.problems(job)]


def test_check_returns_warnings_and_a_provider_stands_for_scopes() -> None:
    job = Job.model_validate(
        BASE | {"scope_kind": "t", "schedule": "0 6 * * *", "retry_jitter": 0.5}
    )
    (warning,) = validation.check([job], providers={"j"})
    assert warning.field == "retry_jitter"
    with pytest.raises(ConfigurationError, match="scope_kind"):
        validation.check([job])
    assert refused(has_provider=True) == ["scope_kind"]
    assert refused(has_provider=True, scope_kind="tenant", scopes=["a"]) == ["scopes"]
