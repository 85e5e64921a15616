"""`cronledger doctor` and `accept-database`: what is printed, and the exit codes."""

import json

import psycopg
import pytest

from cronledger.explain import doctor_server
from cronledger.explain.doctor_server import durable
from tests.cli.conftest import Cli


@pytest.fixture
def well(filled: Cli, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The jobs of `filled`, none of them beyond the runner that lives."""
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute("DELETE FROM cronledger.runners WHERE id = 'gone'")
        c.execute("UPDATE cronledger.runners SET stale_after = stale_after + interval '1 h'")
        c.execute(
            "WITH run AS (SELECT cronledger_internal.begin_verification(NULL, NULL, NULL, '1') id)"
            " SELECT cronledger_internal.end_verification(id, 'finished', NULL, NULL, NULL,"
            " 0, 0, 0, 0, 0, 0, 0, '{}') FROM run"
        )
    # The server of the tests is not durable, on purpose.
    monkeypatch.setattr(doctor_server, "durable", lambda off: durable(()))
    monkeypatch.setattr(doctor_server, "SLOW_MS", float("inf"))  # this machine may be busy
    return filled


def test_a_healthy_ledger_exits_0(well: Cli) -> None:
    said = well("doctor")
    assert said.exit_code == 0, said.output
    assert said.stdout == ""
    assert said.stderr == "30 findings: 0 problems, 0 warnings\n"
    every = well("doctor", "--all")
    assert len(every.stdout.splitlines()) == 30
    assert "ok       runners: 1 alive" in every.stdout
    told = json.loads(well("doctor", "--json").stdout)
    assert next(x for x in told if x["check"] == "identity") == {
        "check": "identity",
        "severity": "ok",
        "found": "the ledger's own database",
        "remedy": None,
    }


def test_the_name_of_the_ledger_is_shown(well: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_LEDGER_NAME", "shop")
    shown = well("doctor", "--all")
    assert shown.stderr == "ledger shop: 30 findings: 0 problems, 0 warnings\n"
    assert "ok       identity: the ledger shop's own database" in shown.stdout


def test_a_warning_exits_0_and_a_problem_1(well: Cli, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute("UPDATE cronledger.runners SET clock_skew = '1 h'")
        assert well("doctor").exit_code == 0
        assert (
            "WARNING  clock: compared with the database: runner alive +3600"
            in well("doctor").stdout
        )
        c.execute("DELETE FROM cronledger.runners")
    said = well("doctor")
    assert said.exit_code == 1
    assert "PROBLEM  runners: no replica is alive\n         -> start one" in said.stdout
    told = json.loads(well("doctor", "--json").stdout)
    assert {x["check"] for x in told if x["severity"] == "problem"} == {"runners", "jobs"}


def test_strict_fails_with_a_warning(well: Cli, database_url: str) -> None:
    assert well("doctor", "--strict").exit_code == 0
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute("UPDATE cronledger.runners SET clock_skew = '1 h'")
    assert well("doctor").exit_code == 0
    said = well("doctor", "--strict")
    assert said.exit_code == 1
    assert "0 problems, 1 warning" in said.stderr


def test_a_check_that_could_not_be_made_exits_1(well: Cli, database_url: str) -> None:
    """Whether functions are there is known without calling them: this one fails."""
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute(
            "CREATE OR REPLACE FUNCTION cronledger.partitions() RETURNS TABLE (name text,"
            " from_plan_time timestamptz, before_plan_time timestamptz) LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'no idea'; END $$"
        )
    said = well("doctor")
    assert said.exit_code == 1
    assert "NOT CHECKED partitions: no idea\n         -> see" in said.stdout
    assert said.stderr == "30 findings: 0 problems, 0 warnings, 2 not checked\n"
    told = json.loads(well("doctor", "--json").stdout)
    unchecked = [x["check"] for x in told if x["severity"] == "unchecked"]
    assert unchecked == ["partitions", "retention"]


@pytest.mark.parametrize("statement", ["TABLE cronledger.sources", "VIEW cronledger.overdue"])
def test_missing_objects_exit_4(well: Cli, database_url: str, statement: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute(f"DROP {statement} CASCADE".encode())
    said = well("doctor")
    assert said.exit_code == 4
    kind, name = statement.lower().split(" cronledger.")
    assert f"PROBLEM  objects: dropped: {kind} {name}" in said.stdout


def test_an_unreachable_database_exits_3(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "postgresql:///x?host=/nowhere")
    assert bare("doctor").exit_code == 3


def test_a_schema_that_is_not_there_exits_4(
    bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    said = bare("doctor")
    assert said.exit_code == 4
    assert "-> run `cronledger migrate`" in said.stdout


def test_another_database_exits_5_until_it_is_accepted(well: Cli, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute("UPDATE cronledger.identity SET system_identifier = 1")
    said = well("doctor")
    assert said.exit_code == 5
    assert (
        "PROBLEM  identity: a different database: the ledger belongs to the server" in said.stdout
    )
    assert well("accept-database").exit_code == 2
    assert well("accept-database", "--skip-missed", "--catch-up").exit_code == 2
    accepted = well("accept-database", "--skip-missed")
    assert accepted.exit_code == 0
    assert "jobs whose missed plan_times are skipped: 3; waiting executions cancelled: 0;" in (
        accepted.stdout
    )
    assert "running executions requested to end: 1" in accepted.stdout
    assert well("doctor").exit_code == 0
