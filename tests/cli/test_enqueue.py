"""`cronledger enqueue`."""

from tests.cli.conftest import Cli
from tests.cli.support.results import read, refused


def test_enqueue_makes_one_execution_or_merges(filled: Cli) -> None:
    push = ("enqueue", "manual", "--key", "k", "--payload")
    first = read(filled, *push, '{"n": 1}', "--watermark", "7")
    assert (first["status"], first["trigger"], first["payload"]) == ("PENDING", "enqueue", {"n": 1})
    second = read(filled, *push, '{"n": 2}', "--watermark", "3")
    assert (second["id"], second["payload"], second["watermark"]) == (first["id"], {"n": 2}, 7)
    assert "@" in second["requested_by"]
    assert filled("enqueue", "manual").stdout.strip() != str(first["id"])


def test_enqueue_refuses_what_it_cannot_use(filled: Cli) -> None:
    for arguments in (
        "nothing", "tenants", "tenants --scope x", "manual --payload {",
        "manual --watermark much", "manual --due-at soon", "manual --due-at 1h --key k",
    ):  # fmt: skip
        refused(filled("enqueue", *arguments.split()))


def test_enqueue_takes_the_time_at_which_the_work_is_due(filled: Cli) -> None:
    made = read(filled, "enqueue", "manual", "--due-at", "1h")
    assert made["due_at"] > made["created_at"]
    fixed = read(filled, "enqueue", "manual", "--due-at", "2090-01-01")
    assert fixed["due_at"].startswith("2090-01-01")
