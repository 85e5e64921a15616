"""Exit codes, and messages that say what to do; secrets are never printed."""

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cronledger.cli.failures import explain
from tests.cli.conftest import Cli

SECRET = "hunter2"
NOWHERE = f"postgresql://u:{SECRET}@127.0.0.1:1/x?connect_timeout=2"
NEED_THE_LEDGER = [
    ["migrate"],
    ["migrate", "--check"],
    ["next", "some-job"],
    ["jobs", "list", "--json"],
    ["jobs", "show", "j"],
    ["jobs", "pause", "j"],
    ["jobs", "resume", "j"],
    ["jobs", "remove", "j"],
    ["trigger", "j"],
    ["executions", "list"],
    ["executions", "show", "1"],
    ["executions", "output", "1"],
    ["runners"],
    ["run", "--wait", "0"],
]


@pytest.mark.parametrize("arguments", NEED_THE_LEDGER, ids=" ".join)
def test_without_a_database_both_remedies_are_named(bare: Cli, arguments: list[str]) -> None:
    said = bare(*arguments)
    assert said.exit_code == 2
    assert "CRONLEDGER_DATABASE_URL=postgresql://" in said.stderr
    assert "CRONLEDGER_DATABASE_URL=embedded" in said.stderr
    assert said.stdout == ""


@pytest.mark.parametrize("arguments", NEED_THE_LEDGER[:-1], ids=" ".join)
def test_an_unreachable_database_exits_3(
    bare: Cli, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", NOWHERE)
    said = bare(*arguments)
    assert said.exit_code == 3
    assert "the database does not answer" in said.stderr
    assert SECRET not in said.output


@pytest.mark.parametrize("arguments", NEED_THE_LEDGER[2:-1], ids=" ".join)
def test_a_database_without_the_schema_exits_4(
    bare: Cli, arguments: list[str], empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    said = bare(*arguments)
    assert said.exit_code == 4
    assert "cronledger migrate" in said.stderr


def test_bad_settings_exit_2_all_at_once(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", f"mysql://u:{SECRET}@h/d")
    monkeypatch.setenv("CRONLEDGER_SLOTS", "many")
    said = bare("jobs", "list")
    assert said.exit_code == 2
    assert "CRONLEDGER_DATABASE_URL" in said.stderr
    assert 'CRONLEDGER_SLOTS = "many"' in said.stderr
    assert SECRET not in said.output


def test_the_file_here_gives_settings(bare: Cli, surroundings: Path, database_url: str) -> None:
    here = surroundings / "cronledger.toml"
    here.write_text(f"[cronledger]\ndatabase_url = {database_url!r}\n[jobs.x]\nnonsense = 1\n")
    assert bare("jobs", "list").exit_code == 0
    here.write_text("[cronledger]\nslotz = 3\n")
    said = bare("jobs", "list")
    assert said.exit_code == 2
    assert "cronledger.toml: cronledger.slotz" in said.stderr
    for text in ("[cronledger", "cronledger = 3"):
        here.write_text(text)
        said = bare("jobs", "list")
        assert said.exit_code == 2
        assert said.stderr.startswith("Error: cronledger.toml: ")


def test_a_role_without_the_right_exits_2(cli: Cli, database_url: str) -> None:
    with psycopg.connect(database_url) as c:
        role = sql.Identifier(f"nobody_of_{c.info.dbname}")
        c.execute(sql.SQL("CREATE ROLE {}").format(role))  # rolled back by what is refused
        c.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refusal:
            c.execute("SELECT * FROM cronledger.jobs")
        c.rollback()
    failure = explain(refusal.value)
    assert failure is not None
    assert failure.code == 2
    assert "permission denied" in failure.text
    assert "use a role with that right" in failure.text


def test_a_defect_is_not_explained_away() -> None:
    assert explain(RuntimeError("a defect")) is None
