"""`cronledger doctor` and `accept-database`: what is printed, and the exit codes."""

import re

import pytest

from cronledger.explain import doctor_server
from cronledger.explain.doctor_server import durable
from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused
from tests.waiting import PATIENCE


@pytest.fixture
def well(filled: Cli, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The jobs of `filled`, none of them beyond the runner that lives."""
    ask("DELETE FROM cronledger.runners WHERE id = 'gone'")
    ask("UPDATE cronledger.runners SET stale_after = stale_after + interval '1 h'")
    ask(
        "WITH run AS (SELECT cronledger_internal.begin_verification(NULL, NULL, NULL, '1') id)"
        " SELECT cronledger_internal.end_verification(id, 'finished', NULL, NULL, NULL,"
        " 0, 0, 0, 0, 0, 0, 0, '{}') FROM run"
    )
    # The server of the tests is not durable, on purpose.
    monkeypatch.setattr(doctor_server, "durable", lambda off: durable(()))
    monkeypatch.setattr(doctor_server, "SLOW_MS", float("inf"))  # this machine may be busy
    monkeypatch.setattr(doctor_server, "ARRIVES_SECONDS", PATIENCE)
    return filled


@pytest.mark.long
def test_a_healthy_ledger_exits_0(well: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    said = done(well, "doctor")
    assert said.stdout == ""
    assert said.stderr == "31 findings: 0 problems, 0 warnings\n"
    every = well("doctor", "--verbose")
    assert len(every.stdout.splitlines()) == 31
    assert "ok       runners: 1 alive" in every.stdout
    own = "the ledger's own database"
    found = {"check": "identity", "severity": "ok", "found": own, "remedy": None}
    assert found in read(well, "doctor")
    monkeypatch.setenv("CRONLEDGER_LEDGER_NAME", "shop")
    shown = well("doctor", "--verbose")
    assert shown.stderr == "ledger shop: 31 findings: 0 problems, 0 warnings\n"
    assert "ok       identity: the ledger shop's own database" in shown.stdout


@pytest.mark.long
def test_a_warning_exits_0_unless_strict_and_a_problem_1(well: Cli, ask: Ask) -> None:
    assert well("doctor", "--strict").exit_code == 0
    ask("UPDATE cronledger.runners SET clock_skew = '1 h'")
    said = done(well, "doctor")
    assert "WARNING  clock: compared with the database: runner alive +3600" in said.stdout
    refused(well("doctor", "--strict"), "0 problems, 1 warning", code=1)
    ask("DELETE FROM cronledger.runners")
    said = well("doctor")
    assert said.exit_code == 1
    assert "PROBLEM  runners: no replica is alive\n         -> start one" in said.stdout
    told = read(well, "doctor", code=1)
    assert {x["check"] for x in told if x["severity"] == "problem"} == {"runners", "jobs"}


@pytest.mark.long
def test_a_check_that_could_not_be_made_exits_1(well: Cli, ask: Ask) -> None:
    """Whether functions are there is known without calling them: this one fails."""
    ask(
        "CREATE OR REPLACE FUNCTION cronledger.partitions() RETURNS TABLE (name text,"
        " from_plan_time timestamptz, before_plan_time timestamptz) LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no idea'; END $$"
    )
    said = well("doctor")
    assert said.exit_code == 1
    assert "NOT CHECKED partitions, retention: no idea\n         -> see" in said.stdout
    assert "NOT CHECKED retention: no idea\n" in well("doctor", "--verbose").stdout
    assert said.stderr == "31 findings: 0 problems, 0 warnings, 2 not checked\n"
    told = read(well, "doctor", code=1)
    unchecked = [x["check"] for x in told if x["severity"] == "unchecked"]
    assert unchecked == ["partitions", "retention"]


@pytest.mark.long
def test_missing_objects_exit_4(well: Cli, ask: Ask) -> None:
    for kind, name in (("view", "overdue"), ("table", "sources")):
        ask(f"DROP {kind} cronledger.{name} CASCADE")
        said = well("doctor")
        assert said.exit_code == 4
        assert re.search(rf"PROBLEM  objects: dropped: .*{kind} {name}\b", said.stdout)


@pytest.mark.long
def test_another_database_exits_5_until_it_is_accepted(well: Cli, ask: Ask) -> None:
    ask("UPDATE cronledger.identity SET system_identifier = 1")
    said = well("doctor")
    assert said.exit_code == 5
    problem = "PROBLEM  identity: a different database: the ledger belongs to the server"
    assert problem in said.stdout
    assert well("accept-database").exit_code == 2
    assert well("accept-database", "--skip-missed", "--catch-up").exit_code == 2
    accepted = done(well, "accept-database", "--skip-missed")
    skipped = "jobs whose missed plan_times are skipped: 3; waiting executions cancelled: 0;"
    assert skipped in accepted.stdout
    assert "running executions requested to end: 1" in accepted.stdout
    assert well("doctor").exit_code == 0
