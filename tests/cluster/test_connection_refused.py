"""The server answers and refuses: a wrong password, an unknown database, a revoked right."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from structlog.testing import capture_logs

from cronledger.declaring.app import App
from cronledger.ledger.migrate import migrate
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.testing import Ledger
from tests.cluster.support.harness import cronledger
from tests.cluster.support.servers import OwnServer, stopping
from tests.waiting import eventually


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnServer, str]]:
    """A server of this module's own, and the DSN of a role that needs its password, `right`."""
    server = OwnServer(tmp_path_factory.mktemp("guarded"), settings={"fsync": "off"})
    with stopping(server) as dsn:
        migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as c:
            c.execute("CREATE ROLE guarded LOGIN PASSWORD 'right' IN ROLE cronledger_runner")
            rules = server.data / "pg_hba.conf"
            rules.write_text(f"local all guarded scram-sha-256\n{rules.read_text()}")
            c.execute("SELECT pg_reload_conf()")
        yield server, make_conninfo(dsn, user="guarded", password="right")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "named", "hint"),
    [
        ({"password": "wrong"}, 'password authentication failed for user "guarded"', "PGPASSWORD"),
        ({"dbname": "absent"}, 'database "absent" does not exist', "create the database"),
        ({"user": "absent"}, 'role "absent" does not exist', "create the role"),
    ],
    ids=str,
)
def test_a_start_that_is_refused_says_so_at_once(
    guarded: tuple[OwnServer, str], tmp_path: Path, wrong: dict[str, str], named: str, hint: str
) -> None:
    """It does not wait, as it would for a database that is away."""
    ended = cronledger(make_conninfo(guarded[1], **wrong), tmp_path, "run", "--no-migrate")
    assert ended.returncode == 2, ended.stderr
    assert named in ended.stderr
    assert hint in ended.stderr
    assert "database_awaited" not in ended.stderr
    assert "wrong" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.long
async def test_a_password_that_is_changed_meanwhile_is_named(
    guarded: tuple[OwnServer, str],
) -> None:
    server, url = guarded
    with capture_logs() as logged:
        async with Replica(url=url, settings=Settings()) as replica:
            server.sql("ALTER ROLE guarded PASSWORD 'other'")
            server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                       " WHERE usename = 'guarded'")  # fmt: skip
            named = 'password authentication failed for user "guarded"'
            await eventually("it is named", lambda: [
                x for x in logged if x["event"] == "database_unreachable" and named in x["error"]
            ])  # fmt: skip
            health = replica.health()
            assert not health.ready
            assert health.database == "away"
            assert named in health.failing["check_in"]
            server.sql("ALTER ROLE guarded PASSWORD 'right'")
            await eventually("it is back", lambda: replica.health().ready)
    assert [x for x in logged if x["event"] == "database_recovered"]


@pytest.mark.long
async def test_a_replica_whose_rights_are_revoked_is_not_ready(ledger: Ledger) -> None:
    name = f"runner_{os.getpid()}"

    def alter(statement: str) -> None:
        with psycopg.connect(ledger.url, autocommit=True) as c:
            c.execute(sql.SQL(statement).format(sql.Identifier(name)))

    alter("CREATE ROLE {} LOGIN IN ROLE cronledger_runner")
    url = make_conninfo(ledger.url, user=name)
    try:
        async with Replica(App("revoked"), url=url, settings=Settings()) as replica:
            await eventually("it is ready", lambda: replica.health().ready)
            await asyncio.to_thread(alter, "REVOKE cronledger_runner FROM {}")
            replica._runtime.components.loops.wake("dispatcher")
            replica._runtime.components.loops.wake("check_in")
            await eventually("both show", lambda: (
                {"dispatcher", "check_in"} <= replica.health().failing.keys()
            ))  # fmt: skip
            health = replica.health()
            assert (health.database, health.ready) == ("ok", False)
            assert "permission denied" in health.failing["dispatcher"]
            assert replica.diagnostics().failing.keys() == health.failing.keys()
            await asyncio.to_thread(alter, "GRANT cronledger_runner TO {}")
            await eventually("it is ready again", lambda: replica.health().ready)
    finally:
        await asyncio.to_thread(alter, "DROP ROLE {}")
