"""Labels of runners, and the selectors of jobs."""

import subprocess
import sys

import pytest

from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings


@pytest.mark.parametrize("written", ["role=web, dc=fra", ["dc=fra", "role=web", "role=web"]])
def test_labels_have_one_order_however_they_are_written(written: object) -> None:
    job = Job.model_validate({"name": "job", "handler": "external", "on": written})
    assert job.on == ("dc=fra", "role=web")


@pytest.mark.parametrize(
    ("written", "shows"),
    [
        ("web", "'web' is not a label; use KEY=VALUE"), ("", "'' is not a label"),
        ("role=a b", "'role=a b' is not a label"), ("role=web,role=db", "two values of role"),
        (["role=web", 7], "neither a text nor a list"),
    ],
)  # fmt: skip
def test_a_selector_that_selects_nothing_for_certain_is_refused(
    written: object, shows: str
) -> None:
    with pytest.raises(ValueError, match=shows.replace("(", r"\(")):
        Job.model_validate({"name": "job", "handler": "external", "on": written})


def test_an_empty_list_selects_every_runner() -> None:
    assert Job.model_validate({"name": "job", "handler": "external", "on": []}).on is None


def test_a_runner_has_the_label_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_LABELS", "role=web, dc=fra")
    monkeypatch.setenv("CRONLEDGER_HOST", "web1")
    settings = Settings.load({})
    assert settings.all_labels == ["dc=fra", "host=web1", "role=web"]


@pytest.mark.parametrize(
    ("variable", "written", "shows"),
    [
        ("LABELS", "host=web1", "set CRONLEDGER_HOST instead"),
        ("LABELS", "web", "is not a label"),
        ("HOST", "web\n1", "cannot be the value of the label host; set CRONLEDGER_HOST"),
        ("HOST", "w" * 196, "at most 195 characters"),
    ],
)
def test_labels_that_a_runner_cannot_have_are_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, written: str, shows: str
) -> None:
    monkeypatch.setenv(f"CRONLEDGER_{variable}", written)
    with pytest.raises(ConfigurationError, match=shows) as refused:
        Settings.load({})
    assert f"CRONLEDGER_{variable}" in str(refused.value)


def test_a_host_name_of_the_system_is_taken_as_it_is() -> None:
    program = (
        "import socket; socket.gethostname = lambda: '(none)'\n"
        "from cronledger.settings import Settings; print(Settings.load({}).host)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ran.stdout == b"(none)\n"
