"""The line of a crontab that runs the same command, and reports its run."""

import re
import shlex

from cronledger.sources.crontab import ImportedJob
from cronledger.sources.observed import PROGRAM

HEADER = (
    "Add a line CRONLEDGER_DATABASE_URL=postgresql://… to the crontab, and replace each entry with "
    f"the line in the comment of its job. {PROGRAM} is the path of the program."
)
SCOPE = "machine"
"""The kind of the scopes of a job that several hosts have: one scope for each of them."""

_WORDS = re.compile(r"(?:[~/][A-Za-z0-9_./-]*)(?:[ \t]+(?:[A-Za-z0-9_./:@,+=-]|\\%)+)*[ \t]*")
"""A path and plain words, in which a shell expands only the home directory."""
_INPUT = re.compile(r"(?<!\\)%")


def line(job: ImportedJob, name: str, host: str | None = None) -> str:
    """Return the entry of a job with the wrapper before its command.

    The text after a % is the standard input of the command, and therefore of the wrapper. If the
    command needs a shell, the wrapper starts this shell, so that the whole command is one run.
    """
    found = _INPUT.search(job.line_command)
    end = found.start() if found else len(job.line_command)
    command, given = job.line_command[:end], job.line_command[end:]
    if not _WORDS.fullmatch(command):
        command = f"{job.shell} -c {shlex.quote(command)}"
    scope = f"--scope {SCOPE}/{host} " if host is not None else ""
    return f"{job.before}{PROGRAM} observe {scope}{name} -- {command}{given}"
