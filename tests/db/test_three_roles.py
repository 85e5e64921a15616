"""Installing with three roles, on a server of its own: roles belong to a server."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cronledger.embedded.postmaster import private_directory
from cronledger.embedded.server import Embedded, find_binaries
from tests.database import SETTINGS, chosen_binaries, fast_directory, scratch_directory
from tests.docs.support.pages import Shell
from tests.waiting import until

pytestmark = pytest.mark.slow


DOC = Path(__file__).parents[2] / "docs" / "howto" / "roles.md"
HEADING = "## Installation\n"


@pytest.fixture(scope="module")
def superuser() -> Iterator[str]:
    """The DSN of a superuser on a server where no role of cronledger exists."""
    binaries = find_binaries(chosen_binaries()).directory
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with (
        scratch_directory(parent) as scratch,
        Embedded(scratch / "three-roles", binaries, SETTINGS) as server,
    ):
        yield server.start()


@pytest.fixture
def shell(superuser: str, tmp_path: Path) -> Iterator[Shell]:
    """A shell in which `psql` and `cronledger` find that server."""
    server = conninfo_to_dict(superuser)
    variables = {
        "PGHOST": str(server["host"]), "PGPORT": str(server.get("port", 5432)),
        "CRONLEDGER_RUNNER_ID": "documented",
    }  # fmt: skip
    with Shell(tmp_path, variables, find_binaries(chosen_binaries()).directory) as made:
        yield made


def run(shell: Shell, script: str, ending: str = "", status: int = 0) -> str:
    """Return what the commands print, of which the last one has this exit status."""
    printed = shell.call(f"(set -eu\n{script}\n){ending}")
    assert shell.status == status, printed
    return printed


def execute(dsn: str, script: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as c:
        for statement in filter(str.strip, script.split(";")):
            c.execute(statement.encode())


def test_group_roles_that_appear_after_the_schema_get_their_rights(
    superuser: str, shell: Shell
) -> None:
    execute(superuser, "CREATE ROLE late_owner LOGIN; CREATE DATABASE late OWNER late_owner")
    shell.call("export CRONLEDGER_DATABASE_URL=postgresql://late_owner@/late")
    first = run(shell, "cronledger migrate")
    for who in ("viewer", "operator", "runner"):
        assert f"Warning: the role cronledger_{who} does not exist" in first
        assert f"`CREATE ROLE cronledger_{who} NOLOGIN`" in first
    run(shell, "cronledger migrate --check")

    execute(superuser, "CREATE ROLE cronledger_viewer; CREATE ROLE cronledger_operator;"
                       " CREATE ROLE watcher LOGIN IN ROLE cronledger_viewer")  # fmt: skip
    checked = run(shell, "cronledger migrate --check", status=4)
    assert "pending GRANT USAGE ON SCHEMA cronledger TO cronledger_viewer" in checked
    doctor = run(shell, "cronledger doctor || true")
    assert "rights of the group roles are missing: GRANT " in doctor
    assert "-> run `cronledger migrate` as late_owner, the owner of the schema" in doctor

    again = run(shell, "cronledger migrate")
    assert "applied GRANT USAGE ON SCHEMA cronledger TO cronledger_viewer" in again
    assert "the role cronledger_runner does not exist" in again
    run(shell, "cronledger migrate --check")
    execute(make_conninfo(superuser, user="watcher", dbname="late"), "TABLE cronledger.overdue")

    execute(superuser, "DROP DATABASE late; DROP ROLE watcher; DROP ROLE cronledger_viewer;"
                       " DROP ROLE cronledger_operator; DROP ROLE late_owner")  # fmt: skip


def test_the_documented_installation_works_as_written(superuser: str, shell: Shell) -> None:
    section = DOC.read_text("utf-8").partition(HEADING)[2].partition("\n## ")[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in found] == ["sql", "sh", "sh", "sh"]
    roles, migrate, deploy, people = [text for _, text in found]
    execute(superuser, roles)
    assert "Warning" not in run(shell, migrate)

    assert "cronledger run " in deploy
    run(shell, deploy, " > replica.log 2>&1 &")
    owner = make_conninfo(superuser, user="shop_owner", dbname="shop")
    with psycopg.connect(owner, autocommit=True) as c:
        alive = "SELECT 1 FROM cronledger.runner_status WHERE state = 'alive'"
        until("a replica is alive", lambda: c.execute(alive).fetchone())
        assert "hello" in run(shell, people)
        success = "SELECT 1 FROM cronledger.ledger WHERE outcome = 'SUCCESS'"
        until("the execution has ended", lambda: c.execute(success).fetchone())
