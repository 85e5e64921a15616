"""Exit codes, and messages that say what to do; secrets are never printed."""

import asyncio
import traceback
from pathlib import Path

import psycopg
import pytest

from cronledger.audit.verify import verify
from cronledger.cli.failures import explain
from cronledger.ledger.access import connect
from cronledger.replica import Replica
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import check_dsn
from tests.cli.conftest import Cli
from tests.cli.support.results import refused

SECRET = "zebraokapi"
NOWHERE = f"postgresql://u:{SECRET}@127.0.0.1:1/x?connect_timeout=2"
NEED_THE_LEDGER = [
    line.split()
    for line in (
        "migrate", "migrate --check", "next some-job", "jobs list --json", "jobs show j",
        "jobs pause j", "trigger j", "executions output 1", "runners", "metrics",
        "run --wait 0",
    )
]  # fmt: skip


def test_without_a_database_both_remedies_are_named(bare: Cli) -> None:
    for arguments in NEED_THE_LEDGER:
        said = bare(*arguments)
        assert (said.exit_code, said.stdout) == (2, ""), arguments
        assert "CRONLEDGER_DATABASE_URL=postgresql://" in said.stderr
        assert "CRONLEDGER_DATABASE_URL=embedded" in said.stderr


def test_an_unreachable_database_exits_3(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", NOWHERE)
    for arguments in (*NEED_THE_LEDGER[:-1], ["doctor"]):
        said = bare(*arguments)
        assert said.exit_code == 3, arguments
        assert "the database is unreachable" in said.output
        assert SECRET not in said.output


def test_a_database_without_the_schema_exits_4(
    bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    for arguments in (*NEED_THE_LEDGER[2:-1], ["doctor"]):
        said = bare(*arguments)
        assert said.exit_code == 4, arguments
        assert "run `cronledger migrate`" in said.output


PIECES = ("zebra", "okapi", SECRET)
MISREAD = [
    "postgresql://u:zebra%okapi@127.0.0.1:1/x", "postgresql://u:zebra%00okapi@127.0.0.1:1/x",
    "postgresql://u:zebra@okapi@127.0.0.1:1/x", "postgresql://u:zebra/okapi@127.0.0.1:1/x",
    "postgresql://u:zebra@127.0.0.1:1/okapi@x", "postgresql://u:zebraokapi/x",
    "postgresql://127.0.0.1:1/x?user=u&password=zebra&okapi",
    "postgresql://127.0.0.1:1/x?user=u&password=zebra&okapi=x",
    "host=127.0.0.1 port=1 password=zebra okapi", "host=127.0.0.1 port=1 password='zebra'okapi'",
    "host=127.0.0.1 port=1 password='zebraokapi", "host=127.0.0.1 port=zebraokapi",
    "postgresql://u:zebra\udcffokapi@127.0.0.1:1/x", "zebraokapi", "mysql://u:zebraokapi@h/d",
]  # fmt: skip


@pytest.mark.parametrize("variable", ["DATABASE_URL", "LISTEN_URL"])
def test_no_part_of_an_invalid_dsn_is_printed(
    bare: Cli, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """libpq would quote what it stumbles over: a piece of a password."""
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", NOWHERE)
    for dsn in MISREAD:
        monkeypatch.setenv(f"CRONLEDGER_{variable}", dsn)
        for arguments in (["jobs", "list"], ["doctor"], ["run", "--wait", "0"]):
            said = bare(*arguments)
            refused(said, f"CRONLEDGER_{variable}: ")
            assert not any(piece in said.output for piece in PIECES), said.output


def test_no_part_of_an_invalid_dsn_is_in_a_traceback() -> None:
    """Neither in the exception nor in its causes, whatever opens the DSN."""
    for dsn in MISREAD:
        if "\udcff" in dsn:
            continue
        replica = Replica(url=dsn)
        for open_it in (
            lambda dsn=dsn: connect(dsn),
            lambda replica=replica: asyncio.run(replica.__aenter__()),
            lambda dsn=dsn: list(verify(dsn)),
        ):
            with pytest.raises(ConfigurationError) as caught:
                open_it()
            said = "".join(traceback.format_exception(caught.value))
            assert "url: " in said
            assert not any(piece in said for piece in PIECES), said


def test_other_dsns_are_taken_as_libpq_takes_them() -> None:
    for dsn in (
        "postgresql:///d?user=a@b", "postgres://u:p%40%25%2Fx@h:1,h2:2/d",
        "postgresql://h/d?host=/var/run/postgresql", "postgresql://u:p?#x@h/d", "postgresql://",
        "host=h password='a b\\'c@%/'", "dbname=d",
    ):  # fmt: skip
        check_dsn(dsn)


def test_the_file_here_gives_settings(bare: Cli, surroundings: Path, database_url: str) -> None:
    here = surroundings / "cronledger.toml"
    here.write_text(f"[cronledger]\ndatabase_url = {database_url!r}\n[jobs.x]\nnonsense = 1\n")
    assert bare("jobs", "list").exit_code == 0
    here.write_text("[cronledger]\nslotz = 3\n")
    refused(bare("jobs", "list"), "cronledger.toml: cronledger.slotz")
    for text in ("[cronledger", "cronledger = 3"):
        here.write_text(text)
        refused(bare("jobs", "list"), "Error: cronledger.toml: ")


def test_a_missing_right_exits_2() -> None:
    failure = explain(psycopg.errors.InsufficientPrivilege("permission denied for table jobs"))
    assert failure is not None
    assert failure.code == 2
    assert "permission denied" in failure.text and "use a role that has this right" in failure.text


def test_a_defect_is_not_explained_away() -> None:
    assert explain(RuntimeError("a defect")) is None
