"""F7: how one stands, what there is of a job with a status, whether a scope is dirty."""

from typing import Any

import pytest
from psycopg import errors

from tests.db.support.engine import Ledger
from tests.db.support.pushes import claimed, enqueue, fail, finish

EXTERNAL: dict[str, Any] = {
    "schedule": None, "handler": "external", "target": {}, "scope_kind": "tenant",
}  # fmt: skip
STATUS = (
    "SELECT input_watermark, success_watermark, is_dirty, pending_id, running_id"
    " FROM input_status WHERE job_name = 'job' AND scope_id = 'acme'"
)


def dirty(ledger: Ledger) -> bool:
    found: bool = ledger.one("SELECT is_dirty('job', 'acme')")
    return found


def test_status_of_one_scope_through_its_life(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    assert not dirty(ledger)  # it is not there yet
    first = enqueue(ledger, scope_id="acme", watermark=1)
    assert (ledger.one(STATUS), dirty(ledger)) == ((1, None, True, first, None), True)
    held = claimed(ledger, scope="acme")
    assert ledger.one(STATUS) == (1, None, True, None, first)
    second = enqueue(ledger, scope_id="acme", watermark=2)
    finish(ledger, held)
    assert (ledger.one(STATUS), dirty(ledger)) == ((2, 1, True, second, None), True)
    finish(ledger, claimed(ledger, scope="acme"))
    assert (ledger.one(STATUS), dirty(ledger)) == ((2, 2, False, None, None), False)


def test_listing_by_job_and_status(ledger: Ledger) -> None:
    ledger.job(**EXTERNAL)
    ids = {s: enqueue(ledger, scope_id=s) for s in ("failed", "done", "held", "waits")}
    fail(ledger, claimed(ledger, scope="failed"))
    finish(ledger, claimed(ledger, scope="done"))
    claimed(ledger, scope="held")
    listed = "SELECT id FROM ledger WHERE job_name = 'job' AND outcome = %s"
    for status, scope in (
        ("FAILED", "failed"), ("SUCCESS", "done"), ("RUNNING", "held"), ("PENDING", "waits"),
    ):  # fmt: skip
        assert ledger.values(listed, status) == [ids[scope]]


def test_an_unknown_job_is_named(ledger: Ledger) -> None:
    with pytest.raises(errors.NoDataFound, match="nobody"):
        ledger.one("SELECT is_dirty('nobody')")


CALLS = {
    "enqueue('job', 'acme')": "operator", "claim('job', 'w', 'acme')": "runner",
    "take_results('default', 1)": "operator", "is_dirty('job', 'acme')": "viewer",
    "group_status(gen_random_uuid())": "viewer",
    "cronledger_internal.settle_left_behind()": "runner",
}  # fmt: skip
"""The least role that may make each call."""


def test_viewers_read_operators_push_and_take_results_and_runners_do_everything(
    ledger: Ledger,
) -> None:
    ledger.job(**EXTERNAL)
    for role in ("viewer", "operator", "runner"):
        ledger.values(f"SET ROLE cronledger_{role}")
        ledger.values("SELECT * FROM input_status")
        for call, least in CALLS.items():
            if role in (least, "runner") or (role, least) == ("operator", "viewer"):
                ledger.values(f"SELECT * FROM {call}")
            else:
                with pytest.raises(errors.InsufficientPrivilege):
                    ledger.values(f"SELECT * FROM {call}")
        ledger.values("RESET ROLE")
