"""Edits in a transaction that stays open take effect at its COMMIT (I10)."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from tests.db.support.engine import Ledger, Runner, runners, waiting
from tests.db.support.ledger_bench import STOPPED, TICK
from tests.marks import first_fast
from tests.waiting import eventually

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
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
    ledger.values(STOPPED.format(at=at.isoformat()))
    return ledger


class Editor:
    """A second connection, in a transaction."""

    def __init__(self, ledger: Ledger, connection: psycopg.Connection[Any]) -> None:
        self._ledger = ledger
        self._connection = connection

    def __call__(self, statement: str, *values: object) -> list[Any]:
        cursor = self._connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    def wait(self, by: timedelta = OPEN) -> None:
        """The transaction stays open for so long."""
        pass_time(self._ledger, by)


def pass_time(ledger: Ledger, by: timedelta) -> None:
    ledger.values("UPDATE time_travel SET ahead = ahead + %s", by)


@contextmanager
def transaction(ledger: Ledger) -> Iterator[Editor]:
    """A transaction that is committed at the end of the block; what follows comes later."""
    options = "-csearch_path=cronledger,cronledger_internal"
    with psycopg.connect(ledger.url, options=options) as connection:
        yield Editor(ledger, connection)
    pass_time(ledger, TICK)


def edited(ledger: Ledger, *statements: str) -> datetime:
    """When the COMMIT of these statements began; each of them waited in its open transaction."""
    with transaction(ledger) as execute:
        for statement in statements:
            execute(statement)
            execute.wait(OPEN / len(statements))
        return ledger.now()


def fired(ledger: Ledger, after: datetime) -> list[Any]:
    """The executions of a schedule with later plan_times than `after`."""
    return ledger.values(
        "SELECT job_name, scope_id, revision, plan_time FROM executions"
        " WHERE trigger = 'schedule' AND plan_time > %s ORDER BY 1, 2, 4", after,
    )  # fmt: skip


async def settled(one: Runner) -> int:
    """How many executions start until nothing more is due; all of them end."""
    started = await one.settle()
    for start in list(one.held):
        await one.finish(start)
    return len(started)


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
    ([EVERY_SECOND, "SET CONSTRAINTS ALL IMMEDIATE"], 60),
    ([EVERY_SECOND, "SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL IMMEDIATE"], 60),
    (["SET CONSTRAINTS ALL IMMEDIATE", EVERY_SECOND], 60),
    (["SET CONSTRAINTS ALL IMMEDIATE", EVERY_SECOND, "UPDATE jobs SET payload = '1'"], 60),
    (["SAVEPOINT a", EVERY_SECOND, "ROLLBACK TO a"], 1),
    (["SAVEPOINT a", EVERY_SECOND, "RELEASE a"], 60),
    (["BEGIN", "SELECT 1", EVERY_SECOND], 60),
]


@pytest.mark.parametrize(("statements", "following"), first_fast(EDITS), ids=lambda x: str(x)[:60])
async def test_i10_an_edit_takes_effect_at_its_commit(
    ledger: Ledger, database_url: str, statements: Sequence[str], following: int
) -> None:
    """What was due before the COMMIT is due under the old definition, and nothing else is."""
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    began = ledger.now()
    committed = edited(ledger, *statements)
    dates = ledger.values("SELECT effective_from FROM job_revisions WHERE revision > 1 ORDER BY 1")
    assert all(date >= committed for date in dates)
    async with runners(database_url, {}) as (one,):
        await settled(one)
        assert {row[2] for row in fired(ledger, began)} <= {1}
        # What was due before a pause keeps its place until the resume.
        assert ledger.accounted() == (14 if "pause" not in statements[-1] else 0)
        pass_time(ledger, MINUTE)
        assert await settled(one) == following
    assert [str(violation) for violation in verify(database_url)] == []


async def test_i10_a_new_job_begins_at_its_commit(ledger: Ledger, database_url: str) -> None:
    committed = edited(ledger, NEW_JOB)
    ((born, cursor),) = ledger.values("SELECT created_at, planned_through FROM schedules")
    assert ledger.one("SELECT effective_from FROM job_revisions") == born == cursor == committed
    async with runners(database_url, {}) as (one,):
        assert await settled(one) == 0
        pass_time(ledger, MINUTE)
        assert await settled(one) == 1
    assert [str(violation) for violation in verify(database_url)] == []


async def test_i10_a_resume_takes_effect_at_its_commit(ledger: Ledger, database_url: str) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    ledger.values("SELECT pause('job')")
    edited(ledger, "SELECT resume('job')")
    async with runners(database_url, {}) as (one,):
        assert await settled(one) == 0
        assert ledger.skipped() == [("paused", 14)]
        pass_time(ledger, MINUTE)
        assert await settled(one) == 1
    assert [str(violation) for violation in verify(database_url)] == []


async def test_i10_a_pause_that_begins_and_ends_in_one_transaction_was_never_in_force(
    ledger: Ledger, database_url: str
) -> None:
    """Its paused_until passes before the COMMIT, and does not date the resume, nor the edit."""
    ledger.job(schedule="0 0 1 1 *", catch_up="all", overlap="allow")
    with transaction(ledger) as execute:
        execute("UPDATE jobs SET schedule = '* * * * *'")
        execute("SELECT pause('job', until => db_clock() + interval '1 m')")
        execute.wait()
        execute("SELECT resume('job')")
        execute.wait()
        committed = ledger.now()
    async with runners(database_url, {}) as (one,):
        assert await settled(one) == 0
        pass_time(ledger, 2 * MINUTE)
        assert await settled(one) == 2
        assert len(fired(ledger, committed)) == 2
    assert [str(violation) for violation in verify(database_url)] == []


async def test_i10_a_pause_that_ended_by_itself_ended_then_whenever_that_is_committed(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    until = ledger.now() + 5 * MINUTE
    ledger.values("SELECT pause('job', until => %s)", until)
    pass_time(ledger, 6 * MINUTE)
    with transaction(ledger) as execute:
        execute("UPDATE jobs SET paused_at = NULL")
        execute.wait(2 * MINUTE)
        execute(EVERY_SECOND)
        execute.wait(2 * MINUTE)
        committed = ledger.now()
    dates = ledger.values("SELECT effective_from FROM job_revisions ORDER BY revision")
    assert dates[2] == until
    assert dates[3] == committed
    async with runners(database_url, {}) as (one,):
        assert await settled(one) == 5
        assert ledger.skipped() == [("paused", 5)]
    assert [str(violation) for violation in verify(database_url)] == []


SCOPES: list[tuple[str, Sequence[str]]] = [
    ("a provider's answer", ["SELECT * FROM set_scopes('job', 'shard', '{a,b,c}')"]),
    ("two answers", ["SELECT * FROM set_scopes('job', 'shard', '{a,b,c,d}')",
                     "SELECT * FROM set_scopes('job', 'shard', '{a,b,c}')"]),
    ("an enqueue", ["SELECT enqueue('job', 'b')", "SELECT enqueue('job', 'c', key => 'k')"]),
    ("a claim", ["SELECT * FROM claim('job', 'worker', 'b')", "SELECT enqueue('job', 'c')"]),
]  # fmt: skip


@pytest.mark.parametrize(
    "statements", first_fast([x[1] for x in SCOPES]), ids=[x[0] for x in SCOPES]
)
@pytest.mark.parametrize("immediate", first_fast([False, True]))
async def test_i10_a_scope_begins_at_its_commit(
    ledger: Ledger, database_url: str, statements: Sequence[str], immediate: bool
) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow", scope_kind="shard")
    ledger.values("SELECT * FROM cronledger_internal.set_scopes('job', 'shard', '{a}')")
    earlier = ledger.one("SELECT created_at FROM schedules")
    more = ["SET CONSTRAINTS ALL IMMEDIATE"] if immediate else []
    committed = edited(ledger, *statements, *more)
    born = dict(ledger.values("SELECT scope_id, created_at FROM schedules"))
    assert born["a"] == earlier
    assert born["b"] == born["c"] == committed
    async with runners(database_url, {}) as (one,):
        await settled(one)
        assert {row[1] for row in fired(ledger, earlier)} == {"a"}
        pass_time(ledger, MINUTE)
        await settled(one)
        assert [row[1] for row in fired(ledger, committed)] == ["a", "b", "c"]
    # The worker of the claim has let its lease end.
    assert {violation.kind for violation in verify(database_url)} <= {"stale"}


@pytest.mark.parametrize("by", ["edit", "provider"])
async def test_i10_scopes_retire_and_return_at_the_commit(
    ledger: Ledger, database_url: str, by: str
) -> None:
    fixed = ["a", "b"] if by == "edit" else None
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow", scope_kind="shard",
               scopes=fixed)  # fmt: skip

    def scopes(names: str) -> str:
        if by == "edit":
            return f"UPDATE jobs SET scopes = '{names}'"
        return f"SELECT * FROM cronledger_internal.set_scopes('job', 'shard', '{names}')"

    ledger.values(scopes("{a,b}"))
    async with runners(database_url, {}) as (one,):
        gone = edited(ledger, scopes("{a}"))
        assert ledger.one("SELECT retired_at FROM schedules WHERE scope_id = 'b'") == gone
        await settled(one)
        assert [row[1] for row in fired(ledger, gone - OPEN)] == ["a"] * 14
        back = edited(ledger, scopes("{a,b}"))
        assert ledger.one("SELECT returned_at FROM schedules WHERE scope_id = 'b'") == back
        await settled(one)
        assert {row[1] for row in fired(ledger, gone)} == {"a"}
        # What was due before the retirement had not started, because an open edit holds its job.
        assert ledger.skipped() == [("missed", 14), ("retired", 14)]
        pass_time(ledger, MINUTE)
        await settled(one)
        assert [row[1] for row in fired(ledger, back)] == ["a", "b"]
    assert [str(violation) for violation in verify(database_url)] == []


async def test_i10_skip_missed_takes_effect_at_its_commit(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow", grace="1 h")
    ledger.values("UPDATE identity SET database_oid = 0")
    edited(ledger, "SELECT accept_database(skip_missed => true)")
    async with runners(database_url, {}) as (one,):
        assert await settled(one) == 0
        assert ledger.skipped() == [("missed", 14)]
    assert [str(violation) for violation in verify(database_url)] == []


async def test_a_claim_sees_the_old_definition_until_the_commit(
    ledger: Ledger, database_url: str
) -> None:
    """An open edit holds the schedules of its job: they wait for it, others do not."""
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    ledger.job("other", schedule="* * * * *")
    async with runners(database_url, {}) as (one,):
        with transaction(ledger) as execute:
            execute("UPDATE jobs SET payload = '1' WHERE name = 'job'")
            execute.wait(MINUTE)
            assert [s.claimed.key.job_name for s in await one.settle()] == ["other"]
            (seen,) = execute("SELECT revision, effective_from <= db_clock() FROM job_revisions"
                              " WHERE job_name = 'job' AND revision = 2")  # fmt: skip
            assert seen == (2, True)
        (start,) = await one.settle()
        assert start.claimed.revision == 1


def test_nothing_undated_is_ever_committed(ledger: Ledger) -> None:
    ledger.job(scope_kind="shard")
    edited(ledger, NEW_JOB, "SELECT enqueue('job', 'a')", "SELECT retire('new')")
    ledger.values("DELETE FROM jobs")
    assert ledger.one("SELECT count(*) FROM undated") == 0


def test_a_retirement_is_seen_though_the_clock_went_back(ledger: Ledger) -> None:
    """Otherwise what was due before the retirement would run after the return."""
    ledger.job(schedule="* * * * *")
    ledger.values("SELECT retire('job')")
    pass_time(ledger, -MINUTE)
    ledger.edit(retired_at=None)
    _, retired, returned = ledger.values(
        "SELECT effective_from FROM job_revisions ORDER BY revision"
    )
    assert returned > retired


def test_a_commit_ends_though_the_clock_went_back_during_it(ledger: Ledger) -> None:
    """It would otherwise date its edits again and again until the clock has caught up."""
    ledger.job(schedule="* * * * *")
    began = ledger.now()
    ledger.values(
        "CREATE OR REPLACE FUNCTION db_clock() RETURNS timestamptz LANGUAGE sql VOLATILE"
        " AS $$ SELECT cronledger.db_now() - interval '1 second' $$"
    )
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
        execute.wait()
    await followed
    dates = ledger.values("SELECT effective_from FROM job_revisions ORDER BY revision")
    assert dates == sorted(dates)
    assert dates[1] - dates[0] == OPEN
