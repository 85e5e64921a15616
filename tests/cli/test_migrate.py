"""`cronledger migrate`: applies, checks, prints."""

import subprocess

import psycopg
import pytest

from cronledger.ledger.embedded import find_binaries
from cronledger.ledger.migrate import migrations
from tests.cli.conftest import Cli
from tests.database import chosen_binaries

NAMES = [migration.name for migration in migrations()]


@pytest.fixture
def empty(bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    return bare


def test_it_is_checked_applied_and_then_up_to_date(empty: Cli) -> None:
    said = empty("migrate", "--check")
    assert said.exit_code == 4
    assert said.stdout.splitlines() == [f"pending {name}" for name in NAMES]
    said = empty("migrate")
    assert said.exit_code == 0
    assert said.stdout.splitlines() == [f"applied {name}" for name in NAMES]
    for arguments in (["migrate"], ["migrate", "--check"]):
        said = empty(*arguments)
        assert said.exit_code == 0
        assert said.stdout == ""
        assert "up to date" in said.stderr
    assert empty("jobs", "list").exit_code == 0


def test_pre_leaves_what_takes_away(empty: Cli) -> None:
    assert empty("migrate", "--pre", "--check").exit_code == 4
    said = empty("migrate", "--pre")
    assert said.exit_code == 0
    assert said.stdout.splitlines() == [f"applied {name}" for name in NAMES if "_post_" not in name]
    assert empty("migrate", "--pre", "--check").exit_code == 0


def test_a_newer_schema_exits_4(cli: Cli, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute(
            "INSERT INTO cronledger.schema_migrations (name, phase, checksum, version)"
            " VALUES ('9999_post_future', 'post', 'x', '99.0.0')"
        )
    for arguments in (["migrate"], ["migrate", "--check"]):
        said = cli(*arguments)
        assert said.exit_code == 4
        assert "9999_post_future" in said.stderr
        assert "upgrade" in said.stderr


def test_another_schema(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "other")
    assert empty("migrate").exit_code == 0
    assert empty("jobs", "list", "--json").stdout == "[]\n"
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "nowhere")
    assert empty("jobs", "list").exit_code == 4


def test_sql_needs_no_database_and_applies_with_psql(
    bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = bare("migrate", "--sql")
    assert script.exit_code == 0
    psql = find_binaries(chosen_binaries()).directory / "psql"
    arguments = [str(psql), "-qX1", "-v", "ON_ERROR_STOP=1", "-d", empty_database_url]
    ran = subprocess.run(
        arguments, input=script.stdout, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    assert bare("migrate", "--check").exit_code == 0


def test_sql_goes_with_nothing_else(bare: Cli) -> None:
    said = bare("migrate", "--sql", "--check")
    assert said.exit_code == 2
    assert "--sql" in said.stderr
