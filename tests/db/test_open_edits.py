"""Edits in a transaction that stays open take effect at its COMMIT (I10)."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from tests.db.support.engine import MINUTE, SECOND, TICK, Ledger, Runner, waiting
from tests.marks import first_fast
from tests.waiting import eventually

OPEN = 14 * MINUTE
"""For so long the transaction stays open."""
EVERY_SECOND = "UPDATE jobs SET schedule = '* * * * * *'"
NEW_JOB = (
    "INSERT INTO jobs (name, schedule, handler, target, catch_up, overlap) VALUES"
    " ('new', '* * * * *', 'python', '{\"python\": \"tests:work\"}', 'all', 'allow')"
)


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """A ledger whose clock stands still until a test moves it.

    It stands in the middle of a second: nothing becomes due in the TICK after a COMMIT.
    """
    at = ledger.now().replace(microsecond=500_000) + SECOND
    ledger.stop_clock(at)
    return ledger


Execute = Callable[[str], list[Any]]


@contextmanager
def transaction(ledger: Ledger) -> Iterator[Execute]:
    """A transaction that is committed at the end of the block; what follows comes later."""
    options = "-csearch_path=cronledger,cronledger_internal"
    with psycopg.connect(ledger.url, options=options) as connection:

        def execute(statement: str) -> list[Any]:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

        yield execute
    ledger.pass_time(TICK)


def edited(ledger: Ledger, *statements: str) -> datetime:
    """When the COMMIT of these statements began; each of them waited in its open transaction."""
    with transaction(ledger) as execute:
        for statement in statements:
            execute(statement)
            ledger.pass_time(OPEN / len(statements))
        return ledger.now()


def fired(ledger: Ledger, after: datetime) -> list[Any]:
    """The executions of a schedule with later plan_times than `after`."""
    return ledger.values(
        "SELECT job_name, scope_id, revision, plan_time FROM executions"
        " WHERE trigger = 'schedule' AND plan_time > %s ORDER BY 1, 2, 4", after,
    )  # fmt: skip


# With how many firings there are in the minute after the COMMIT.
EDITS: list[tuple[Sequence[str], int]] = [
    ([EVERY_SECOND], 60),
    # Two edits: the first was never in force.
    ([EVERY_SECOND, "UPDATE jobs SET schedule = '*/2 * * * * *'"], 30),
    ([EVERY_SECOND, "SELECT pause('job')"], 0),
    (["SELECT pause('job')", EVERY_SECOND, "SELECT resume('job')"], 60),
    (["SELECT retire('job')"], 0),
    (["SELECT retire('job')", "UPDATE jobs SET retired_at = NULL"], 1),
    (["DELETE FROM jobs"], 0),
    (["UPDATE jobs SET queue = 'other'", "UPDATE jobs SET queue = 'default'"], 1),
    ([EVERY_SECOND, "SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL IMMEDIATE"], 60),
    (["SET CONSTRAINTS ALL IMMEDIATE", EVERY_SECOND, "UPDATE jobs SET payload = '1'"], 60),
    (["SAVEPOINT a", EVERY_SECOND, "ROLLBACK TO a"], 1),
    (["SAVEPOINT a", EVERY_SECOND, "RELEASE a"], 60),
]


@pytest.mark.parametrize(("statements", "following"), first_fast(EDITS), ids=lambda x: str(x)[:60])
async def test_i10_an_edit_takes_effect_at_its_commit(
    ledger: Ledger, one: Runner, statements: Sequence[str], following: int
) -> None:
    """What was due before the COMMIT is due under the old definition, and nothing else is."""
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    began = ledger.now()
    committed = edited(ledger, *statements)
    dates = ledger.values("SELECT effective_from FROM job_revisions WHERE revision > 1 ORDER BY 1")
    assert all(date >= committed for date in dates)
    await one.run_due()
    assert {row[2] for row in fired(ledger, began)} <= {1}
    # What was due before a pause keeps its place until the resume.
    assert ledger.accounted() == (14 if "pause" not in statements[-1] else 0)
    ledger.pass_time(MINUTE)
    assert await one.run_due() == following
    assert ledger.violations() == []


async def test_i10_a_new_job_and_a_resume_begin_at_their_commit(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    ledger.values("SELECT pause('job')")
    committed = edited(ledger, NEW_JOB, "SELECT resume('job')")
    born = "SELECT created_at, planned_through FROM schedules WHERE job_name = 'new'"
    assert ledger.one(born) == (committed, committed)
    dates = ledger.values("SELECT effective_from FROM job_revisions WHERE job_name = 'new'")
    assert dates == [committed]
    assert await one.run_due() == 0
    assert ledger.skipped() == [("paused", 14)]
    ledger.pass_time(MINUTE)
    assert await one.run_due() == 2
    assert ledger.violations() == []


BEGIN_SCOPES: dict[str, Sequence[str]] = {
    "a provider's answer": ["SELECT * FROM set_scopes('job', 'shard', '{a,b,c}')"],
    "an enqueue": ["SELECT enqueue('job', 'b')", "SELECT enqueue('job', 'c', key => 'k')"],
    "a claim": ["SELECT * FROM claim('job', 'worker', 'b')", "SELECT enqueue('job', 'c')"],
}  # fmt: skip


@pytest.mark.long
async def test_i10_a_pause_that_ended_by_itself_ended_then_whenever_that_is_committed(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    until = ledger.now() + 5 * MINUTE
    ledger.values("SELECT pause('job', until => %s)", until)
    ledger.pass_time(6 * MINUTE)
    with transaction(ledger) as execute:
        execute("UPDATE jobs SET paused_at = NULL")
        ledger.pass_time(2 * MINUTE)
        execute(EVERY_SECOND)
        ledger.pass_time(2 * MINUTE)
        committed = ledger.now()
    dates = ledger.values("SELECT effective_from FROM job_revisions ORDER BY revision")
    assert dates[2] == until
    assert dates[3] == committed
    assert await one.run_due() == 5
    assert ledger.skipped() == [("paused", 5)]
    assert ledger.violations() == []


@pytest.mark.parametrize("by", first_fast(BEGIN_SCOPES))
@pytest.mark.long
async def test_i10_a_scope_begins_at_its_commit(ledger: Ledger, one: Runner, by: str) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow", scope_kind="shard")
    ledger.values("SELECT * FROM cronledger_internal.set_scopes('job', 'shard', '{a}')")
    earlier = ledger.one("SELECT created_at FROM schedules")
    committed = edited(ledger, *BEGIN_SCOPES[by])
    born = dict(ledger.values("SELECT scope_id, created_at FROM schedules"))
    assert born["a"] == earlier
    assert born["b"] == born["c"] == committed
    await one.run_due()
    assert {row[1] for row in fired(ledger, earlier)} == {"a"}
    ledger.pass_time(MINUTE)
    await one.run_due()
    assert [row[1] for row in fired(ledger, committed)] == ["a", "b", "c"]
    # The worker of the claim has let its lease end.
    assert {violation.kind for violation in verify(ledger.url)} <= {"stale"}


async def test_i10_scopes_retire_and_return_at_the_commit(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow", scope_kind="shard",
               scopes=["a", "b"])  # fmt: skip
    scopes = "UPDATE jobs SET scopes = '{}'".format
    gone = edited(ledger, scopes("{a}"))
    assert ledger.one("SELECT retired_at FROM schedules WHERE scope_id = 'b'") == gone
    await one.run_due()
    assert [row[1] for row in fired(ledger, gone - OPEN)] == ["a"] * 14
    back = edited(ledger, scopes("{a,b}"))
    assert ledger.one("SELECT returned_at FROM schedules WHERE scope_id = 'b'") == back
    await one.run_due()
    assert {row[1] for row in fired(ledger, gone)} == {"a"}
    # What was due before the retirement had not started, because an open edit holds its job.
    assert ledger.skipped() == [("missed", 14), ("retired", 14)]
    ledger.pass_time(MINUTE)
    await one.run_due()
    assert [row[1] for row in fired(ledger, back)] == ["a", "b"]
    assert ledger.violations() == []


async def test_i10_skip_missed_takes_effect_at_its_commit(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow", grace="1 h")
    ledger.values("UPDATE identity SET database_oid = 0")
    edited(ledger, "SELECT accept_database(skip_missed => true)")
    assert await one.run_due() == 0
    assert ledger.skipped() == [("missed", 14)]
    assert ledger.violations() == []


async def test_a_claim_sees_the_old_definition_until_the_commit(
    ledger: Ledger, one: Runner
) -> None:
    """An open edit holds the schedules of its job: they wait for it, others do not."""
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    ledger.job("other", schedule="* * * * *")
    with transaction(ledger) as execute:
        execute("UPDATE jobs SET payload = '1' WHERE name = 'job'")
        ledger.pass_time(MINUTE)
        assert [s.claimed.key.job_name for s in await one.settle()] == ["other"]
        (seen,) = execute("SELECT revision, effective_from <= db_clock() FROM job_revisions"
                          " WHERE job_name = 'job' AND revision = 2")  # fmt: skip
        assert seen == (2, True)
    (start,) = await one.settle()
    assert start.claimed.revision == 1


def test_a_retirement_is_seen_though_the_clock_went_back(ledger: Ledger) -> None:
    """Otherwise what was due before the retirement would run after the return."""
    ledger.job(schedule="* * * * *")
    ledger.values("SELECT retire('job')")
    ledger.pass_time(-MINUTE)
    ledger.edit(retired_at=None)
    _, retired, returned = ledger.values(
        "SELECT effective_from FROM job_revisions ORDER BY revision"
    )
    assert returned > retired


def test_a_commit_ends_though_the_clock_went_back_during_it(ledger: Ledger) -> None:
    """It would otherwise date its edits again and again until the clock has caught up."""
    ledger.job(schedule="* * * * *")
    began = ledger.now()
    ledger.show("cronledger.db_now() - interval '1 second'")
    with transaction(ledger) as execute:
        execute("SET LOCAL statement_timeout = '30s'")
        execute(EVERY_SECOND)
    assert ledger.one("SELECT effective_from FROM job_revisions WHERE revision = 2") == began
    assert ledger.one("SELECT count(*) FROM undated") == 0


async def test_edits_that_wait_for_each_other_are_dated_in_their_order(ledger: Ledger) -> None:
    ledger.job(schedule="* * * * *")
    first, second = transaction(ledger), transaction(ledger)
    with first as execute:
        execute(EVERY_SECOND)

        def follow() -> None:
            with second as later:
                later("UPDATE jobs SET schedule = '@daily'")

        followed = asyncio.create_task(asyncio.to_thread(follow))
        await eventually("it waits for a lock", lambda: waiting(ledger))
        ledger.pass_time(OPEN)
    await followed
    dates = ledger.values("SELECT effective_from FROM job_revisions ORDER BY revision")
    assert dates == sorted(dates)
    assert dates[1] - dates[0] == OPEN
