"""What a person sees: tables that fit, relative times, colours, nothing that acts on a terminal."""

import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from cronledger.cli.listing import relative
from cronledger.process.tables import print_table
from cronledger.rules.printable import clean
from tests.cli.conftest import Ask, Cli
from tests.cli.support.commands import commands
from tests.cli.support.results import refused
from tests.cli.support.terminal import on_terminal

ESCAPE = "\x1b"
COLOUR = re.compile("\x1b\\[[0-9;]*m")
LISTINGS = (["jobs", "list"], ["executions", "list"], ["runners"], ["queues", "list"])
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def plain(text: str) -> str:
    return COLOUR.sub("", text)


@pytest.fixture
def hostile(filled: Cli, ask: Ask) -> Cli:
    """Names and messages that are long, or that would move a cursor or reverse a line."""
    evil = "\x1b[2J\x9b31m" + "\u202egnp.exe" + "x" * 300
    attempt = {
        "attempt": 1, "runner_id": "r0", "error_code": "exit_code", "error_msg": evil,
        "started_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    ask(
        "UPDATE cronledger.executions SET error_msg = %s, output = %s, attempts = %s"
        " WHERE status = 'FAILED'", evil, evil, json.dumps([attempt]),
    )  # fmt: skip
    ask(
        "UPDATE cronledger.jobs SET description = %s, queue = %s WHERE name = 'hourly'",
        evil, "a queue with a long name" * 4,
    )  # fmt: skip
    ask("SELECT cronledger.pause('manual', %s)", evil)
    return filled


@pytest.mark.usefixtures("hostile")
@pytest.mark.long
def test_listings_fit_the_terminal() -> None:
    for arguments in LISTINGS:
        for columns in (60, 80, 132):
            lines = plain(on_terminal(*arguments, columns=columns)).splitlines()
            table = [line for line in lines if not line.startswith("Not shown: ")]
            assert len(table) >= 2, arguments
            assert max(map(len, table)) <= columns, (arguments, columns)


def test_columns_drop_and_come_back(filled: Cli) -> None:
    narrow = plain(on_terminal("executions", "list"))
    assert "TRIGGER" not in narrow
    assert re.search(r"Not shown: .*trigger.*; use --wide or --columns", narrow)
    assert "TRIGGER" in plain(on_terminal("executions", "list", columns=200))
    assert "TRIGGER" in on_terminal("executions", "list", "--wide")
    chosen = plain(on_terminal("executions", "list", "--columns", "id,trigger")).splitlines()
    assert chosen[0].split() == ["ID", "TRIGGER"]
    assert not any(line.startswith("Not shown") for line in chosen)
    said = filled("jobs", "list", "--columns", "name,colour")
    refused(said, "unknown column 'colour'", "last_status")


def test_times_are_relative_on_a_terminal_alone(filled: Cli) -> None:
    assert re.search(r"hourly .* (ago|now)\b", plain(on_terminal("executions", "list")))
    piped = filled("executions", "list").stdout
    assert "ago" not in piped
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", piped)
    assert "ago" not in on_terminal("executions", "list", "--wide")


def test_failures_are_coloured(filled: Cli) -> None:
    red = f"{ESCAPE}[31mFAILED"
    assert red in on_terminal("executions", "list")
    assert ESCAPE not in on_terminal("executions", "list", environ={"TERM": "dumb"})
    uncoloured = on_terminal("executions", "list", environ={"NO_COLOR": "1"})
    assert f"{ESCAPE}[31m" not in uncoloured
    assert "FAILED" in uncoloured
    assert ESCAPE not in filled("executions", "list").stdout


@pytest.mark.long
def test_a_terminal_gets_escaped_text_and_a_pipe_the_original(hostile: Cli) -> None:
    for arguments in (
        *LISTINGS, ["executions", "show", "2"], ["executions", "output", "2"],
        ["executions", "output", "2", "--json"], ["executions", "show", "2", "--json"],
        ["jobs", "show", "hourly"], ["jobs", "show", "hourly", "--json"],
        ["why", "hourly", "00:00"], ["doctor", "--verbose"], ["jobs", "show", "\x1b[2J\u202ex"],
    ):  # fmt: skip
        shown = plain(on_terminal(*arguments))
        assert {c for c in shown if c not in "\n\t" and clean(c) != c} == set(), arguments
    assert "\x1b[2J" in hostile("executions", "output", "2").stdout


def test_an_execution_is_formatted_for_people(hostile: Cli) -> None:
    shown = hostile("executions", "show", "2").stdout
    assert shown.splitlines()[0] == "execution 2  hourly  FAILED, attempt 1 of 1"
    assert re.search(r"^finished_at +\S+Z  \(.*(ago|now)\)$", shown, re.MULTILINE)
    assert "Earlier attempts" in shown
    assert "{" not in shown
    assert "cronledger executions output 2" in shown


def test_long_lists_end_with_their_number(filled: Cli, ask: Ask) -> None:
    ask(
        "UPDATE cronledger.executions SET result = to_jsonb(ARRAY(SELECT generate_series(1,"
        " 100000))) WHERE status = 'SUCCESS'"
    )
    shown = filled("executions", "show", "1").stdout
    assert "20, and 99,980 more" in shown
    assert len(shown) < 5_000


def test_relative_times() -> None:
    texts = {
        0: "now", 0.4: "now", 5: "in 5s", -61: "1m 1s ago", 3600: "in 1h", 3601: "in 1h",
        -90_000: "1d 1h ago", 86_400 * 400: "in 400d",
    }  # fmt: skip
    assert {at: relative(NOW + timedelta(seconds=at), NOW) for at in texts} == texts


def test_cells_cannot_break_a_table() -> None:
    file = io.StringIO()
    print_table(["A", "B"], [["a\nb", "\x1b[31m"], ["日本", "\u2066c\t"]], file)
    assert file.getvalue() == "A     B\na\\nb  \\x1b[31m\n日本  \\u2066c\n"


RESULTS_WITHOUT_JSON = {
    "run": "a log, not a result", "dev": "a log, not a result",
    "metrics": "the format of Prometheus", "web": "a log, not a result",
    "observe": "the output of the command that it runs", "import apscheduler": "a TOML file",
    "import celery": "a TOML file", "import crontab": "a TOML file",
    "import kubernetes": "a TOML file", "import systemd": "a TOML file",
    "import pg_cron": "a TOML file", "import github-actions": "a TOML file",
    "check": "--format json", "progress": "no result", "schema": "JSON anyway",
}  # fmt: skip


def test_every_command_that_prints_a_result_has_json() -> None:
    assert set(commands()) >= set(RESULTS_WITHOUT_JSON)
    without = {
        name
        for name, command in commands().items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == set(RESULTS_WITHOUT_JSON)
