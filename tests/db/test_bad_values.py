"""Values of SQL that no replica could use: refused where they are written, or the job's spec_error.

They never fail at each firing, and never cost another job its claim.
"""

from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from cronledger import Client
from cronledger.rules.storable import JSON_BYTES, JSON_DEPTH
from cronledger.rules.targets import TARGETS
from tests.db.support.engine import MINUTE, Ledger, Runner

BIG = "x" * JSON_BYTES


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"a": value}
    return value


BAD_TARGETS: list[tuple[str, dict[str, Any], str, str]] = [
    ("sql", {}, 'handler = sql, and its target has no "sql"', '{"sql": "DELETE'),
    ("sql", {"sql": "SELECT 1", "cwd": "/"}, 'has "cwd", which handler = sql', "DELETE"),
    ("sql", {"sql": "SELECT '" + BIG + "'"}, "target has 65", "Store the data elsewhere"),
    ("http", {}, 'has no "url"', '{"url": "https://example.com/"}'),
    ("http", {"url": "http://x", "body": nested(100)}, "target is nested more than 100", "Store"),
    ("python", {}, 'has no "python"', '{"python": "package.module:name"}'),
    ("command", {}, 'has no "command"', '{"command": ["backup", "--full"]}'),
    ("sql", {"sql": None}, 'has "sql" of another JSON type than string', "DELETE"),
    ("http", {"url": "http://x", "headers": "A: b"}, "JSON type than object", "example.com"),
    ("http", {"url": "http://x", "expect": 200}, "JSON type than array", "example.com"),
    ("http", {"url": "http://x", "allow_private": 1}, "JSON type than boolean", "example.com"),
    ("command", {"command": 5}, "neither a string nor a list of strings", "backup"),
    ("command", {"command": ["a", ["b"]]}, "neither a string nor a list of strings", "backup"),
]  # fmt: skip


def test_a_target_that_no_handler_can_run_is_refused(ledger: Ledger) -> None:
    for handler, target, message, hint in BAD_TARGETS:
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ledger.job("bad", schedule="* * * * *", handler=handler, target=target)
        said = caught.value.diag
        assert str(said.message_primary).startswith("job bad: ")
        assert message in str(said.message_primary)
        assert hint in str(said.message_hint)
    assert ledger.values("SELECT FROM jobs") == []


def test_a_refusal_shows_no_value_that_may_be_secret(ledger: Ledger) -> None:
    for target in (
        {"command": "a", "enviroment": {"A": "hunter2"}},
        {"command": ["a", ["hunter2"]]},
    ):
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ledger.job("bad", handler="command", target=target)
        assert "hunter2" not in str(caught.value)


def test_every_target_of_the_models_is_known_to_the_trigger(ledger: Ledger) -> None:
    """The two lists of names are kept alike: what one refuses as unknown, the other does too."""
    whole: dict[str, dict[str, Any]] = {
        "python": {"python": "a:b"},
        "command": {"command": ["a"], "env": {"A": "1"}, "cwd": "/"},
        "sql": {"sql": "SELECT 1"},
        "http": {
            "url": "http://x", "method": "POST", "headers": {"A": {"env": "B"}}, "body": [1],
            "expect": [200], "allow_private": True,
        },
        "observed": {},
        "external": {"anything": {"its": ["workers", "understand"]}},
    }  # fmt: skip
    for handler, model in TARGETS.items():
        if handler != "external":
            assert set(whole[handler]) == set(model.model_fields)
        ledger.job(handler, handler=handler, target=whole[handler])
    ledger.job("shell", handler="command", target={"command": "a"})


BAD_COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"payload": BIG}, "payload has 65538 bytes of JSON; the limit is 65536"),
    ({"payload": nested(JSON_DEPTH + 1)}, "payload is nested more than 100 levels deep"),
    ({"payload": -(10**309)}, "payload contains a number of 1.8e308 or more"),
    ({"payload_schema": f'{{"a": "{BIG}"}}'}, "payload_schema has 65545 bytes of JSON"),
    ({"labels": Jsonb({"team": 10**309})}, "labels contains a number of 1.8e308 or more"),
    ({"retry_backoff": [None, "1 m"]}, "retry_backoff contains a NULL"),
    ({"retry_backoff": ["1 m", "-5 m"]}, "retry_backoff contains a negative duration"),
    ({"retry_backoff": "[0:1]={1 m,5 m}"}, "retry_backoff has a first index other than 1"),
    ({"scope_kind": "t", "scopes": [["a", "b"], ["c", "d"]]}, "scopes is a multidimensional array"),
    ({"scope_kind": "t", "scopes": ["a", None]}, "scopes has a NULL as element 2"),
    ({"scope_kind": "t", "scopes": [""]}, "scopes has '' as element 1"),
]


def test_other_values_that_no_replica_can_use_are_refused(ledger: Ledger) -> None:
    ledger.job("good")
    for columns, message in BAD_COLUMNS:
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ledger.job("bad", **columns)
        assert message in str(caught.value.diag.message_primary)
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ledger.edit("good", **columns)
        assert message in str(caught.value.diag.message_primary)
        assert caught.value.diag.message_hint


def test_the_largest_and_the_deepest_values_are_taken(ledger: Ledger) -> None:
    ledger.job("large", payload="x" * (JSON_BYTES - 2))
    ledger.job("deep", payload=nested(JSON_DEPTH))
    ledger.job("great", payload={"a": [1.7e308, -(10**308), 5e-324]})
    ledger.job("scoped", scope_kind="t", scopes=["a" * 200, "ä b"], retry_backoff=["0", "1 h"])
    ledger.trigger("large", payload=nested(JSON_DEPTH))
    ledger.trigger("deep", payload="ä" * (JSON_BYTES // 2 - 1))
    assert ledger.values("SELECT job_name FROM executions ORDER BY 1") == ["deep", "large"]
    assert len(ledger.values("SELECT FROM jobs")) == 4


def test_payloads_of_trigger_and_enqueue_have_the_same_limits(ledger: Ledger) -> None:
    ledger.job()
    for payload in (BIG, nested(JSON_DEPTH + 1)):
        for call in ("trigger('job', payload => %s)", "enqueue('job', payload => %s)"):
            with pytest.raises(errors.InvalidParameterValue, match="job job: payload"):
                ledger.values(f"SELECT {call}", Jsonb(payload))
    assert ledger.values("SELECT FROM executions") == []


def test_a_workers_result_that_is_too_deep_is_not_stored(ledger: Ledger) -> None:
    ledger.job(handler="external")
    ledger.trigger()
    number, token = ledger.one("SELECT id, lease_token FROM claim_next('default', 'w')")
    assert ledger.one("SELECT finish(%s, %s, %s)", number, token, Jsonb(nested(101))) == "ok"
    row = ledger.one("SELECT status, result, error_code, error_msg FROM executions")
    assert row[:3] == ("SUCCESS", None, "result_invalid")
    assert row[3] == "the result is nested more than 100 levels deep; not stored"


# -- values that only a replica judges -----------------------------------------------------------


def of(handler: str, **target: Any) -> dict[str, Any]:
    return {"handler": handler, "target": target, "source": "file"}


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    (of("http", url="http://x", headers={"hunter2 x": "a"}), "target.headers: "),
    (of("command", command=["hunter2", ""]), "target.command: is neither a list of words nor"),
    (of("command", command="hunter2", cwd="b"), "target.cwd: is not an absolute path"),
    (of("command", command="a", env={"hunter2": 5}), "target.env: is neither a text nor"),
    ({"labels": Jsonb({"a\x1b[2J": "x"})}, "labels.a\\x1b[2J = "),
    ({"labels": Jsonb({"k" * 60_000: "x"})}, "labels." + "k" * 113 + " = "),
    ({"labels": Jsonb({"a b": "x"})}, 'labels.a b = "a b": has an invalid format'),
    ({"labels": Jsonb({"team": 1})}, "labels.team = 1: should be a valid string"),
    ({"labels": Jsonb({f"k{n}": "x" for n in range(51)})}, "at most 50 items"),
    ({"retry_on": [["A", "B"]]}, "retry_on[0] = "),
    ({"never_retry_on": ["OSError", ""]}, 'never_retry_on[1] = "": string should have at'),
    ({"finish_by": "99999999999w"}, "finish_by = "),
    ({"expect_duration": "06:00"}, 'expect_duration = "06:00": is invalid; use a duration'),
    ({"ping": "hc-ping.com/hunter2"}, "ping: must begin with http:// or https://"),
    ({"runbook": "https://wiki:99999/"}, "runbook = "),
]


@pytest.mark.long
async def test_i9_values_that_only_a_replica_judges_become_the_spec_error_of_their_job(
    ledger: Ledger, one: Runner
) -> None:
    said = {}
    for number, (columns, message) in enumerate(BAD_VALUES):
        name = f"bad {number}"
        ledger.job(name, schedule="* * * * *", **columns)
        ledger.trigger(name)
        said[name] = message
    ledger.job("good", schedule="* * * * *")
    ledger.travel(by=MINUTE)
    assert [s.claimed.key.job_name for s in await one.settle()] == ["good"]
    rows = ledger.values("SELECT name, spec_error FROM jobs WHERE spec_error IS NOT NULL")
    found = dict(rows)
    assert found.keys() == said.keys()
    for name, message in said.items():
        assert message in found[name]
        assert "; UPDATE jobs SET " in found[name]
        assert len(found[name]) < 400
    assert "hunter2" not in str(rows)
    assert "hunter2" not in str(ledger.values("SELECT d::text FROM job_details d"))
    assert {ledger.parked(name) for name in said} == {"spec_error"}
    waiting = ledger.values("SELECT DISTINCT status FROM executions WHERE job_name <> 'good'")
    assert waiting == ["PENDING"]
    assert ledger.violations() == []


@pytest.mark.parametrize(
    ("catch_up", "bad", "good"),
    [
        ("all", of("sql", sql=" "), of("sql", sql="SELECT 1")),
        ("latest", {"start_by": "soon", "finish_by": "1s"}, {"start_by": None, "finish_by": None}),
        (
            "all",
            {"retry_on": ["ConectionError"], "schedule_delay": "1 day", "jitter": "6 h"},
            {"retry_on": None, "schedule_delay": "0", "jitter": "0"},
        ),
    ],
    ids=["target", "deadline", "delay"],
)
async def test_i10_a_correction_fires_nothing_of_the_time_of_an_invalid_definition(
    ledger: Ledger, one: Runner, catch_up: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    """The plan_times in between are skips, so that `verify` agrees."""
    ledger.job(schedule="* * * * *", catch_up=catch_up, overlap="allow")
    ledger.travel(by=MINUTE)
    (first,) = await one.settle()
    ledger.edit(**bad)
    ledger.travel(by=5 * MINUTE)
    assert await one.settle() == []
    await one.repair()
    assert (ledger.parked(), ledger.skipped()) == ("spec_error", [])
    assert ledger.violations() == []
    ledger.values("SELECT pause('job'), resume('job')")  # as it is
    ledger.edit(**good)
    assert await one.settle() == []
    assert ledger.skipped() == [("missed", 5)]
    assert ledger.one("SELECT spec_error FROM jobs") is None
    ledger.travel(by=MINUTE)
    (after,) = await one.settle()
    await one.repair()
    assert after.claimed.key.plan_time - first.claimed.key.plan_time == 6 * MINUTE
    assert ledger.violations() == []
    assert ledger.accounted() == 7
    with Client(ledger.url) as client:
        (answer,) = client.why("job", first.claimed.key.plan_time + MINUTE)
    assert answer.verdict == "skipped"
    assert "and its definition, revision 2, was edited before that; " in answer.text


async def test_what_a_claim_has_won_does_not_wait_for_the_note_about_a_broken_job(
    ledger: Ledger, one: Runner
) -> None:
    """Somebody edits the broken job: its spec_error is recorded by a later claim."""
    ledger.job("bad", schedule="* * * * *")
    ledger.job("good", schedule="* * * * *")
    with ledger.unchecked():
        ledger.edit("bad", schedule="no schedule")
    ledger.travel(by=MINUTE)
    spec_error = "SELECT spec_error FROM jobs WHERE name = 'bad'"
    with psycopg.connect(ledger.url) as editor:
        editor.execute("SELECT FROM cronledger.jobs WHERE name = 'bad' FOR NO KEY UPDATE")
        with capture_logs() as logs:
            assert [s.claimed.key.job_name for s in await one.settle()] == ["good"]
        assert "claim_followup_failed" not in [x["event"] for x in logs]
        assert ledger.one(spec_error) is None
    await one.repair()
    await one.settle()
    assert ledger.one(spec_error) is not None


def test_executions_claimed_after_a_refused_one_have_tokens_of_their_own(ledger: Ledger) -> None:
    for name in ("a", "b", "c"):
        ledger.job(name)
        ledger.values("SELECT enqueue(%s)", name)
    ledger.values(
        "ALTER TABLE executions ADD CHECK (job_name <> 'a' OR status <> 'RUNNING') NOT VALID"
    )
    claimed = ledger.values(
        "SELECT job_name, how, lease_token FROM cronledger_internal.claim_due('me', '{default}',"
        " '{python}', '{tests:work}', '{}', ARRAY[gen_random_uuid(), gen_random_uuid()], NULL)"
    )
    assert [(job, how) for job, how, _ in claimed] == [("a", "refused"), ("b", "won"), ("c", "won")]
    assert len({token for _, how, token in claimed if how == "won"}) == 2
