"""Scopes that retire and return several times before they are planned keep all of their past."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from cronledger.ledger.reports import Reports
from cronledger.rules.model import ScopeKey
from cronledger.sources.backfill import past
from tests.db.support.commands import command
from tests.db.support.engine import MINUTE, SECOND, Ledger, Runner
from tests.marks import first_short

FLAPS = (("{b}", 2), ("{a,b}", 11), ("{b}", 3), ("{a,b}", 5))
"""The scopes from then on, and for how many firings."""
Set = Callable[[str], None]


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """A ledger whose clock stands still, half a second after a minute, until a test moves it."""
    at = ledger.now().replace(second=0, microsecond=500_000) + MINUTE
    ledger.stop_clock(at)
    return ledger


def provided(ledger: Ledger, **columns: Any) -> Set:
    """A job that runs in each minute, and how its provider sets its scopes."""
    given = {
        "schedule": "* * * * *", "catch_up": "all", "catch_up_limit": 100, "overlap": "allow",
        "scope_kind": "shard", **columns,
    }  # fmt: skip
    ledger.job(**given)

    def set_scopes(names: str) -> None:
        ledger.values("SELECT cronledger_internal.set_scopes('job', 'shard', %s)", names)

    set_scopes("{a,b}")
    return set_scopes


def flap(ledger: Ledger, scopes: Set) -> list[datetime]:
    """Let the scopes change while no replica plans. Return when they did."""
    ledger.pass_time(4 * MINUTE)
    changed = []
    for names, minutes in FLAPS:
        scopes(names)
        changed.append(ledger.now())
        ledger.pass_time(minutes * MINUTE)
    return changed


def history(ledger: Ledger) -> list[Any]:
    return ledger.values(
        "SELECT retired_at, returned_at FROM scope_retirements WHERE scope_id = 'a' ORDER BY 1"
    )


def skips(ledger: Ledger) -> list[Any]:
    return ledger.values(
        "SELECT reason, from_plan_time, count FROM skips WHERE scope_id = 'a' ORDER BY 2"
    )


def ran(ledger: Ledger, scope: str) -> int:
    return int(ledger.one("SELECT count(*) FROM executions WHERE scope_id = %s", scope))


async def test_i2_what_is_due_between_two_retirements_runs(ledger: Ledger, one: Runner) -> None:
    first, back, second, again = flap(ledger, provided(ledger))
    assert history(ledger) == [(first, back), (second, again)]
    await one.run_due()
    half = SECOND / 2
    assert skips(ledger) == [
        ("retired", first + MINUTE - half, 2), ("retired", second + MINUTE - half, 3),
    ]  # fmt: skip
    assert (ran(ledger, "a"), ran(ledger, "b")) == (4 + 11 + 5, 4 + 2 + 11 + 3 + 5)
    assert ledger.values("SELECT retired_at FROM schedules") == [None, None]
    assert ledger.violations() == []


async def test_verify_finds_skips_that_no_retirement_of_a_provided_scope_explains(
    ledger: Ledger, one: Runner
) -> None:
    flap(ledger, provided(ledger))
    await one.run_due()
    second = history(ledger)[1][0]
    ledger.values("DELETE FROM scope_retirements WHERE retired_at = %s", second)
    (found,) = verify(ledger.url)
    assert (found.kind, found.plan_time) == ("untrue_skip", second + MINUTE - SECOND / 2)


WITH, WITHOUT = (f"SELECT set_scopes('job', 'shard', '{x}')" for x in ("{a,b}", "{b}"))
AT_ONCE = "SET CONSTRAINTS ALL IMMEDIATE"


@pytest.mark.parametrize(
    ("before", "statements", "retirements"),
    first_short([
        ("{a,b}", [WITHOUT, WITH, WITHOUT], ["ended", "commit"]),
        ("{b}", [WITH, WITHOUT], ["open"]),
        ("{a,b}", [WITHOUT, AT_ONCE], ["ended", "commit"]),
        ("{a,b}", [WITHOUT, AT_ONCE, WITH], ["ended"]),
        ("{b}", [WITH, AT_ONCE], ["commit ends"]),
    ]),
)  # fmt: skip
async def test_only_what_is_committed_is_a_retirement(
    ledger: Ledger, one: Runner, before: str, statements: list[str], retirements: list[str]
) -> None:
    """A change that its own transaction takes back was never in force."""
    set_scopes = provided(ledger)
    set_scopes("{b}")
    gone = ledger.now()
    ledger.pass_time(MINUTE)
    set_scopes(before)
    back = ledger.now()
    options = "-csearch_path=cronledger,cronledger_internal"
    with psycopg.connect(ledger.url, options=options) as connection:
        for statement in statements:
            ledger.pass_time(MINUTE)
            connection.execute(statement.encode())
        ledger.pass_time(MINUTE)
        commit = ledger.now()
    meant = {
        "ended": (gone, back), "open": (gone, None), "commit ends": (gone, commit),
        "commit": (commit, None),
    }  # fmt: skip
    assert history(ledger) == [meant[name] for name in retirements]
    ledger.pass_time(5 * MINUTE)
    await one.settle()
    assert ledger.violations() == []


async def test_deadlines_why_and_backfill_know_the_retirements_of_a_scope(
    ledger: Ledger, database_url: str, one: Runner
) -> None:
    first, back, *_ = flap(ledger, provided(ledger, start_by="10s"))
    await one.run_due()
    await one.repair()
    at = {row[1].minute for row in skips(ledger)}
    breached = ledger.values("SELECT plan_time FROM breaches WHERE scope_id = 'a'")
    assert len(breached) == 4 + 11 + 5 - 1  # the last one is not late yet
    assert at.isdisjoint(plan_time.minute for plan_time in breached)
    assert ledger.violations() == []
    moment = (first + MINUTE).replace(microsecond=0).isoformat()
    answer = command(database_url, "why", "job", moment, "--scope", "a").output
    assert f"{first:%H:%M:%S}" in answer
    assert f"{back:%H:%M:%S}" in answer
    with psycopg.connect(database_url, autocommit=True) as connection:
        reports = Reports.over(connection, "cronledger")
        found = past(reports, ScopeKey("job", "shard", "a"), first - 4 * MINUTE, ledger.now())
    assert len(found.plan_times) == 4 + 11 + 5


def test_retirements_are_kept_as_long_as_executions(ledger: Ledger) -> None:
    _, back, *_ = flap(ledger, provided(ledger))
    maintain = "SELECT maintain_partitions()"
    ledger.values("UPDATE schedules SET planned_through = db_now()")
    ledger.values(maintain)
    assert len(history(ledger)) == 2
    ledger.values("SELECT cronledger_internal.record_pruned(%s)", back)
    ledger.values("UPDATE schedules SET planned_through = created_at")
    ledger.values(maintain)
    assert len(history(ledger)) == 2
    ledger.values("UPDATE schedules SET planned_through = db_now()")
    ledger.values(maintain)
    assert [start for start, _ in history(ledger)] > [back]
