"""What a command line of a crontab does that has another effect in an imported job."""

import re
from collections.abc import Iterator

_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_BACKGROUND = re.compile(r"(?<![&<>|])&(?![&>])")
_SEPARATOR = re.compile(r"&&|\|\|?|;|(?<![<>&])&(?![&>])")
_DETACHING = re.compile(r"(?:^|[\s;&|({/])(nohup|setsid)(?=\s)")
_WAIT = re.compile(r"(?:^|[\s;&])wait\b")
_REDIRECTION = re.compile(r"(?:(?<=\s)1|(?P<both>&)|(?<![0-9&>]))>>?\s*(?P<target>[^\s<>&()]+)")
_ERRORS_TOO = re.compile(r"2>\s*&\s*1")
_FLOCK = re.compile(r"(?:^|[\s;&|({/])flock\s+((?:-\S+\s+(?:[0-9]+\s+)?)*)")
_NONBLOCKING = re.compile(r"(?:^|\s)(?:-[a-z]*n|--nb\b|--nonblock)")
_CONFLICT_CODE = re.compile(r"(?:^|\s)(?:-[a-z]*E|--conflict-exit-code)")


def remarks(line: str) -> Iterator[tuple[str, bool]]:
    """Yield a message, and whether the job behaves differently than under cron.

    It reads the line without the contents of quotes, and does not find everything that a shell
    could execute.
    """
    bare = _QUOTED.sub("_", line)
    detaching = sorted({found[1] for found in _DETACHING.finditer(bare)})
    if _BACKGROUND.search(bare) and not _WAIT.search(bare):
        detaching.insert(0, "&")
    if detaching:
        yield (
            f"{', '.join(detaching)}: the processes that a command leaves are ended when it exits; "
            "run the work in the foreground, or let the service manager start a daemon",
            True,
        )
    if target := _output_target(bare):
        yield f"{target}, so the ledger does not keep it; remove the redirection to keep it", False
    if (flock := _FLOCK.search(bare)) and _NONBLOCKING.search(flock[1]):
        outcome = (
            "is a SUCCESS" if _CONFLICT_CODE.search(flock[1]) else "exits with 1, and so is FAILED"
        )
        yield (
            f"flock -n: a run that does not get the lock {outcome}; remove flock, because "
            'overlap = "skip" prevents overlapping runs on all hosts, and records each skip',
            False,
        )


def _output_target(bare: str) -> str | None:
    """Return where the output of the last command goes, or None if the ledger receives it."""
    parts = [part for part in _SEPARATOR.split(bare) if part.strip(" \t)}")]
    found = list(_REDIRECTION.finditer(parts[-1])) if parts else []
    if not found:
        return None
    both = found[-1]["both"] or _ERRORS_TOO.search(parts[-1])
    what = "standard output and errors go" if both else "standard output goes"
    return f"{what} to {found[-1]['target']}"
