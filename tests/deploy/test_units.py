"""F72: the units of systemd are valid, restricted, and agree with the settings of the product."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from cronledger.rules.problems import Exit
from cronledger.settings import Settings
from cronledger.web.serving import GRACE_SECONDS
from cronledger.web.stoppable import STOP_SECONDS
from tests.deploy.support.files import DEPLOY, call, check, needs, parsed

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
REPLICA = "cronledger.service"
DROP_IN = DEPLOY / "systemd" / "privileged-commands.conf"
needs_systemd = needs("systemd-analyze", "systemd")
RATE = ("systemd-analyze", "security", "--no-pager", "--offline=yes")
EXPOSURE = 25
"""The highest exposure that is accepted, in tenths. systemd calls 0 to 20 safe, up to 40 good."""
IMPLY_NO_NEW_PRIVILEGES = {
    "DynamicUser", "LockPersonality", "MemoryDenyWriteExecute", "PrivateDevices", "ProtectClock",
    "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables",
    "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
    "SystemCallArchitectures", "SystemCallFilter", "SystemCallLog",
}  # fmt: skip
"""The options of systemd.exec(5) that imply NoNewPrivileges=yes for a unit with `User=`."""
GRACE = 15
"""The seconds beyond `drain_timeout` of docs/howto/deploy.md."""


def unit(name: str) -> dict[str, str]:
    """Return the options of a unit. Of an option that occurs again it is the last value."""
    lines = (DEPLOY / "systemd" / name).read_text("utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if re.match(r"[A-Z]\w+=", line)]
    return {key: value for key, _, value in pairs}


def verify(path: Path) -> None:
    done = call("systemd-analyze", "verify", "--man=no", path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A copy of the units whose program exists."""
    for path in UNITS:
        text = path.read_text("utf-8")
        assert "/opt/cronledger/bin/cronledger" in text
        replaced = text.replace("/opt/cronledger/bin/cronledger", sys.executable)
        (tmp_path / path.name).write_text(replaced)
    return tmp_path


@needs_systemd
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_unit_and_finds_it_restricted(path: Path, here: Path) -> None:
    verify(here / path.name)
    check(*RATE, f"--threshold={EXPOSURE}", here / path.name)


@needs_systemd
def test_the_drop_in_lifts_what_it_names(here: Path) -> None:
    shutil.copytree(here, here / "units")
    path = here / "units" / REPLICA
    path.with_suffix(".service.d").mkdir()
    shutil.copy(DROP_IN, path.with_suffix(".service.d"))
    verify(path)
    rated = check(*RATE, path)
    for lifted in (
        "NoNewPrivileges=",
        "RestrictNamespaces=~user",
        "CapabilityBoundingSet=~CAP_SET",
    ):
        assert f"✗ {lifted}" in rated
    # What does not prevent other users stays.
    assert "✓ ProtectSystem=" in rated


def test_the_drop_in_names_all_that_implies_no_new_privileges() -> None:
    lifted = {line.partition("=")[0] for line in DROP_IN.read_text("utf-8").splitlines()}
    assert IMPLY_NO_NEW_PRIVILEGES & unit(REPLICA).keys() <= lifted


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_that_exists(path: Path) -> None:
    _, *words = unit(path.name)["ExecStart"].split()
    assert parsed(*words).info_name == words[0]


def test_a_drain_has_its_time() -> None:
    service, default = unit(REPLICA), Settings.model_fields["drain_timeout"].default
    assert int(service["TimeoutStopSec"]) >= default.total_seconds() + GRACE
    assert service["KillMode"] == "mixed"
    assert int(unit("cronledger-web.service")["TimeoutStopSec"]) > GRACE_SECONDS + STOP_SECONDS


def test_exit_codes_that_need_a_person_prevent_a_restart() -> None:
    given = {int(code) for code in unit(REPLICA)["RestartPreventExitStatus"].split()}
    assert given == {Exit.USAGE, Exit.SCHEMA, Exit.OTHER_DATABASE}
    for name in ("cronledger-web.service", "cronledger-metrics.service"):
        given = {int(code) for code in unit(name)["RestartPreventExitStatus"].split()}
        assert given == {Exit.USAGE, Exit.SCHEMA}


def test_commands_keep_their_control_groups() -> None:
    service = unit(REPLICA)
    assert service["Delegate"] == "yes"
    assert service.get("ProtectControlGroups", "no") == "no"
    # A command that runs out of memory must not end the replica.
    assert service["OOMPolicy"] == "continue"


def test_only_the_process_itself_reports() -> None:
    for service in (unit(REPLICA), unit("cronledger-web.service")):
        assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
