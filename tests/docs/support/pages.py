"""The code blocks of a page, and a shell that runs them as a reader would.

A `console` block holds commands after `$ `, each with the output that the page shows. A line that
ends a here-document belongs to its command. Comments in front of a block say more about it:

`<!-- repeat -->`: the reader repeats the command until it prints what the page shows.
`<!-- file: NAME -->`: the reader saves the block under this name.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[3]
SECONDS = 120.0
_MARK = "=== end of command, exit status"
_END = re.compile(rf"\n{_MARK} (\d+)\n")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<remark>[^\n]*?) -->\n\n?)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?P<target>[^)\s]*)")
_HEREDOC = re.compile(r"<<'?(\w+)'?")


class Block(NamedTuple):
    language: str
    text: str
    remark: str


class Command(NamedTuple):
    """A command of a console block, and the lines of output that the page shows."""

    text: str
    shown: list[str]


def blocks(page: Path) -> list[Block]:
    found = _BLOCK.finditer(page.read_text("utf-8"))
    return [Block(m["language"], m["text"], m["remark"] or "") for m in found]


def snippets(page: str, language: str, containing: str = "") -> list[str]:
    """Return the code blocks of a page of docs in a language that have `containing` in them."""
    found = [x.text for x in blocks(ROOT / "docs" / page) if x.language == language]
    assert found, page
    return [text for text in found if containing in text]


def run_snippets(page: str, containing: str = "") -> dict[str, Any]:
    """Run Python code blocks of a page of docs, and return the names that they define."""
    names: dict[str, Any] = {"__name__": "documented"}
    for snippet in snippets(page, "python", containing):
        exec(compile(snippet, page, "exec"), names)
    return names


def relative_links(text: str) -> list[str]:
    """Return the targets of links and pictures that are not absolute addresses."""
    prose = _FENCED.sub("", text)
    return [m["target"] for m in _LINK.finditer(prose) if not m["target"].startswith("https://")]


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a console block."""
    lines = block.text.splitlines()
    while lines:
        line = lines.pop(0)
        assert line.startswith("$ "), f"{line!r} follows no command"
        text = [line[2:]]
        if heredoc := _HEREDOC.search(line):
            while text[-1] != heredoc[1]:
                text.append(lines.pop(0))
        while text[-1].endswith("\\"):
            text.append(lines.pop(0))
        shown = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield Command("\n".join(text), shown)


def shows(output: str, expected: list[str]) -> bool:
    """Return whether each of the lines of a page is among those of the output.

    Numbers, ids and instants differ from run to run, and so does the width of columns: each digit
    counts as any number, `1 skip` as `2 skips`, and white space as one space. `…` stands for any
    text.
    """
    lines = [_normal(line) for line in output.splitlines()]
    return all(any(_matches(line, _normal(wanted)) for line in lines) for wanted in expected)


def _matches(line: str, wanted: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in wanted.split("…"))
    return re.fullmatch(pattern, line) is not None


def _normal(line: str) -> str:
    without_comment = re.sub(r" {3,}# .*", "", line)
    without_numbers = re.sub(r"\d+", "0", without_comment)
    return " ".join(re.sub(r"\b0 ([a-z_]+)s\b", r"0 \1", without_numbers).split())


class Shell:
    """Bash in a directory, with job control, as a reader has it; a context manager.

    `programs`: the directory of psql.
    """

    def __init__(self, directory: Path, variables: Mapping[str, str], programs: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CRONLEDGER_", "PG"))}
        own = (str(Path(sys.executable).parent), str(programs))
        path = os.pathsep.join([*own, os.environ["PATH"]])
        home = {"HOME": str(directory), "PATH": path, "LC_ALL": "C.UTF-8", "PIP_NO_INDEX": "1"}
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            env={**kept, **home, **variables}, cwd=directory, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._directory = directory
        self.printed = ""
        self.status = 0
        self.call("set -m")  # an option is ignored where there is no terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(self.printed)
            for log in self._directory.rglob("*.log"):
                print(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-4000:]}")
        try:
            for pid in re.findall(r"^\d+$", self.call("jobs -p"), re.MULTILINE):
                with suppress(ProcessLookupError):  # bash also lists a job that has ended
                    os.killpg(int(pid), signal.SIGTERM)
            self.call("wait")
        finally:
            self._bash.kill()
            self._bash.communicate()

    def read(self, block: Block) -> None:
        """Do what a reader does with a block."""
        if name := re.match(r"file: (.+)", block.remark):
            (self._directory / name[1]).write_text(block.text, "utf-8")
        elif block.language == "console":
            for command in commands(block):
                self.follow(command, repeat=block.remark == "repeat")

    def follow(self, command: Command, *, repeat: bool = False) -> None:
        """Run a command, and fail unless it prints what the page shows."""
        text = command.text
        if re.match(r"cronledger (run|dev)\b", text) and not text.endswith("&"):
            text += " >> terminal.log 2>&1 &"  # the reader goes on in another terminal
        deadline = time.monotonic() + SECONDS
        while True:
            output = self.call(text)
            told = set(command.shown) - {"…"}  # what an error would not show, too
            if shows(output, command.shown) and (told or self.status == 0):
                return
            wanted = "\n".join(command.shown) or "exit status 0"
            assert repeat, f"{text}\nexit status {self.status}\n{output}\ninstead of\n{wanted}"
            assert time.monotonic() < deadline, f"{text}\nstill prints\n{output}"

    def call(self, text: str) -> str:
        """Return what a command prints; `status` is its exit status."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{text}\nprintf '\\n{_MARK} %d\\n' $?\n".encode())
        self._bash.stdin.flush()
        output = self._until_mark()
        self.printed += f"$ {text}\n{output}"
        return output

    def _until_mark(self) -> str:
        assert self._bash.stdout is not None
        output, deadline = "", time.monotonic() + SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            while (mark := _END.search(output)) is None:
                assert selector.select(deadline - time.monotonic()), output
                output += os.read(self._bash.stdout.fileno(), 65536).decode("utf-8", "replace")
        self.status = int(mark[1])
        return output[: mark.start()]
