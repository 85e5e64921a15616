"""`cronledger enqueue`."""

import json

from tests.cli.conftest import Cli


def test_enqueue_makes_one_execution_or_merges(filled: Cli) -> None:
    push = ("enqueue", "manual", "--key", "k", "--json", "--payload")
    first = json.loads(filled(*push, '{"n": 1}', "--watermark", "7").stdout)
    assert (first["status"], first["trigger"], first["payload"]) == ("PENDING", "enqueue", {"n": 1})
    second = json.loads(filled(*push, '{"n": 2}', "--watermark", "3").stdout)
    assert (second["id"], second["payload"], second["watermark"]) == (first["id"], {"n": 2}, 7)
    assert "@" in second["requested_by"]
    assert filled("enqueue", "manual").stdout.strip() != str(first["id"])


def test_enqueue_refuses_what_it_cannot_use(filled: Cli) -> None:
    assert filled("enqueue", "nothing").exit_code == 2
    assert filled("enqueue", "manual", "--payload", "{").exit_code == 2
    assert filled("enqueue", "tenants").exit_code == 2
    assert filled("enqueue", "tenants", "--scope", "x").exit_code == 2
    assert filled("enqueue", "manual", "--watermark", "much").exit_code == 2


def test_enqueue_takes_the_time_at_which_the_work_is_due(filled: Cli) -> None:
    made = json.loads(filled("enqueue", "manual", "--due-at", "1h", "--json").stdout)
    assert made["due_at"] > made["created_at"]
    fixed = json.loads(filled("enqueue", "manual", "--due-at", "2090-01-01", "--json").stdout)
    assert fixed["due_at"].startswith("2090-01-01")
    assert filled("enqueue", "manual", "--due-at", "soon").exit_code == 2
    assert filled("enqueue", "manual", "--due-at", "1h", "--key", "k").exit_code == 2
