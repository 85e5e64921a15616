"""Scopes that retire and return several times before they are planned keep all of their past."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from cronledger.audit.verify import verify
from cronledger.cli import main
from cronledger.ledger.reports import Reports
from cronledger.rules.model import ScopeKey
from cronledger.sources.backfill import past
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.ledger_bench import STOPPED, TICK

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
FLAPS = (("{b}", 2), ("{a,b}", 11), ("{b}", 3), ("{a,b}", 5))
"""The scopes from then on, and for how many firings."""
Set = Callable[[str], None]


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """A ledger whose clock stands still, half a second after a minute, until a test moves it."""
    at = ledger.now().replace(second=0, microsecond=500_000) + MINUTE
    ledger.values(STOPPED.format(at=at.isoformat()))
    return ledger


def pass_time(ledger: Ledger, by: timedelta) -> None:
    ledger.values("UPDATE time_travel SET ahead = ahead + %s", by)


@pytest.fixture(params=["edit", "provider"])
def scopes(ledger: Ledger, request: pytest.FixtureRequest) -> Set:
    """A job that runs in each minute, and how an operator or its provider sets its scopes."""
    return job_of(ledger, request.param)


def job_of(ledger: Ledger, by: str, **columns: Any) -> Set:
    given = {
        "schedule": "* * * * *", "catch_up": "all", "catch_up_limit": 100, "overlap": "allow",
        "scope_kind": "shard", "scopes": ["a", "b"] if by == "edit" else None, **columns,
    }  # fmt: skip
    ledger.job(**given)

    def set_scopes(names: str) -> None:
        if by == "edit":
            ledger.values(f"UPDATE jobs SET scopes = '{names}'")
        else:
            ledger.values(f"SELECT cronledger_internal.set_scopes('job', 'shard', '{names}')")

    set_scopes("{a,b}")
    return set_scopes


def flap(ledger: Ledger, scopes: Set) -> list[datetime]:
    """Let the scopes change while no replica plans. Return when they did."""
    pass_time(ledger, 4 * MINUTE)
    changed = []
    for names, minutes in FLAPS:
        scopes(names)
        changed.append(ledger.now())
        pass_time(ledger, minutes * MINUTE)
    return changed


async def settle(one: Runner) -> None:
    while await one.settle():
        for start in list(one.held):
            await one.finish(start)


def history(ledger: Ledger, scope: str = "a") -> list[Any]:
    return ledger.values(
        "SELECT retired_at, returned_at FROM scope_retirements WHERE scope_id = %s ORDER BY 1",
        scope,
    )


def skips(ledger: Ledger, scope: str = "a") -> list[Any]:
    return ledger.values(
        "SELECT reason, from_plan_time, count FROM skips WHERE scope_id = %s ORDER BY 2", scope
    )


def ran(ledger: Ledger, scope: str) -> int:
    return int(ledger.one("SELECT count(*) FROM executions WHERE scope_id = %s", scope))


def violations(url: str) -> list[str]:
    return [str(violation) for violation in verify(url)]


async def test_i2_what_is_due_between_two_retirements_runs(
    ledger: Ledger, scopes: Set, database_url: str
) -> None:
    first, back, second, again = flap(ledger, scopes)
    assert history(ledger) == [(first, back), (second, again)]
    async with runners(database_url, {}) as (one,):
        await settle(one)
    half = SECOND / 2
    assert skips(ledger) == [
        ("retired", first + MINUTE - half, 2), ("retired", second + MINUTE - half, 3),
    ]  # fmt: skip
    assert (ran(ledger, "a"), ran(ledger, "b")) == (4 + 11 + 5, 4 + 2 + 11 + 3 + 5)
    assert ledger.values("SELECT retired_at FROM schedules") == [None, None]
    assert violations(database_url) == []


async def test_what_was_due_before_a_scope_retired_is_missed_while_it_is_retired(
    ledger: Ledger, scopes: Set, database_url: str
) -> None:
    flap(ledger, scopes)
    scopes("{b}")
    pass_time(ledger, 2 * MINUTE)
    async with runners(database_url, {}) as (one,):
        await settle(one)
    reasons = [(reason, count) for reason, _, count in skips(ledger)]
    assert reasons == [
        ("missed", 4), ("retired", 2), ("missed", 11), ("retired", 3), ("missed", 5), ("retired", 2)
    ]  # fmt: skip
    assert (ran(ledger, "a"), ledger.parked(scope="a")) == (0, "retired")
    assert violations(database_url) == []


async def test_verify_finds_skips_that_no_retirement_of_a_provided_scope_explains(
    ledger: Ledger, database_url: str
) -> None:
    flap(ledger, job_of(ledger, "provider"))
    async with runners(database_url, {}) as (one,):
        await settle(one)
    second = history(ledger)[1][0]
    ledger.values("DELETE FROM scope_retirements WHERE retired_at = %s", second)
    (found,) = verify(database_url)
    assert (found.kind, found.plan_time) == ("untrue_skip", second + MINUTE - SECOND / 2)


@contextmanager
def open_transaction(ledger: Ledger) -> Iterator[Set]:
    options = "-csearch_path=cronledger,cronledger_internal"
    with psycopg.connect(ledger.url, options=options) as c:

        def execute(statement: str) -> None:
            c.execute(statement.encode())
            pass_time(ledger, MINUTE)

        yield execute
    pass_time(ledger, TICK)


WITH, WITHOUT = (f"SELECT set_scopes('job', 'shard', '{x}')" for x in ("{a,b}", "{b}"))
AT_ONCE = "SET CONSTRAINTS ALL IMMEDIATE"


@pytest.mark.parametrize(
    ("before", "statements", "retirements"),
    [
        ("{a,b}", [WITHOUT, WITH], ["ended"]),
        ("{a,b}", [WITHOUT, WITH, WITHOUT], ["ended", "commit"]),
        ("{b}", [WITH, WITHOUT], ["open"]),
        ("{b}", [WITH, WITHOUT, WITH], ["commit ends"]),
        ("{a,b}", [WITHOUT, AT_ONCE], ["ended", "commit"]),
        ("{a,b}", [WITHOUT, AT_ONCE, WITH], ["ended"]),
        ("{b}", [WITH, AT_ONCE], ["commit ends"]),
    ],
)
async def test_only_what_is_committed_is_a_retirement(
    ledger: Ledger, database_url: str, before: str, statements: list[str], retirements: list[str]
) -> None:
    """A change that its own transaction takes back was never in force."""
    scopes = job_of(ledger, "provider")
    scopes("{b}")
    gone = ledger.now()
    pass_time(ledger, MINUTE)
    scopes(before)
    back = ledger.now()
    pass_time(ledger, 3 * MINUTE)
    with open_transaction(ledger) as execute:
        for statement in statements:
            execute(statement)
        commit = ledger.now()
    meant = {
        "ended": (gone, back), "open": (gone, None), "commit ends": (gone, commit),
        "commit": (commit, None),
    }  # fmt: skip
    assert history(ledger) == [meant[name] for name in retirements]
    pass_time(ledger, 5 * MINUTE)
    async with runners(database_url, {}) as (one,):
        await settle(one)
    assert violations(database_url) == []


async def test_a_return_after_the_clock_went_back_leaves_what_was_planned_as_retired(
    ledger: Ledger, database_url: str
) -> None:
    scopes = job_of(ledger, "provider")
    scopes("{b}")
    gone = ledger.now()
    pass_time(ledger, 10 * MINUTE)
    async with runners(database_url, {}) as (one,):
        await settle(one)
        planned = ledger.now()
        pass_time(ledger, -8 * MINUTE)
        scopes("{a,b}")
        assert history(ledger) == [(gone, planned)]
        pass_time(ledger, 9 * MINUTE)
        await settle(one)
    assert [(reason, count) for reason, _, count in skips(ledger)] == [("retired", 10)]
    assert ran(ledger, "a") == 1
    assert violations(database_url) == []


async def test_a_step_for_deadlines_knows_the_retirements_that_are_planned(
    ledger: Ledger, scopes: Set, database_url: str
) -> None:
    ledger.edit(start_by="10s")
    flap(ledger, scopes)
    async with runners(database_url, {}) as (one,):
        await settle(one)
        await one.repair()
    at = {row[1].minute for row in skips(ledger)}
    breached = ledger.values("SELECT plan_time FROM breaches WHERE scope_id = 'a'")
    assert len(breached) == 4 + 11 + 5 - 1  # the last one is not late yet
    assert at.isdisjoint(plan_time.minute for plan_time in breached)
    assert violations(database_url) == []


async def test_why_and_backfill_know_the_retirements_of_a_scope(
    ledger: Ledger, scopes: Set, database_url: str
) -> None:
    first, back, *_ = flap(ledger, scopes)
    async with runners(database_url, {}) as (one,):
        await settle(one)
    moment = (first + MINUTE).replace(microsecond=0).isoformat()
    arguments = ["why", "job", moment, "--scope", "a"]
    answer = CliRunner(env={"CRONLEDGER_DATABASE_URL": database_url}).invoke(main, arguments)
    assert f"{first:%H:%M:%S}" in answer.output
    assert f"{back:%H:%M:%S}" in answer.output
    with psycopg.connect(database_url, autocommit=True) as connection:
        reports = Reports.over(connection, "cronledger")
        found = past(reports, ScopeKey("job", "shard", "a"), first - 4 * MINUTE, ledger.now())
    assert len(found.plan_times) == 4 + 11 + 5


def test_retirements_are_kept_as_long_as_executions(ledger: Ledger, scopes: Set) -> None:
    _, back, *_ = flap(ledger, scopes)
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
