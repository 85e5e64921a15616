"""Shell completion: names from the ledger, in this process and in a real bash."""

import os
import pty
import re
import select
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronledger.cli import main
from tests.cli.conftest import Ask, Cli
from tests.docs.support.pages import ROOT, blocks
from tests.waiting import PATIENCE, until

PROGRAM = Path(sys.executable).parent / "cronledger"
Complete = Callable[..., list[str]]


@pytest.fixture
def shell(filled: Cli, database_url: str, ask: Ask) -> Complete:
    """Return what the command prints for a shell, and nothing else, for the last of these words.

    One of the jobs is retired, and one has a name that a shell would have to quote.
    """
    ask("SELECT cronledger.retire('manual')")
    ask("INSERT INTO cronledger.jobs (name, handler) VALUES ('h $(id)', 'external')")

    def complete(*words: str, shell: str = "bash", **variables: str) -> list[str]:
        given = {
            "CRONLEDGER_DATABASE_URL": database_url, "_CRONLEDGER_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1),
        }  # fmt: skip
        done = CliRunner().invoke(main, [], prog_name="cronledger", env={**given, **variables})
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return complete


@pytest.fixture
def names(shell: Complete) -> Complete:
    """Return what bash offers for the last of these words."""
    return lambda *words, **variables: [
        line.removeprefix("plain,") for line in shell(*words, **variables)
    ]


def offers(complete: Complete, words: str, *expected: str) -> None:
    """Fail unless these are offered. A busy machine may need longer than the limit at first."""
    given = words.split(" ")
    until(f"{words}: {expected}", lambda: complete("cronledger", *given) == list(expected))


OFFERED = {
    "jobs pause ": "hourly tenants", "trigger t": "tenants", "queues pause ": "default",
    "trigger tenants --scope ": "acme globex", "next tenants --scope g": "globex",
    "executions list --job tenants --scope a": "acme", "executions retry ": "2",
    "executions show 2": "2", "executions output ": "2", "executions cancel ": "3",
    **dict.fromkeys(("run --queue d", "check --queue d", "jobs list --queue d"), "default"),
    **dict.fromkeys(
        ("jobs show h", "next h", "why h", "verify h", "enqueue h", "backfill h",
         "executions list --job h"), "hourly",
    ),
}  # fmt: skip


@pytest.mark.long
def test_bash_offers_names_of_the_ledger_that_need_no_quotes(names: Complete) -> None:
    for words, expected in OFFERED.items():
        offers(names, words, *expected.split())
    assert names("cronledger", "jobs", "pause", "x") == [""]
    assert names("cronledger", "trigger", "--scope", "a") == [""]  # of no job yet
    assert names("cronledger", "trigger", "", "h") == [""]


def test_it_is_silent_without_a_database(names: Complete, tmp_path: Path) -> None:
    given = {"CRONLEDGER_EMBEDDED_DIR": str(tmp_path / "embedded")}
    nobody, closed = "postgresql://nobody.invalid/x", "postgresql://127.0.0.1:1/x"
    for url in ("", "nonsense", closed, nobody, "embedded"):
        found = names("cronledger", "jobs", "show", "h", CRONLEDGER_DATABASE_URL=url, **given)
        assert found == [""], url
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


def test_other_shells_also_get_a_description(shell: Complete) -> None:
    words = ("cronledger", "executions", "retry", "")
    # Fish passes the last word instead of its number.
    fish = {"COMP_WORDS": "cronledger executions retry", "COMP_CWORD": ""}
    for other, given in (("zsh", {}), ("fish", fish)):

        def described(other: str = other, given: dict[str, str] = given) -> str:
            return "\n".join(shell(*words, shell=other, **given)).strip()

        found = until("an execution", described)
        assert re.search(r"\b2\b[\s,]+hourly global \d{4}-\S+Z exit_code", found), found


@pytest.fixture
def terminal(filled: Cli, database_url: str) -> Iterator[int]:
    """An interactive bash on a terminal, as a person has it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
        env=os.environ | {
            "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
            "CRONLEDGER_DATABASE_URL": database_url, "TERM": "dumb", "PS1": "$ ",
        },
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    yield ours
    process.kill()
    process.wait()
    os.close(ours)


@pytest.mark.long
def test_the_tab_key_completes_as_documented(terminal: int) -> None:
    documented = next(
        block.text for block in blocks(ROOT / "docs" / "cli.md") if "bash_source" in block.text
    )
    line = re.search(r"^\$ (eval .*bash_source cronledger\)\")", documented, re.MULTILINE)
    assert line is not None
    os.write(terminal, f"{line[1]}\n".encode())
    received = ""

    def completed() -> bool:
        """The whole line again: a second Tab in it lists names instead of completing one."""
        nonlocal received
        os.write(terminal, b"\x15cronledger jobs show hou\t")  # Ctrl-U removes the line
        while select.select([terminal], [], [], 1.0)[0]:
            received += os.read(terminal, 4096).decode("utf-8", "replace")
        return "jobs show hourly " in received

    until("the name is complete", completed)
