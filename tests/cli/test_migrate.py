"""`cronledger migrate`: applies, checks, prints."""

import subprocess

import psycopg
import pytest

from cronledger.embedded.server import find_binaries
from cronledger.ledger.migrate import REPEATED, Migration, migrations
from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused
from tests.database import chosen_binaries

NAMES = [migration.name for migration in migrations()]


@pytest.fixture
def empty(bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    return bare


@pytest.mark.long
def test_it_is_checked_applied_and_then_up_to_date(empty: Cli) -> None:
    said = empty("migrate", "--check")
    assert said.exit_code == 4
    assert said.stdout.splitlines() == [f"pending {name}" for name in NAMES]
    assert read(empty, "migrate", "--check", code=4)["pending"] == NAMES
    # The migrations of the phase `post` take away what older replicas use.
    before = [name for name in NAMES if "_post_" not in name]
    said = done(empty, "migrate", "--pre")
    assert said.stdout.splitlines() == [f"applied {name}" for name in before]
    assert empty("migrate", "--pre", "--check").exit_code == 0
    assert empty("migrate").exit_code == 0
    for arguments in (["migrate"], ["migrate", "--check"]):
        said = done(empty, *arguments)
        assert said.stdout == ""
        assert "up to date" in said.stderr
    assert empty("jobs", "list").exit_code == 0


def test_a_newer_schema_exits_4(cli: Cli, ask: Ask) -> None:
    ask(
        "INSERT INTO cronledger.schema_migrations (name, phase, checksum, version)"
        " VALUES ('9999_post_future', 'post', 'x', '99.0.0')"
    )
    for arguments in (["migrate"], ["migrate", "--check"]):
        refused(cli(*arguments), "9999_post_future", "upgrade", code=4)


@pytest.mark.long
def test_another_schema(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "other")
    assert read(empty, "migrate") == {"schema": "other", "applied": NAMES, "pending": []}
    assert empty("jobs", "list", "--json").stdout == "[]\n"
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "nowhere")
    assert empty("jobs", "list").exit_code == 4


def psql(url: str, script: str) -> None:
    """Apply a script by hand, in one transaction."""
    program = find_binaries(chosen_binaries()).directory / "psql"
    arguments = [str(program), "-qX1", "-v", "ON_ERROR_STOP=1", "-d", url]
    ran = subprocess.run(
        arguments, input=script, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.long
def test_sql_without_a_database_prints_everything(
    bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = done(bare, "migrate", "--sql")
    assert script.stderr.startswith("Note: no database is set; these are the statements for ")
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "postgresql://127.0.0.1:1/x?connect_timeout=2")
    away = bare("migrate", "--sql")
    assert (away.exit_code, away.stdout) == (0, script.stdout)
    assert away.stderr.startswith("Note: the database is unreachable; ")
    psql(empty_database_url, script.stdout)
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    assert bare("migrate", "--check").exit_code == 0


@pytest.mark.long
def test_sql_prints_what_is_still_to_be_applied(empty: Cli, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as c:
        everything = empty("migrate", "--sql").stdout
        assert c.execute("SELECT to_regnamespace('cronledger')").fetchone() == (None,)
        psql(empty_database_url, everything)
        assert empty("migrate", "--sql").stdout == "-- the schema cronledger is up to date\n"

        c.execute("UPDATE cronledger.schema_migrations SET checksum = 'old' WHERE name = %s",
                  [REPEATED])  # fmt: skip
        functions = empty("migrate", "--sql").stdout
        assert "CREATE TABLE cronledger.jobs" not in functions
        assert "CREATE OR REPLACE FUNCTION cronledger.trigger(" in functions
        psql(empty_database_url, functions)
        assert empty("migrate", "--check").exit_code == 0

        c.execute("REVOKE SELECT ON cronledger.ledger FROM cronledger_viewer")
        grant = "GRANT SELECT ON TABLE cronledger.ledger TO cronledger_viewer;\n"
        assert empty("migrate", "--sql").stdout == grant
        psql(empty_database_url, grant)
        assert empty("migrate", "--check").exit_code == 0


@pytest.mark.long
def test_sql_of_a_new_migration_is_that_migration(
    empty: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert empty("migrate").exit_code == 0
    known = migrations()
    added = Migration("0000_pre_table", "pre", "CREATE TABLE cronledger.nine ();\n")
    taken = Migration("9001_post_table", "post", "DROP TABLE cronledger.nine;\n")
    monkeypatch.setattr("cronledger.ledger.migrate.migrations", lambda _: (added, *known, taken))
    pre = empty("migrate", "--sql", "--pre").stdout
    assert (added.text in pre, taken.text in pre, known[0].text in pre) == (True, False, False)
    psql(empty_database_url, pre)
    rest = empty("migrate", "--sql").stdout
    assert (added.text in rest, taken.text in rest) == (False, True)
    psql(empty_database_url, rest)
    assert empty("migrate", "--check").exit_code == 0


def test_sql_and_check_exclude_each_other(bare: Cli) -> None:
    refused(bare("migrate", "--sql", "--check"), "--sql")


def test_a_dropped_table_is_named(cli: Cli, ask: Ask) -> None:
    ask("DROP TABLE cronledger.sources CASCADE")
    words = ("the schema is damaged: table sources was dropped", "restore it from a backup")
    for arguments in (["migrate"], ["migrate", "--check"]):
        said = cli(*arguments)
        refused(said, *words, code=4)
        assert "up to date" not in said.stderr
