"""`manage.py cronledger`: the commands of cronledger for a Django project."""

import io
import os
import sys
from argparse import REMAINDER
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper

from cronledger.cli import main
from cronledger.contrib.django import options
from cronledger.contrib.django.database import dsn
from cronledger.rules.problems import ConfigurationError, Exit
from cronledger.settings import PREFIX

PROJECT = "cronledger.contrib.django.project:app"
VARIABLE = f"{PREFIX}DATABASE_URL"
SOURCES = {
    "run": {"sources": [PROJECT]},
    "check": {"sources": [PROJECT]},
    "jobs": {"apply": {"source": PROJECT}, "diff": {"source": PROJECT}},
}
"""The source of a command that names none."""
OFFLINE = ("check", "-h", "--help", "--version")
"""What needs no database."""


class Command(BaseCommand):
    """Runs the commands of cronledger with the jobs and the database of the project."""

    help = (
        "Run a replica with the jobs of all installed apps (run), check them (check), or call "
        "another command of cronledger on the database of the project."
    )
    # `check` reports what these checks would, and more.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Pass everything from the name of the command on to cronledger."""
        parser.add_argument("arguments", nargs=REMAINDER, metavar="COMMAND ...")

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command for a shell: its exit status is that of cronledger."""
        self._from_shell = True
        super().run_from_argv(argv)

    _from_shell = False

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """Run the command of cronledger.

        For `call_command`, it writes to `self.stdout` and `self.stderr`, and returns if the command
        succeeds. Otherwise it raises CommandError, with the text of standard error and the exit
        status as `returncode`.
        """
        if self._from_shell:
            sys.exit(self._status(arguments))
        out, err = _Writer(self.stdout), _Writer(self.stderr)
        with redirect_stdout(out), redirect_stderr(err):
            status = self._status(arguments)
        if status != 0:
            text = "".join(err.last).strip()
            raise CommandError(text or f"exit status {status}", returncode=status)

    def _status(self, arguments: list[str]) -> int:
        """Run the command, and return its exit status."""
        try:
            with _database(arguments):
                main.main(arguments, prog_name="manage.py cronledger", default_map=SOURCES)
        except ConfigurationError as error:
            sys.stderr.write("".join(f"Error: {problem}\n" for problem in error.problems))
            return Exit.USAGE
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0


@contextmanager
def _database(arguments: list[str]) -> Iterator[None]:
    """Set the variable of the database for the block, unless it is set or not needed.

    Afterwards the project may use another database, such as that of its tests. Raises
    ConfigurationError.
    """
    if not arguments or arguments[0] in OFFLINE or os.environ.get(VARIABLE):
        yield
        return
    os.environ[VARIABLE] = dsn(options.alias())
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


class _Writer(io.TextIOBase):
    """A text stream that writes to a stream of Django, and keeps the last pieces of text."""

    def __init__(self, to: OutputWrapper) -> None:
        self._to = to
        self.last = deque[str](maxlen=20)

    def write(self, text: str | bytes) -> int:
        """Write text. Some commands write bytes, which are UTF-8."""
        shown = text.decode() if isinstance(text, bytes) else text
        self.last.append(shown)
        self._to.write(shown, ending="")
        return len(text)

    def flush(self) -> None:
        self._to.flush()

    def isatty(self) -> bool:
        return bool(self._to.isatty())
