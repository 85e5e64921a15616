"""Several ledgers: the file with their names, `--ledger`, and `doctor --all`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronledger.cli import main
from tests.cli.conftest import Cli
from tests.cli.support.results import done, read, refused
from tests.database import Databases
from tests.unreachable import CLOSED, silent

SECRET = "s3cret"


@pytest.fixture
def second(databases: Databases) -> Iterator[str]:
    """The DSN of another ledger, without a job."""
    name = databases.create(databases.template())
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def file(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the file of ledgers, which the setting names."""
    path = surroundings / "ledgers.toml"
    monkeypatch.setenv("CRONLEDGER_LEDGERS_FILE", str(path))
    return path


def names(cli: Cli, *before: str) -> list[str]:
    """Return the jobs that a command lists."""
    listed = done(cli, *before, "jobs", "list", "--all", "--json")
    return [row["name"] for row in json.loads(listed.stdout)]


@pytest.mark.long
def test_a_command_works_on_the_ledger_that_it_names_F94(
    filled: Cli, database_url: str, second: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f'[ledgers]\nshop = "{database_url}"\nbilling = {{ url_env = "BILLING" }}\n')
    monkeypatch.setenv("BILLING", second)
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", CLOSED)  # the name has precedence
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "elsewhere")  # is of that database
    assert names(filled, "--ledger", "shop") == ["hourly", "manual", "tenants"]
    assert names(filled, "--ledger", "billing") == []
    done(filled, "--ledger", "billing", "jobs", "apply", "jobs.toml")
    assert names(filled, "--ledger", "billing") == ["hourly", "manual", "tenants"]
    monkeypatch.delenv("CRONLEDGER_LEDGERS_FILE")
    assert len(names(filled, "--ledgers-file", str(file), "--ledger=shop")) == 3
    said = filled("--ledgers-file", str(file), "--ledger", "billing", "doctor", "--verbose")
    assert "identity: the ledger billing's own database" in said.stdout


def test_an_unknown_ledger_is_refused_by_the_known_names_F94(bare: Cli, file: Path) -> None:
    refused(bare("--ledger", "shop", "jobs", "list"), f"{file}: cannot be read")
    file.write_text(f'[ledgers]\nshop = "{CLOSED}"\nbilling = {{ url_env = "UNSET" }}\n')
    unknown = f"{file} has no ledger 'shp'; use one of billing, shop"
    refused(bare("--ledger", "shp", "jobs", "list"), unknown)
    refused(
        bare("--ledger", "billing", "jobs", "list"),
        f"{file}: ledgers.billing.url_env: names UNSET, which is not set",
    )
    # The other entries do not matter to a command.
    refused(bare("--ledger", "shop", "jobs", "list"), "the database is unreachable", code=3)
    refused(bare("jobs", "list"), f"name a ledger of {file} with --ledger")
    refused(bare("--ledger", "shop", "dev"), "`dev` works without a ledger; omit --ledger shop")
    refused(bare("--ledger", "shop", "doctor", "--all"), "--all and --ledger exclude each other")


def test_a_ledger_needs_a_file(bare: Cli) -> None:
    for arguments in (["--ledger", "shop", "jobs", "list"], ["doctor", "--all"]):
        refused(bare(*arguments), "needs the file with the ledgers; set CRONLEDGER_LEDGERS_FILE")
    Path("cronledger.toml").write_text('[ledgers]\nshop = "postgresql:///x"\n')
    refused(bare("check"), "name that file in ledgers_file")


BAD = {
    "": "ledgers: has no ledger",
    "[jobs.x]\ncommand = 'true'": "jobs: unknown table; use only [ledgers] in this file",
    f"[ledgers]\n'a/b' = '{CLOSED}'": "ledgers.a/b: is not a name of a ledger",
    f"[ledgers]\n'..' = '{CLOSED}'": "ledgers...: is not a name of a ledger",
    "[ledgers]\nx = 5": "ledgers.x: is neither a text nor a table",
    f"[ledgers]\nx = 'mysql://{SECRET}'": "ledgers.x.url: is not a PostgreSQL connection string",
    "[ledgers]\nx = {schema = 'a'}": "ledgers.x.url: is missing; add url, or url_env",
    f"[ledgers]\nx = {{url = '{CLOSED}', url_env = 'A'}}": "x.url_env: is given, and url as well",
    "[ledgers]\nx = {url_env = ''}": "x.url_env: is not the name of a variable",
    f"[ledgers]\nx = {{url = '{CLOSED}', schma = 'a'}}": "x.schma: unknown name; did you mean",
    f"[ledgers]\nx = {{url = '{CLOSED}', schema = 'select'}}": "x.schema: is a reserved word",
    f"[ledgers]\nx = {{url = '{CLOSED}', pgbouncer = 1}}": "x.pgbouncer: should be a valid boolean",
}


def test_a_bad_file_is_refused_without_its_secrets(bare: Cli, file: Path) -> None:
    for text, words in BAD.items():
        file.write_text(text)
        said = bare("doctor", "--all")
        refused(said, words)
        assert SECRET not in said.output, text


@pytest.mark.long
def test_doctor_checks_all_ledgers_and_one_that_is_away_harms_no_other_F94(
    filled: Cli, database_url: str, second: str, file: Path
) -> None:
    with silent() as mute:
        file.write_text(
            f'[ledgers]\nmute = "{mute}"\nclosed = "{CLOSED}"\nshop = "{database_url}"\n'
            f'billing = "{second}"\n'
        )
        said = filled("doctor", "--all")
        found = read(filled, "doctor", "--all", code=3)
    assert said.exit_code == 3
    assert SECRET not in said.output
    order = [line for line in said.stdout.splitlines() if line.startswith("ledger ")]
    assert order == ["ledger mute", "ledger closed", "ledger shop", "ledger billing"]
    assert "ledger closed: 1 finding: 1 problem, 0 warnings" in said.stderr
    by_ledger = {name: [x for x in found if x["ledger"] == name] for name in ("mute", "closed")}
    for name, words in (("mute", "timeout expired"), ("closed", "Connection refused")):
        (one,) = by_ledger[name]
        assert (one["check"], one["severity"]) == ("connection", "problem")
        assert "the database is unreachable" in one["found"] and words in one["found"]
        assert f"check this ledger in {file}" in one["remedy"]
    for name in ("shop", "billing"):
        checks = {x["check"]: x for x in found if x["ledger"] == name}
        assert checks["identity"]["found"] == f"the ledger {name}'s own database"


def test_the_shell_completes_names_of_ledgers(file: Path) -> None:
    file.write_text(f'[ledgers]\nshop = "{CLOSED}"\nbilling = "{CLOSED}"\n')
    environment = {
        "_CRONLEDGER_COMPLETE": "bash_complete", "COMP_WORDS": "cronledger --ledger s",
        "COMP_CWORD": "2",
    }  # fmt: skip
    done = CliRunner().invoke(main, [], prog_name="cronledger", env=environment)
    assert done.stdout == "plain,shop\n"
