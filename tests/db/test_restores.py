"""A ledger that goes back under a live replica: a snapshot, a restore, a failover without the last
commits. What a replica has read before must not outlive the rows that it read."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import product

import psycopg
import pytest
from psycopg import sql

from cronledger.audit.verify import verify
from cronledger.ledger import identity
from cronledger.ledger.access import connect
from cronledger.ledger.migrate import migrate
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.testing import Travel
from tests.database import Databases
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


Restore = Callable[[], None]


@pytest.fixture(params=first_fast(["rows", "schema", "database"]))
def restores(
    request: pytest.FixtureRequest, ledger: Ledger, databases: Databases
) -> Iterator[Callable[[], Restore]]:
    """Takes a snapshot of the ledger; answers what restores it: its rows, its schema, or another
    database under the same name, which an operator accepts."""
    copies: list[str] = []

    def of_rows() -> Restore:
        ledger.values("CREATE SCHEMA snapshot")
        for_each_table(ledger.url, "CREATE TABLE snapshot.{0} AS TABLE cronledger.{0}")

        def restore() -> None:
            if request.param == "schema":  # as after `pg_restore --clean`
                ledger.values("DROP SCHEMA cronledger CASCADE")
                migrate(ledger.url)
                Travel(ledger.url).close()
            put_back = "INSERT INTO cronledger.{0} ({1}) SELECT {1} FROM snapshot.{0}"
            for_each_table(ledger.url, "TRUNCATE cronledger.{0}", put_back)

        return restore

    def of_database() -> Restore:
        name = ledger.one("SELECT current_database()")
        _without_connections(databases, name)
        copies.append(databases.clone(name))
        _reconnect(ledger)

        def restore() -> None:
            databases.drop(name)
            with psycopg.connect(databases.url("postgres"), autocommit=True) as c:
                old, new = map(sql.Identifier, (copies.pop(), name))
                c.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(old, new))
            _reconnect(ledger)
            with connect(ledger.url) as c:
                assert identity.accept(c, skip_missed=False).why is not None

        return restore

    yield of_database if request.param == "database" else of_rows
    for left in copies:
        databases.drop(left)


def _without_connections(databases: Databases, name: str) -> None:
    """A database is copied only while nobody is connected to it."""
    with psycopg.connect(databases.url("postgres"), autocommit=True) as c:
        c.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
            [name],
        )


def _reconnect(ledger: Ledger) -> None:
    ledger.close()
    Ledger.__init__(ledger, ledger.url)


async def settled(runner: Runner) -> list[datetime]:
    """The plan_times that it starts, once its connections are there again; each is finished."""
    for _ in range(20):
        try:
            await runner.check_in()
            started = await runner.settle()
        except psycopg.OperationalError:
            continue
        for start in list(started):
            await runner.finish(start)
        return [start.claimed.key.plan_time for start in started]
    raise AssertionError("the runner does not get back to its database")


@pytest.mark.long
async def test_a_live_replica_follows_a_ledger_that_was_restored(
    ledger: Ledger, restores: Callable[[], Restore]
) -> None:
    """Neither an edit that is lost, nor the next one, which bears the same number, is missed."""
    ledger.job(schedule="*/5 * * * *", overlap="allow", payload={"edit": 0})
    async with runners(ledger.url, {}) as (runner,):
        ledger.travel(by=5 * MINUTE)
        assert len(await settled(runner)) == 1
        restore = restores()
        ledger.edit(schedule="*/10 * * * * *", payload={"edit": 1})
        ledger.travel(by=MINUTE)
        assert await settled(runner)
        restore()

        began = ledger.now()
        ledger.travel(by=5 * MINUTE)
        ran = await settled(runner)
        assert [(at.minute % 5, at.second) for at in ran if at > began] == [(0, 0)]
        ledger.edit(schedule="*/2 * * * *", payload={"edit": 2})
        assert ledger.one("SELECT max(revision) FROM job_revisions") == 2
        edited = ledger.now()
        for _ in range(5):
            ledger.travel(by=MINUTE)
            ran += await settled(runner)
        later = [at for at in ran if at > edited]
        assert len(later) in (2, 3)
        assert {(at.minute % 2, at.second) for at in later} == {(0, 0)}
        paid = "SELECT DISTINCT payload ->> 'edit' FROM executions WHERE plan_time > %s"
        assert ledger.values(paid, edited) == ["2"]
    assert [str(violation) for violation in verify(ledger.url)] == []


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
