"""Shell completion: names from the ledger."""

import re
import shlex
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronledger.cli import main
from tests.cli.conftest import Ask, Cli
from tests.waiting import PATIENCE, until

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(filled: Cli, database_url: str, ask: Ask) -> Complete:
    """Return what the command offers to a shell, and nothing else, for the last word of a line.

    One of the jobs is retired, and one has a name that a shell would have to quote.
    """
    ask("SELECT cronledger.retire('manual')")
    ask("SELECT cronledger.set_calendar('de', '{}', '2100-12-31', first => '2100-01-01')")
    ask("INSERT INTO cronledger.jobs (name, handler) VALUES ('h $(id)', 'external')")

    def call(line: str, shell: str = "bash", **variables: str) -> list[str]:
        words = ["cronledger", *line.split(" ")]
        given = {
            "CRONLEDGER_DATABASE_URL": database_url, "_CRONLEDGER_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1),
        }  # fmt: skip
        done = CliRunner().invoke(main, [], prog_name="cronledger", env={**given, **variables})
        assert (done.exit_code, done.stderr) == (0, "")
        return [found.removeprefix("plain,") for found in done.stdout.split("\n")[:-1]]

    return call


def offers(complete: Complete, line: str, expected: list[str]) -> None:
    """Fail unless these are offered. A busy machine may need longer than the limit at first."""
    until(f"{line}: {expected}", lambda: complete(line) == expected)


OFFERED = {
    "jobs pause ": "hourly tenants", "trigger t": "tenants", "queues pause ": "default",
    "trigger tenants --scope ": "acme globex", "next tenants --scope g": "globex",
    "executions list --job tenants --scope a": "acme", "executions retry ": "2",
    "executions show 2": "2", "executions output ": "2", "executions cancel ": "3",
    "calendars show d": "de", "calendars diff d": "de",
    **dict.fromkeys(("run --queue d", "check --queue d", "jobs list --queue d"), "default"),
    **dict.fromkeys(
        ("jobs show h", "next h", "why h", "verify h", "enqueue h", "backfill h",
         "executions list --job h"), "hourly",
    ),
}  # fmt: skip


@pytest.mark.long
def test_bash_offers_names_of_the_ledger_that_need_no_quotes(complete: Complete) -> None:
    for line, expected in OFFERED.items():
        offers(complete, line, expected.split())
    for line in ("jobs pause x", "trigger --scope a", "trigger  h"):
        assert complete(line) == [""], line


def test_it_is_silent_without_a_database(complete: Complete, tmp_path: Path) -> None:
    given = {"CRONLEDGER_EMBEDDED_DIR": str(tmp_path / "embedded")}
    nobody, closed = "postgresql://nobody.invalid/x", "postgresql://127.0.0.1:1/x"
    for url in ("", "nonsense", closed, nobody, "embedded"):
        assert complete("jobs show h", CRONLEDGER_DATABASE_URL=url, **given) == [""], url
    assert not (tmp_path / "embedded").exists()


def test_it_does_not_wait_for_a_database_that_hangs(
    monkeypatch: pytest.MonkeyPatch, filled: Cli
) -> None:
    from cronledger.cli import complete, session

    began, end = threading.Event(), threading.Event()

    def hang(_context: object) -> None:
        began.set()
        end.wait()

    monkeypatch.setattr(session, "reports_of_running", hang)
    monkeypatch.setattr(complete, "SECONDS", 0.01)
    assert complete.jobs(None, None, "h") == []  # type: ignore[arg-type]
    assert began.wait(PATIENCE)
    end.set()


def test_other_shells_also_get_a_description(complete: Complete) -> None:
    # Fish passes the last word instead of its number.
    fish = {"COMP_WORDS": "cronledger executions retry", "COMP_CWORD": ""}
    for shell, given in (("zsh", {}), ("fish", fish)):

        def described(shell: str = shell, given: dict[str, str] = given) -> str:
            return "\n".join(complete("executions retry ", shell, **given)).strip()

        found = until("an execution", described)
        assert re.search(r"\b2\b[\s,]+hourly global \d{4}-\S+Z exit_code", found), found
