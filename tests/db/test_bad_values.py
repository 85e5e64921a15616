"""Values of SQL that no replica could use: refused where they are written, or the job's spec_error.

They never fail at each firing, and never cost another job its claim.
"""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from cronledger.rules.storable import JSON_BYTES, JSON_DEPTH
from cronledger.rules.targets import TARGETS
from tests.db.support.engine import Ledger, runners

MINUTE = timedelta(minutes=1)
BIG = "x" * JSON_BYTES


def nested(levels: int) -> Any:
    value: Any = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"a": value}
    return value


BAD_TARGETS: list[tuple[str, dict[str, Any], str, str]] = [
    ("sql", {}, 'handler = sql, and its target has no "sql"', '{"sql": "DELETE'),
    ("sql", {"statement": "SELECT 1"}, 'has no "sql"', '{"sql": "DELETE'),
    ("sql", {"sql": 5}, 'has "sql" = 5, which is not a string', "DELETE"),
    ("sql", {"sql": None}, 'has "sql" = null, which is not a string', "DELETE"),
    ("sql", {"sql": " \n"}, 'has a blank "sql"', "DELETE"),
    ("sql", {"sql": "SELECT 1", "cwd": "/"}, 'has "cwd", which handler = sql', "DELETE"),
    ("sql", {"sql": "SELECT '" + BIG + "'"}, "target has 65", "Store the data elsewhere"),
    ("http", {}, 'has no "url"', '{"url": "https://example.com/"}'),
    ("http", {"url": 1}, 'has "url", which is not a string', "url"),
    ("http", {"url": "http://x", "headers": ["a"]}, 'has "headers", which is not an object', "url"),
    ("http", {"url": "http://x", "expect": 200}, 'has "expect" = 200', "url"),
    ("http", {"url": "http://x", "body": nested(100)}, "target is nested more than 100", "Store"),
    ("python", {}, 'has no "python"', '{"python": "package.module:name"}'),
    ("python", {"python": 7}, 'has "python" = 7, which is not a string', "package.module:name"),
    ("command", {}, 'has no "command"', '{"command": ["backup", "--full"]}'),
    ("command", {"command": ["a"], "shell": "a"}, 'has "shell", which handler = command', "backup"),
    ("command", {"command": 5}, 'has a "command" that is neither a string nor a list', "backup"),
    ("command", {"command": " "}, 'has a blank "command"', "backup"),
    ("command", {"command": []}, 'has a "command" that is neither a string nor a list', "backup"),
    ("command", {"command": ["a", 5]}, 'has a "command" that is neither a string nor', "backup"),
    ("command", {"command": "a", "env": "A=1"}, 'has "env", which is not an object', "backup"),
    ("command", {"command": "a", "cwd": "work"}, 'has "cwd" = "work", which is not an', "backup"),
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
    for handler, target in (
        ("http", {"url": ["http://user:hunter2@x"]}),
        ("http", {"url": "http://x", "headers": "hunter2"}),
        ("command", {"command": "a", "env": ["hunter2"]}),
        ("command", {"command": "a", "enviroment": {"A": "hunter2"}}),
    ):
        with pytest.raises(errors.InvalidParameterValue) as caught:
            ledger.job("bad", handler=handler, target=target)
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
    ({"payload": {"a": [10**309]}}, "payload contains a number of 1.8e308 or more"),
    ({"payload": -(10**309)}, "payload contains a number of 1.8e308 or more"),
    ({"payload_schema": f'{{"a": "{BIG}"}}'}, "payload_schema has 65545 bytes of JSON"),
    ({"labels": Jsonb({"a b": "x"})}, "labels has the key 'a b'"),
    ({"labels": Jsonb({"-a": "x"})}, "labels has the key '-a'"),
    ({"labels": Jsonb({"k" * 64: "x"})}, "labels has the key 'kkk"),
    ({"labels": Jsonb({"team": 1})}, "labels has team = 1"),
    ({"labels": Jsonb({"team": {"name": "data"}})}, 'labels has team = {"name": "data"}'),
    ({"labels": Jsonb({"team": ""})}, 'labels has team = ""'),
    ({"labels": Jsonb({"team": "a\nb"})}, "labels has team = "),
    ({"labels": Jsonb({"team": "x" * 201})}, "labels has team = "),
    ({"labels": Jsonb({f"k{n}": "x" for n in range(51)})}, "labels has 51 keys; the limit is 50"),
    ({"retry_backoff": [None, "1 m"]}, "retry_backoff contains a NULL"),
    ({"retry_backoff": ["1 m", "-5 m"]}, "retry_backoff contains a negative duration"),
    ({"retry_backoff": ["-178000000 years"]}, "retry_backoff contains a negative duration"),
    ({"retry_backoff": "{{1 m},{5 m}}"}, "retry_backoff is a multidimensional array"),
    ({"retry_backoff": "[0:1]={1 m,5 m}"}, "retry_backoff has a first index other than 1"),
    ({"retry_on": [["A", "B"]]}, "retry_on is a multidimensional array"),
    ({"retry_on": ["OSError", None]}, "retry_on has a NULL as element 2"),
    ({"never_retry_on": ["OSError", ""]}, "never_retry_on has '' as element 2"),
    ({"retry_on": ["A"] * 101}, "retry_on has 101 elements; the limit is 100"),
    ({"retry_on": ["A" * 201]}, "retry_on has 'AAA"),
    ({"scope_kind": "t", "scopes": [["a", "b"], ["c", "d"]]}, "scopes is a multidimensional array"),
    ({"scope_kind": "t", "scopes": ["a", None]}, "scopes has a NULL as element 2"),
    ({"scope_kind": "t", "scopes": [""]}, "scopes has '' as element 1"),
    ({"scope_kind": "t", "scopes": ["a\nb"]}, "as element 1"),
    ({"scope_kind": "t", "scopes": ["a" * 201]}, "as element 1"),
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
    ledger.job("job", schedule=None)
    for payload in (BIG, nested(JSON_DEPTH + 1)):
        for call in ("trigger('job', payload => %s)", "enqueue('job', payload => %s)"):
            with pytest.raises(errors.InvalidParameterValue, match="job job: payload"):
                ledger.values(f"SELECT {call}", Jsonb(payload))
    assert ledger.values("SELECT FROM executions") == []


def test_a_workers_result_that_is_too_deep_is_not_stored(ledger: Ledger) -> None:
    ledger.job("job", schedule=None, handler="external", target={})
    ledger.trigger("job")
    number, token = ledger.one("SELECT id, lease_token FROM claim_next('default', 'w')")
    assert ledger.one("SELECT finish(%s, %s, %s)", number, token, Jsonb(nested(101))) == "ok"
    row = ledger.one("SELECT status, result, error_code, error_msg FROM executions")
    assert row[:3] == ("SUCCESS", None, "result_invalid")
    assert row[3] == "the result is nested more than 100 levels deep; not stored"


OLD_TARGETS: list[tuple[str, dict[str, Any], str]] = [
    ("sql", {}, "target.sql: is missing; add it; UPDATE jobs SET target = …"),
    ("sql", {"sql": 5}, "target.sql = 5: should be a valid string"),
    ("http", {"method": "GET"}, "target.url: is missing"),
    ("http", {"url": "http://x:y/"}, "target.url: must begin with http:// or https://"),
    ("python", {"python": "no colon"}, 'target.python = "no colon": has an invalid format'),
    ("command", {"command": ["a"], "cwd": "b"}, 'target.cwd = "b": is not an absolute path'),
    ("command", {"command": "a", "env": {"A": 5}}, "target.env.A: is neither a text nor"),
]


async def test_an_old_row_with_a_bad_target_shows_its_spec_error_and_does_not_fire(
    ledger: Ledger, database_url: str
) -> None:
    bad = {f"bad{number}": row for number, row in enumerate(OLD_TARGETS)}
    ledger.job("good", schedule="* * * * *")
    for name, (handler, target, _) in bad.items():
        ledger.job(name, schedule="* * * * *", source="file")
        ledger.trigger(name)
        with ledger.unchecked():
            ledger.edit(name, handler=handler, target=target)
    ledger.travel(by=MINUTE)
    async with runners(database_url, {}, {}) as (one, two):
        assert [s.claimed.key.job_name for s in await one.settle()] == ["good"]
        for name, (_, _, said) in bad.items():
            assert said in ledger.one("SELECT spec_error FROM jobs WHERE name = %s", name)
            assert ledger.parked(name) == "spec_error"
            assert ledger.statuses(name) == ["PENDING"]
            # It can be paused and resumed as it is, and a corrected one runs.
            ledger.values("SELECT pause(%s), resume(%s)", name, name)
            ledger.edit(name, handler="python", target={"python": "tests:work"})
        assert {s.claimed.key.job_name for s in await two.settle()} >= bad.keys()
    assert ledger.values("SELECT name FROM jobs WHERE spec_error IS NOT NULL") == []


async def test_what_a_claim_has_won_does_not_wait_for_the_note_about_a_broken_job(
    ledger: Ledger, database_url: str
) -> None:
    """Somebody edits the broken job: its spec_error is recorded by a later claim."""
    ledger.job("bad", schedule="* * * * *")
    ledger.job("good", schedule="* * * * *")
    with ledger.unchecked():
        ledger.edit("bad", schedule="no schedule")
    ledger.travel(by=MINUTE)
    async with runners(database_url, {}) as (one,):
        with psycopg.connect(database_url) as editor:
            editor.execute("SELECT FROM cronledger.jobs WHERE name = 'bad' FOR NO KEY UPDATE")
            with capture_logs() as logs:
                assert [s.claimed.key.job_name for s in await one.settle()] == ["good"]
            assert "claim_followup_failed" not in [x["event"] for x in logs]
            assert ledger.one("SELECT spec_error FROM jobs WHERE name = 'bad'") is None
        await one.repair()
        await one.settle()
        assert ledger.one("SELECT spec_error FROM jobs WHERE name = 'bad'") is not None


def test_executions_claimed_after_a_refused_one_have_tokens_of_their_own(ledger: Ledger) -> None:
    for name in ("a", "b", "c"):
        ledger.job(name, schedule=None)
        ledger.values("SELECT enqueue(%s)", name)
    ledger.values(
        "ALTER TABLE executions ADD CHECK (job_name <> 'a' OR status <> 'RUNNING') NOT VALID"
    )
    claimed = ledger.values(
        "SELECT job_name, how, lease_token FROM cronledger_internal.claim_due('me', '{default}',"
        " '{python}', '{tests:work}', ARRAY[gen_random_uuid(), gen_random_uuid()], NULL)"
    )
    assert [(job, how) for job, how, _ in claimed] == [("a", "refused"), ("b", "won"), ("c", "won")]
    assert len({token for _, how, token in claimed if how == "won"}) == 2
