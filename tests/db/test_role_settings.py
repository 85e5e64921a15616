"""Whatever a role, a database or a server is set to, the ledger keeps its promises or refuses."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors, sql

from cronledger.cli import main
from cronledger.declaring.app import App, Context
from cronledger.explain.doctor_server import durable
from cronledger.ledger import server_settings
from cronledger.ledger.connections import is_disconnected
from cronledger.ledger.migrate import check, migrate
from cronledger.ledger.rows import LeaseKey
from cronledger.ledger.transactions import step_transaction
from cronledger.rules import sql_words
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import apply
from tests.database import Databases
from tests.db.support.engine import HOUR, MINUTE, Ledger, runners
from tests.marks import first_fast
from tests.waiting import eventually

pytestmark = pytest.mark.own_database  # whose settings are changed

# In groups that do not contradict each other, because each group runs everything once.
SETTINGS: dict[str, dict[str, str]] = {
    "dates and values": {
        "DateStyle": "German", "IntervalStyle": "sql_standard", "TimeZone": "Asia/Kathmandu",
        "standard_conforming_strings": "off", "escape_string_warning": "off",
        "bytea_output": "escape", "extra_float_digits": "-15", "array_nulls": "off",
        "quote_all_identifiers": "on", "transform_null_equals": "on", "exit_on_error": "on",
        "client_min_messages": "error", "check_function_bodies": "off", "row_security": "off",
    },
    "path and isolation": {
        "search_path": "hostile, pg_catalog", "synchronous_commit": "off",
        "default_transaction_isolation": "repeatable read",
    },
    "other dates and timeouts": {
        "DateStyle": "SQL, DMY", "IntervalStyle": "iso_8601", "TimeZone": "America/New_York",
        "client_encoding": "LATIN1", "search_path": "",
        "idle_session_timeout": "2s", "lock_timeout": "50ms",
        "idle_in_transaction_session_timeout": "10s",
    },
    "bytes and plans": {
        "client_encoding": "SQL_ASCII", "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
        "jit_above_cost": "0", "plan_cache_mode": "force_custom_plan", "work_mem": "64kB",
        "join_collapse_limit": "1", "constraint_exclusion": "on", "geqo_threshold": "2",
        **{f"enable_{kind}": "off" for kind in (
            "indexscan", "indexonlyscan", "bitmapscan", "nestloop", "hashjoin", "mergejoin", "sort",
            "partition_pruning", "hashagg", "material",
        )},
    },
}  # fmt: skip
POOLED = ("dates and values", "path and isolation")
"""The groups whose settings hold behind a pooler in transaction mode."""


@pytest.fixture
def others(database_url: str) -> Iterator["Others"]:
    with closing(Others(database_url)) as made:
        yield made


class Others(Ledger):
    """A ledger, and what its owner sets. Our own connections are older than that."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.name = self.one("SELECT current_database()")
        half_past = self.now().replace(minute=30, second=0, microsecond=0)
        self.travel(to=half_past + HOUR)
        self.values("SET timezone = UTC")
        # What would be called instead of PostgreSQL's own.
        self.values(
            "CREATE SCHEMA hostile;"
            "CREATE FUNCTION hostile.unnest(text[]) RETURNS SETOF text LANGUAGE sql"
            " AS 'SELECT NULL';"
            "CREATE FUNCTION hostile.set_config(text, text, boolean) RETURNS text LANGUAGE sql"
            " AS 'SELECT $2'"
        )

    def set(self, settings: Mapping[str, str]) -> None:
        """From now on every new connection begins with these: of its database, or of its role."""
        for number, (name, value) in enumerate(settings.items()):
            whom = "ALTER ROLE CURRENT_USER IN DATABASE {}" if number % 2 else "ALTER DATABASE {}"
            values = value.split(", ") if name == "search_path" else [value]
            statement = sql.SQL(whom + " SET {} = {}").format(
                sql.Identifier(self.name), sql.Identifier(name.lower()),
                sql.SQL(", ").join(map(sql.Literal, values)),
            )  # fmt: skip
            self._connection.execute(statement)

    def connect(self) -> psycopg.Connection[Any]:
        """A client that relies on what its role is set to."""
        return psycopg.connect(self.url, autocommit=True)


def application() -> App:
    app = App("settings")

    @app.job("0 * * * *", retry_backoff=["90s"], payload={"text": "Grüße"}, jitter="1s")
    async def planned(ctx: Context) -> Any:
        await asyncio.sleep(0)
        return ctx.payload

    @app.job(max_attempts=2, retry_backoff=["0s"])
    def twice(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("Ä")

    @app.job()
    async def writes(ctx: Context) -> None:
        async with ctx.transaction() as c:
            await c.execute("INSERT INTO public.effects VALUES (%s)", [ctx.execution_id])

    @app.job()
    def writes_in_a_thread(ctx: Context) -> None:
        with ctx.transaction() as c:
            c.execute("INSERT INTO public.effects VALUES (%s)", [ctx.execution_id])

    @app.job("0 * * * *", scope_kind="tenant", scopes=lambda: ["a", "ß"], max_running=1)
    def each(ctx: Context) -> str:
        return ctx.scope_id

    return app


JOBS = ("planned", "twice", "writes", "writes_in_a_thread", "each")


def commands(url: str, where: Path, pooled: bool) -> None:
    """Commands that read and write durations, instants and texts do what they say."""
    (where / "jobs.toml").write_text(
        '[jobs.filed]\nschedule = "0 3 * * *"\ncommand = ["true"]\ngrace = "90s"\n'
    )
    environment = {
        "CRONLEDGER_DATABASE_URL": url, "CRONLEDGER_PGBOUNCER": str(pooled).lower(),
        "PATH": os.environ["PATH"],
    }  # fmt: skip

    def run(*arguments: str, codes: Sequence[int] = (0,)) -> str:
        result = CliRunner(env=environment).invoke(main, arguments)
        assert result.exit_code in codes, (arguments, result.output, result.exception)
        return result.output

    file = str(where / "jobs.toml")
    run("jobs", "apply", file)
    assert "differ" not in run("jobs", "diff", file)
    assert "90s" in run("jobs", "show", "filed").replace("1m30s", "90s")
    run("jobs", "pause", "filed", "--until", "2h")
    assert "paused" in run("jobs", "show", "filed")
    run("jobs", "resume", "filed")
    run("enqueue", "filed", "--key", "k")
    assert "filed" in run("executions", "list", "--job", "filed")
    assert "could not be" not in run("doctor", "--json", codes=(0, 1))  # of what, its own tests say
    assert "filed" in run("why", "filed", "2026-01-01T03:00Z")
    assert "no violation" in run("verify")


@pytest.mark.parametrize(
    ("name", "pooled"), first_fast([*((x, False) for x in SETTINGS), *((x, True) for x in POOLED)])
)
@pytest.mark.long
async def test_everything_works_under_any_settings(
    others: Others, tmp_path: Path, name: str, pooled: bool
) -> None:
    others.values("CREATE TABLE public.effects (id bigint)")
    others.job("foreign", handler="external", target={}, max_attempts=2, payload=["ä"])
    others.set(SETTINGS[name])
    async with others.replica(application(), pgbouncer=pooled) as replica:
        await replica.step()
        if "idle_session_timeout" in SETTINGS[name]:  # the replica's own sessions outlive it
            with closing(others.connect()) as idle:
                await eventually("the server ends an idle client", lambda: is_disconnected(idle))
            # A busy machine may stop a client or a command for longer between two statements.
            others.values(
                f"ALTER ROLE CURRENT_USER IN DATABASE {others.name}"
                " SET idle_session_timeout = '1min'"
            )
        with others.connect() as client:
            for job in ("twice", "writes", "writes_in_a_thread"):
                client.execute("SELECT cronledger.enqueue(%s)", [job])
            client.execute("SELECT cronledger.trigger('foreign')")
            # A worker in another language.
            client.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            ((id, token),) = client.execute(
                "SELECT id, lease_token FROM cronledger.claim_next('default', 'worker')"
            ).fetchall()
            client.execute("COMMIT")
            for call in ("heartbeat", "finish"):
                statement = f"SELECT cronledger.{call}(%s, %s)".encode()
                row = client.execute(statement, [id, token]).fetchone()
                assert row is not None
                assert row[0] in (b"ok", "ok")
        others.travel(by=HOUR)
        ran = await replica.step()
        assert sorted(one.job for one in ran) == sorted([*JOBS, "twice", "each"])
        assert {one.result for one in ran if one.job == "each"} == {"a", "ß"}
        await asyncio.to_thread(commands, others.url, tmp_path, pooled)
    for job in (*JOBS, "foreign"):
        assert set(others.statuses(job)) == {"SUCCESS"}, job
    assert others.one("SELECT count(*) FROM public.effects") == 2
    payload = others.one("SELECT result FROM executions WHERE job_name = 'planned'")
    assert payload == {"text": "Grüße"}
    assert others.violations() == []


# -- what a promise needs of a transaction ---------------------------------------------------------

WITNESS = """
CREATE TABLE public.witness (
    application text, tab text, durable text, isolation text, sets text, lock_timeout text);
CREATE FUNCTION public.testify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.witness SELECT current_setting('application_name'), TG_ARGV[0],
        current_setting('synchronous_commit'), current_setting('transaction_isolation'),
        current_setting('statement_timeout') || ' ' || current_setting('search_path'),
        current_setting('lock_timeout');
    RETURN NULL;
END $$;
"""
TESTIFIES = """
CREATE CONSTRAINT TRIGGER zz_testify AFTER INSERT OR UPDATE OR DELETE ON cronledger.{table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.testify({name})
"""
NOT_DURABLE = {
    "runners": "renewed every few seconds", "hosts": "renewed every few seconds",
    "undated": "empty at every COMMIT",
    "actions_in_progress": "empty at every COMMIT",
    "schema_migrations": "written by migrate alone", "time_travel": "of the tests",
    "scope_providers": "written anew by each call of a provider",
    "turns": "written anew by each run of a step",
    "schedule_keys": "written by a trigger of schedules",
    "execution_progress": "written anew every few seconds",
    "output_chunks": "written while an execution runs, which may write it again",
    "gates": "written beside executions; the sweeper repeats a wake that is lost",
}  # fmt: skip


CALLS = (
    "SELECT enqueue('job')",
    "SELECT * FROM claim_next('default', 'worker')",
    "SELECT finish(id, lease_token) FROM executions WHERE status = 'RUNNING'",
    "SELECT pause_queue('default')",
    "UPDATE jobs SET schedule = '@daily'",
    "DELETE FROM jobs",
)


def durable_tables(others: Others) -> list[str]:
    found: list[str] = others.values(
        "SELECT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE t.tgname = 'commit_durably' AND NOT c.relispartition"
        " AND t.tgtype = 30"  # before each statement: INSERT, UPDATE and DELETE
    )
    return found


def watch(others: Others) -> None:
    """From now on every COMMIT that changes the ledger testifies to its settings."""
    others._connection.execute(WITNESS)
    for table in durable_tables(others):
        others._connection.execute(
            sql.SQL(TESTIFIES).format(table=sql.Identifier(table), name=sql.Literal(table))
        )


def test_every_table_has_durable_commits(others: Others) -> None:
    rows = others.values(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'cronledger'::regnamespace"
        " AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    assert set(durable_tables(others)) == set(rows) - NOT_DURABLE.keys()


def test_a_call_is_durable_once_it_is_acknowledged(others: Others) -> None:
    others.job("job", handler="external", target={})
    others.set({"synchronous_commit": "off"})
    watch(others)
    for call in CALLS:
        with psycopg.connect(
            others.url, autocommit=True, application_name=call.partition(" ")[2][:30],
            options="-c search_path=cronledger,pg_catalog",
        ) as client:  # fmt: skip
            client.execute(call.encode())
            row = client.execute("SHOW synchronous_commit").fetchone()
            assert row == ("off",), "what holds for the session is the caller's own"
    seen = others.values("SELECT application, durable FROM public.witness")
    assert {durable for _, durable in seen} == {"on"}
    assert len({application for application, _ in seen}) == len(CALLS)


@pytest.mark.long
async def test_every_commit_of_a_replica_is_durable_and_read_committed_and_limits_lock_waits(
    others: Others,
) -> None:
    others.values("CREATE TABLE public.effects (id bigint)")
    others.job("stale", target={"python": "tests:work"}, allow_stale_reentry=True)
    others.job("swept", target={"python": "tests:work"}, max_attempts=3)
    others.set({
        "synchronous_commit": "local", "default_transaction_isolation": "repeatable read",
        "statement_timeout": "20s", "search_path": "public",
    })  # fmt: skip
    watch(others)
    async with others.replica(application(), lock_timeout="1234ms") as replica:
        for job in ("twice", "writes", "writes_in_a_thread"):
            others.trigger(job)
        others.travel(by=HOUR)
        await replica.step()
        connected = await replica._runtime.access.connect_async("cronledger heartbeats")
        async with connected, step_transaction(connected):
            await connected.execute("UPDATE cronledger.executions SET heartbeat_at = now()")
    async with runners(others.url, {"name": "one"}, {"name": "two"}) as (one, two):
        others.trigger("stale")
        others.trigger("swept")
        started = await one.settle()
        async with one.pool.connection() as c, step_transaction(c):
            await one.statements.heartbeat_leases(
                c, [LeaseKey(x.claimed.key, x.claimed.token, MINUTE) for x in started]
            )
        others.expire("stale")
        others.expire("swept")
        (stolen,) = await two.steal()
        assert stolen.claimed.how == "stolen"
        await two.sweep()
        await two.repair()
        await two.finish(stolen, release=True)
    await asyncio.to_thread(
        apply, others.url, [], source="settings", schema="cronledger", by="test"
    )
    rows = others.values(
        "SELECT DISTINCT application, durable, isolation, sets FROM public.witness"
        " WHERE application ~ '^(cronledger|test)'"
    )
    assert {(durable, isolation) for _, durable, isolation, _ in rows} == {("on", "read committed")}
    of_replica = {"cronledger", "cronledger transaction", "cronledger heartbeats"}
    assert {application for application, *_ in rows} == {*of_replica, "test one", "test two"}
    steps = {sets for application, *_, sets in rows if application.startswith("test")}
    assert steps == {"90s pg_catalog, pg_temp"}
    limits = others.values("SELECT DISTINCT application, lock_timeout FROM public.witness"
                        " WHERE tab = 'executions' AND application ~ '^cronledger'")  # fmt: skip
    assert set(limits) == {(application, "1234ms") for application in of_replica}


def test_i11_a_claim_is_refused_under_another_isolation_level(others: Others) -> None:
    """It would count the executions that were RUNNING when its transaction began."""
    others.job("job", handler="external", target={}, max_running=1)
    others.values("SELECT enqueue('job')")
    with others.connect() as client:
        for level in ("REPEATABLE READ", "SERIALIZABLE"):
            for call in ("claim_next('default', 'w')", "claim('job', 'w')"):
                client.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
                with pytest.raises(
                    errors.InvalidTransactionState, match="transaction_isolation is"
                ) as e:
                    client.execute(f"SELECT * FROM cronledger.{call}".encode())
                assert "READ COMMITTED" in str(e.value.diag.message_hint)
                client.execute("ROLLBACK")


def test_definitions_do_not_depend_on_the_settings_of_their_session(others: Others) -> None:
    """Otherwise verify would take a pause that ended by itself for an edit."""
    others.job(
        "job", starts_at="2026-01-01T00:00Z", grace="90 s", retry_jitter=0.1 + 0.2, max_attempts=2
    )
    others.set(
        {"TimeZone": "Asia/Kathmandu", "IntervalStyle": "iso_8601", "extra_float_digits": "-15"}
    )
    with others.connect() as client:
        client.execute("UPDATE cronledger.jobs SET paused_at = cronledger.db_now()")
    first, second = others.values("SELECT definition FROM job_revisions ORDER BY revision")
    assert first == second


# -- what cannot be overridden ---------------------------------------------------------------------


def test_a_database_that_cannot_store_every_text_is_refused_by_name(databases: Databases) -> None:
    name = databases.create()
    databases.drop(name)
    with psycopg.connect(databases.url("postgres"), autocommit=True) as c:
        statement = "CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"
        c.execute(sql.SQL(statement).format(sql.Identifier(name)))
    try:
        with pytest.raises(ConfigurationError, match=r"server_encoding = SQL_ASCII.*UTF8"):
            migrate(databases.url(name))
    finally:
        databases.drop(name)


@pytest.mark.parametrize(
    ("version", "number", "message"),
    [
        ("CockroachDB CCL v25.1.0 (x86_64-pc-linux-gnu)", 130000, "CockroachDB is not PostgreSQL"),
        ("PostgreSQL 14.20 on x86_64-pc-linux-gnu", 140020, "needs PostgreSQL 15 or later"),
    ],
)
def test_another_product_or_an_old_version_is_refused_by_name(
    empty_database_url: str, version: str, number: int, message: str
) -> None:
    """The functions with which a server tells its version are replaced for the connection."""
    with psycopg.connect(empty_database_url, autocommit=True) as c:
        server_settings.read(c).require()
        c.execute("CREATE SCHEMA other; SET search_path = other, pg_catalog")
        c.execute(sql.SQL(
            "CREATE FUNCTION version() RETURNS text LANGUAGE sql AS $$ SELECT {} $$;"
            "CREATE FUNCTION current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT {} $$"
        ).format(version, str(number)))  # fmt: skip
        with pytest.raises(ConfigurationError, match=message):
            server_settings.read(c).require()


async def test_a_replica_whose_role_switches_triggers_off_does_not_start(others: Others) -> None:
    others.set({"session_replication_role": "replica"})
    with pytest.raises(ConfigurationError, match="session_replication_role = replica"):
        await others.replica(App("settings")).start()


def test_doctor_names_the_setting_that_is_not_durable() -> None:
    assert durable([]).severity == "ok"
    found = durable(["fsync"])
    assert (found.severity, found.remedy) == ("warning", "set fsync = on")
    assert "fsync = off" in found.found


def test_every_word_that_the_server_reserves_is_refused_as_the_name_of_a_schema(
    ledger: Ledger,
) -> None:
    words = ledger.values("SELECT word FROM pg_get_keywords() WHERE catcode <> 'U'")
    assert len(words) > 100
    assert {*words} <= sql_words.RESERVED


@pytest.mark.long
async def test_no_statement_timeout_of_the_server_ends_a_migration_or_the_upkeep_of_partitions(
    others: Others,
) -> None:
    for slow in (
        "cronledger_internal.missing_grants() RETURNS TABLE (role text, statement text)"
        " LANGUAGE sql AS $$ SELECT '', '' FROM pg_sleep(1.5) s WHERE s::text <> '' $$",
        "cronledger_internal.check_maintenance(width interval, ahead interval)"
        " RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep(1.5) $$",
    ):
        others.values(f"CREATE OR REPLACE FUNCTION {slow}")
    others.set({"statement_timeout": "1s"})
    assert check(others.url).pending == ()
    assert await asyncio.to_thread(migrate, others.url) == []
    async with runners(others.url, {}) as (one,):
        await one.sweeper._maintain()
