"""What every command of `cronledger import` has in common: its output, report and exit status."""

import os
import pwd
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from cronledger.rules import cron
from cronledger.rules.problems import RefusedError
from cronledger.sources.files import read_file, read_stream
from cronledger.sources.imported import Import, Source, checked, render
from cronledger.sources.imported_hosts import LABEL
from cronledger.sources.observed import observed

HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,150}[A-Za-z0-9])?")
LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `output` and `force`, which `finish` takes."""
    for option in (
        click.option("--force", is_flag=True, help="Overwrite the output file if it exists."),
        click.option(
            "-o", "--output", metavar="FILE", help="File to write [default: standard output]."
        ),
    ):
        command = option(command)
    return command


observe_option = click.option(
    "--observe", is_flag=True,
    help="Write observed jobs. Their comments show what to change in the other scheduler.",
)  # fmt: skip

_LABEL = re.compile(r"[A-Za-z0-9._/-]+=[A-Za-z0-9._:@/+-]+")


def _valid_label(_context: click.Context, _parameter: click.Parameter, label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise click.BadParameter(
            f"{label!r} is not a label; use one such as role=web", param_hint="--every"
        )
    return label


every_option = click.option(
    "--every", "label", metavar="KEY=VALUE", default=LABEL, show_default=True,
    callback=_valid_label, help="Label for `every` in jobs that all hosts have.",
)  # fmt: skip


def divided(argument: str) -> tuple[str | None, str]:
    """Return the host and the path of an argument HOST=PATH.

    An argument that is an existing path has no host.
    """
    host, _, path = argument.partition("=")
    if path and HOST.fullmatch(host) and not Path(argument).exists():
        return host, path
    return None, argument


def finish(imported: Import, output: str | None, *, force: bool, observe: bool = False) -> None:
    """Write the file, print the notes, and exit with 1 unless each entry has an equivalent.

    `observe`: the jobs stay in their scheduler, which reports their runs.
    """
    imported = checked(observed(imported) if observe else imported)
    _write(render(imported), output, force)
    for source in imported.sources:
        _report(source)
    if len(imported.sources) != 1:
        jobs = sum(source.jobs for source in imported.sources)
        dropped = sum(source.dropped for source in imported.sources)
        click.echo(f"{len(imported.sources)} sources: {_counts(jobs, dropped)}", err=True)
    if not imported.complete:
        sys.exit(1)


def _write(text: str, output: str | None, force: bool) -> None:
    if output in (None, "-"):
        click.echo(text.encode(), nl=False)
        return
    try:
        mode = "w" if force else "x"
        with open(str(output), mode, encoding="utf-8", newline="\n", opener=_private) as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"--output {output!r} exists; choose another file, or add --force"
        ) from None
    except OSError as error:
        raise click.UsageError(
            f"--output {output!r} cannot be written: {error.strerror}; choose another file"
        ) from None


def _private(path: str, flags: int) -> int:
    """Open a file that only this user can read, because it may contain secrets."""
    opened = os.open(path, flags, mode=0o600)
    if stat.S_ISREG(os.fstat(opened).st_mode):  # it may have existed before, with another mode
        os.fchmod(opened, 0o600)
    return opened


def _report(source: Source) -> None:
    """Print the notes of the source, and a last line that counts its jobs."""
    for entry in source.entries:
        for note in entry.notes:
            if note.kind == "dropped":
                (line, *_) = entry.text.strip().split("\n")
                click.echo(f"{entry.place}: not imported: {note.message}\n    {line}", err=True)
            else:
                click.echo(f"{entry.place}: {note.message}", err=True)
    form = f", read in {source.form}" if source.form else ""
    click.echo(f"{source.name}: {_counts(source.jobs, source.dropped)}{form}", err=True)


def _counts(jobs: int, dropped: int) -> str:
    lost = f", {dropped} {'entry' if dropped == 1 else 'entries'} not imported" if dropped else ""
    return f"{jobs} job{'' if jobs == 1 else 's'}{lost}"


def read_texts(files: Iterable[str], read: Callable[[Iterable[tuple[str, str]]], Import]) -> Import:
    """Return what `read` makes of the names and texts of these files; - is standard input.

    Raises UsageError if one of them cannot be read.
    """
    current = "-"

    def texts() -> Iterator[tuple[str, str]]:
        nonlocal current
        for current in files:
            data = read_stream(sys.stdin.buffer) if current == "-" else read_file(Path(current))
            yield current, data.decode("utf-8-sig")

    with refusing(lambda: f"FILE {current!r}", "name a readable file, or -"):
        return read(texts())


@contextmanager
def refusing(what: Callable[[], str], remedy: str) -> Iterator[None]:
    """Raise UsageError, with the name of `what`, for a file that is unreadable or not UTF-8."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{what()}: byte {error.start} is not UTF-8; save it as UTF-8"
        ) from None
    except RefusedError as error:
        raise click.UsageError(f"{what()} {error.problem}; {error.remedy}") from None
    except OSError as error:
        raise click.UsageError(f"{what()} cannot be read: {error.strerror}; {remedy}") from None


def valid_zone(name: str) -> str:
    """Return the name of a time zone. Raises BadParameter if there is no such zone."""
    try:
        cron.parse("* * * * *", timezone=name)
    except cron.CronError as error:
        raise click.BadParameter(str(error), param_hint="--timezone") from None
    return name


def zone_of_host(given: str | None) -> str:
    """Return the given zone, otherwise that of this host, otherwise UTC with a note."""
    if given is not None:
        return valid_zone(given)
    for name in _local_zones():
        with suppress(cron.CronError):
            cron.parse("* * * * *", timezone=name)
            return name
    click.echo(
        "the time zone of this host is unknown, so UTC is used; override it with --timezone",
        err=True,
    )
    return "UTC"


def _local_zones() -> Iterator[str]:
    with suppress(OSError):  # a copy instead of a link: the other file may name the zone
        yield str(LOCALTIME.readlink()).partition("zoneinfo/")[2]
    with suppress(OSError, ValueError):
        yield TIMEZONE.read_text(encoding="utf-8").strip()


def current_user() -> str:
    """Return the name of the user that runs this command."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
