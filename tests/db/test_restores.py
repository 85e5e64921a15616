"""A ledger that goes back under a live replica: a snapshot, a restore, a failover without the last
commits. What a replica has read before must not outlive the rows that it read."""

from collections.abc import Callable
from datetime import datetime
from itertools import product

import psycopg
import pytest
from psycopg import sql

from cronledger.ledger.migrate import migrate
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.testing import Travel
from tests.db.support.engine import FUNCTION, MINUTE, Ledger, Runner, runners
from tests.marks import first_fast

pytestmark = pytest.mark.own_database  # its database is copied and replaced

_TABLES = """
SELECT c.relname, ARRAY(
    SELECT a.attname::text FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attnum)
FROM pg_class c WHERE c.relnamespace = 'cronledger'::regnamespace
  AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
"""


def for_each_table(url: str, *statements: str) -> None:
    """Execute the statements with the name of each table of the ledger and its columns, without
    generated ones; no trigger fires."""
    with psycopg.connect(url) as c:
        c.execute("SET session_replication_role = replica")
        for (table, columns), statement in product(c.execute(_TABLES).fetchall(), statements):
            names = sql.SQL(", ").join(map(sql.Identifier, columns))
            c.execute(sql.SQL(statement).format(sql.Identifier(table), names))


def snapshot(ledger: Ledger, of: str) -> Callable[[], None]:
    """Copy all rows of the ledger. Return what puts them back, by itself or in a new schema."""
    ledger.values("CREATE SCHEMA snapshot")
    for_each_table(ledger.url, "CREATE TABLE snapshot.{0} AS TABLE cronledger.{0}")

    def restore() -> None:
        if of == "schema":  # as after `pg_restore --clean`
            ledger.values("DROP SCHEMA cronledger CASCADE")
            migrate(ledger.url)
            Travel(ledger.url).close()
        put_back = "INSERT INTO cronledger.{0} ({1}) SELECT {1} FROM snapshot.{0}"
        for_each_table(ledger.url, "TRUNCATE cronledger.{0}", put_back)

    return restore


async def run(runner: Runner) -> list[datetime]:
    """Return the plan_times that the runner starts and finishes."""
    await runner.check_in()
    started = await runner.settle()
    await runner.finish_all()
    return [start.claimed.key.plan_time for start in started]


@pytest.mark.parametrize("of", first_fast(["rows", "schema"]))
@pytest.mark.long
async def test_a_live_replica_follows_a_ledger_that_was_restored(ledger: Ledger, of: str) -> None:
    """Neither an edit that is lost, nor the next one, which bears the same number, is missed."""
    ledger.job(schedule="*/5 * * * *", overlap="allow", payload={"edit": 0})
    async with runners(ledger.url, {}) as (runner,):
        ledger.travel(by=5 * MINUTE)
        assert len(await run(runner)) == 1
        restore = snapshot(ledger, of)
        ledger.edit(schedule="*/10 * * * * *", payload={"edit": 1})
        ledger.travel(by=MINUTE)
        assert await run(runner)
        restore()

        began = ledger.now()
        ledger.travel(by=5 * MINUTE)
        ran = await run(runner)
        assert [(at.minute % 5, at.second) for at in ran if at > began] == [(0, 0)]
        ledger.edit(schedule="*/2 * * * *", payload={"edit": 2})
        assert ledger.one("SELECT max(revision) FROM job_revisions") == 2
        edited = ledger.now()
        for _ in range(5):
            ledger.travel(by=MINUTE)
            ran += await run(runner)
        later = [at for at in ran if at > edited]
        assert len(later) in (2, 3)
        assert {(at.minute % 2, at.second) for at in later} == {(0, 0)}
        paid = "SELECT DISTINCT payload ->> 'edit' FROM executions WHERE plan_time > %s"
        assert ledger.values(paid, edited) == ["2"]
    assert ledger.violations() == []


@pytest.mark.long
async def test_a_job_that_was_left_to_others_is_looked_at_again_when_jobs_change(
    ledger: Ledger,
) -> None:
    """Also when the jobs are those of a restored ledger, to which the replica has reconnected."""
    ledger.job(schedule="* * * * *", overlap="allow", target={"python": "m:other"})
    replica = Replica(
        url=ledger.url, settings=Settings(), functions={FUNCTION: lambda: None}, manual=True
    )
    async with runners(ledger.url, {"functions": frozenset({"m:other"})}) as (other,), replica:
        for payload in ("jobs", "accepted", "connected"):
            ledger.edit(target={"python": "m:other"})
            ledger.travel(by=MINUTE)
            await other.check_in()
            assert await replica.step() == ()
            assert ledger.parked() is None
            ledger.edit(target={"python": FUNCTION})
            ledger.travel(by=MINUTE)
            listener = replica._runtime.components.listener
            assert listener is not None
            listener.notified(payload)
            assert await replica.step()


async def test_i9_a_job_whose_history_was_not_restored_stops_no_other(
    ledger: Ledger, one: Runner
) -> None:
    for job in ("bad", "good"):
        ledger.job(job)
        ledger.trigger(job)
    ledger.values("DELETE FROM job_revisions WHERE job_name = 'bad'")
    assert [start.claimed.key.job_name for start in await one.settle()] == ["good"]
    assert "missing in job_revisions" in ledger.one(
        "SELECT spec_error FROM jobs WHERE name = 'bad'"
    )
