"""`manage.py cronledger`: the commands of cronledger for a Django project."""

import os
import sys
from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from cronledger.cli import main
from cronledger.contrib.django import options
from cronledger.contrib.django.database import dsn
from cronledger.rules.problems import ConfigurationError, Exit
from cronledger.settings import PREFIX

PROJECT = "cronledger.contrib.django.project:app"
VARIABLE = f"{PREFIX}DATABASE_URL"
SOURCES = {
    "run": {"source": PROJECT},
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

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """Call the command. Exits with its status."""
        if arguments and arguments[0] not in OFFLINE and not os.environ.get(VARIABLE):
            try:
                os.environ[VARIABLE] = dsn(options.alias())
            except ConfigurationError as error:
                self.stderr.write("\n".join(f"Error: {problem}" for problem in error.problems))
                sys.exit(Exit.USAGE)
        main.main(arguments, prog_name="manage.py cronledger", default_map=SOURCES)
