"""Installing with three roles, on a server of its own: roles belong to a server."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cronledger.embedded.postmaster import private_directory
from cronledger.embedded.server import Embedded, find_binaries
from tests.database import SETTINGS, chosen_binaries, fast_directory, scratch_directory
from tests.waiting import until

pytestmark = pytest.mark.slow


DOC = Path(__file__).parents[2] / "docs" / "howto" / "roles.md"
HEADING = "## Installation\n"
SECONDS = 120
Run = Callable[..., subprocess.CompletedProcess[str]]


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
def shell(superuser: str, tmp_path: Path) -> Mapping[str, str]:
    """The variables of a shell in which `psql` and `cronledger` find that server."""
    server = conninfo_to_dict(superuser)
    paths = [str(Path(sys.executable).parent), str(find_binaries(chosen_binaries()).directory)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CRONLEDGER_", "PG"))}
    return kept | {
        "PATH": os.pathsep.join([*paths, os.environ["PATH"]]),
        "PGHOST": str(server["host"]),
        "PGPORT": str(server.get("port", 5432)),
        "CRONLEDGER_RUNNER_ID": "documented",
        "HOME": str(tmp_path),
    }


@pytest.fixture
def run(shell: Mapping[str, str], tmp_path: Path) -> Run:
    def call(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env={**shell, **variables}, cwd=tmp_path, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip

    return call


def execute(dsn: str, script: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as c:
        for statement in filter(str.strip, script.split(";")):
            c.execute(statement.encode())


def test_group_roles_that_appear_after_the_schema_get_their_rights(
    superuser: str, run: Run
) -> None:
    execute(superuser, "CREATE ROLE late_owner LOGIN; CREATE DATABASE late OWNER late_owner")
    url = {"CRONLEDGER_DATABASE_URL": "postgresql://late_owner@/late"}
    first = run("cronledger migrate", **url)
    assert first.returncode == 0, first.stderr
    for who in ("viewer", "operator", "runner"):
        assert f"Warning: the role cronledger_{who} does not exist" in first.stderr
        assert f"`CREATE ROLE cronledger_{who} NOLOGIN`" in first.stderr
    assert run("cronledger migrate --check", **url).returncode == 0

    execute(superuser, "CREATE ROLE cronledger_viewer; CREATE ROLE cronledger_operator;"
                       " CREATE ROLE watcher LOGIN IN ROLE cronledger_viewer")  # fmt: skip
    checked = run("cronledger migrate --check", **url)
    assert checked.returncode == 4
    assert "pending GRANT USAGE ON SCHEMA cronledger TO cronledger_viewer" in checked.stdout
    doctor = run("cronledger doctor", **url)
    assert "rights of the group roles are missing: GRANT " in doctor.stdout
    assert "-> run `cronledger migrate` as late_owner, the owner of the schema" in doctor.stdout

    again = run("cronledger migrate", **url)
    assert again.returncode == 0, again.stderr
    assert "applied GRANT USAGE ON SCHEMA cronledger TO cronledger_viewer" in again.stdout
    assert "the role cronledger_runner does not exist" in again.stderr
    assert run("cronledger migrate --check", **url).returncode == 0
    execute(make_conninfo(superuser, user="watcher", dbname="late"), "TABLE cronledger.overdue")

    execute(superuser, "DROP DATABASE late; DROP ROLE watcher; DROP ROLE cronledger_viewer;"
                       " DROP ROLE cronledger_operator; DROP ROLE late_owner")  # fmt: skip


def test_the_documented_installation_works_as_written(
    superuser: str, shell: Mapping[str, str], run: Run, tmp_path: Path
) -> None:
    section = DOC.read_text("utf-8").partition(HEADING)[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["sql", "sh", "sh", "sh"]
    roles, migrate, deploy, people = [text for _, text in blocks]
    made = run(f"psql -v ON_ERROR_STOP=1 -d '{superuser}' <<'END'\n{roles}\nEND")
    assert made.returncode == 0, made.stderr
    migrated = run(migrate)
    assert migrated.returncode == 0, migrated.stderr
    assert "Warning" not in migrated.stderr

    assert "cronledger run " in deploy
    with (tmp_path / "log").open("w") as log:
        replica = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", deploy],
            env=shell, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    owner = make_conninfo(superuser, user="shop_owner", dbname="shop")
    try:
        with psycopg.connect(owner, autocommit=True) as c:
            alive = "SELECT 1 FROM cronledger.runner_status WHERE state = 'alive'"
            until("a replica is alive", lambda: c.execute(alive).fetchone())
            spoken = run(people)
            assert spoken.returncode == 0, spoken.stderr
            assert "hello" in spoken.stdout
            success = "SELECT 1 FROM cronledger.ledger WHERE outcome = 'SUCCESS'"
            until("the execution has ended", lambda: c.execute(success).fetchone())
    finally:
        os.killpg(replica.pid, signal.SIGTERM)
        code = replica.wait(SECONDS)
        print((tmp_path / "log").read_text())
    assert code in (0, -signal.SIGTERM), code
