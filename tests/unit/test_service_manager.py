"""F72: messages to systemd, on a real socket."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cronledger.process.service_manager import ServiceManager
from cronledger.process.state_reporter import LONGEST_STATUS, StateReporter
from cronledger.replica import Health
from tests.systemd import Notifications, listening

STARTING = Health("starting", "ok", None, None, 0, 10, 0.0)
RUNNING = Health("running", "ok", None, None, 3, 10, 0.2)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Notifications]:
    with listening(str(tmp_path / "not@ify")) as made:
        yield made


def new(systemd: Notifications) -> dict[str, str]:
    """Return the fields of the only new message."""
    (message,) = systemd.new()
    return message


def reporter(systemd: Notifications, *healths: Health) -> StateReporter:
    """Return a reporter that reads these states one after the other."""
    states = iter(healths)
    return StateReporter(ServiceManager(systemd.address), lambda: next(states), 58.0)


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_variables_are_those_of_this_process_and_are_not_inherited(
    variables: dict[str, str], seconds: float | None
) -> None:
    environ = {"NOTIFY_SOCKET": "/run/x", "PATH": "/bin", **variables}
    manager = ServiceManager.from_environment(environ)
    assert (manager.address, manager.watchdog_seconds) == ("/run/x", seconds)
    assert environ == {"PATH": "/bin"}


def test_a_start_is_extended_until_the_replica_is_ready(systemd: Notifications) -> None:
    away = replace(STARTING, database="away", failing={"start": "connection\nrefused"})
    reports = reporter(systemd, STARTING, away, RUNNING, RUNNING)
    reports.report()
    assert new(systemd) == {
        "EXTEND_TIMEOUT_USEC": "30000000", "WATCHDOG": "1",
        "STATUS": "starting; 0 of 10 slots are in use",
    }  # fmt: skip
    reports.report()
    found = new(systemd)
    assert found["EXTEND_TIMEOUT_USEC"] == "30000000"
    assert found["STATUS"].endswith(
        "unreachable; 0 of 10 slots are in use; start: connection refused"
    )
    reports.report()
    assert new(systemd) == {
        "READY": "1", "WATCHDOG": "1", "STATUS": "running; 3 of 10 slots are in use"
    }  # fmt: skip
    reports.report()
    assert new(systemd) == {"WATCHDOG": "1"}


def test_no_watchdog_is_sent_while_a_loop_is_stuck(systemd: Notifications) -> None:
    stuck_start = replace(STARTING, stuck="check_in")
    stuck = replace(RUNNING, stuck="dispatcher")
    away = replace(RUNNING, database="away", away_for_s=90.0)
    reports = reporter(systemd, stuck_start, RUNNING, stuck, stuck, away)
    reports.report()
    assert new(systemd).keys() == {"STATUS"}  # the start is not extended
    reports.report()
    systemd.new()
    reports.report()
    assert new(systemd) == {"STATUS": "the loop dispatcher is stuck; 3 of 10 slots are in use"}
    reports.report()
    assert systemd.new() == []
    reports.report()
    assert "WATCHDOG" in new(systemd)


def test_a_drain_is_announced_once_with_its_time(systemd: Notifications) -> None:
    draining = replace(RUNNING, state="draining")
    reports = reporter(systemd, RUNNING, draining, draining)
    reports.report()
    systemd.new()
    reports.report(stopping=True)
    found = new(systemd)
    assert (found["STOPPING"], found["EXTEND_TIMEOUT_USEC"]) == ("1", "58000000")
    reports.report(stopping=True)
    assert new(systemd) == {"WATCHDOG": "1"}


def test_a_message_that_was_not_received_is_sent_again() -> None:
    with listening(f"@cronledger-test-{os.getpid()}") as systemd:  # an abstract address
        manager = ServiceManager(systemd.address)
        reports = StateReporter(manager, lambda: RUNNING, 58.0)
        while manager.send("WATCHDOG=1"):
            pass  # until the queue of the receiver is full; nothing waits
        reports.report()
        assert not systemd.has("READY")
        reports.report()
        assert "READY" in new(systemd)


def test_a_service_manager_that_is_away_is_logged_once(tmp_path: Path) -> None:
    manager = ServiceManager(str(tmp_path / "absent"))
    with capture_logs() as logs:
        assert not ServiceManager(None).send("READY=1")  # nothing is sent without an address
        assert not manager.send("READY=1")
        assert not manager.send("READY=1")
    assert [entry["event"] for entry in logs] == ["service_manager_away"]
    assert "No such file" in logs[0]["error"]


def test_a_status_is_one_line_of_bounded_length(systemd: Notifications) -> None:
    failing = {"dispatcher": "permission\ndenied " + "x" * 4000}
    reporter(systemd, replace(RUNNING, failing=failing)).report()
    status = new(systemd)["STATUS"]
    assert len(status) == LONGEST_STATUS
    assert "dispatcher: permission denied" in status
