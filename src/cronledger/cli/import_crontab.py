"""`cronledger import-crontab`: convert crontabs to a `cronledger.toml`, with notes."""

import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cronledger.sources.crontab import Format, Imported, Options

LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")
STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Path prefixes of the pipes of a shell, as in `import-crontab <(crontab -l)`."""

_RUN_PARTS = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _Source:
    """The text of a crontab, and the `format` and `owner` that follow from its path."""

    file: str
    text: str
    format: "Format | None"
    owner: str | None


@click.command("import-crontab")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="File to write [default: standard output].")
@click.option("--force", is_flag=True, help="Overwrite the output file if it exists.")
@click.option(
    "--user", "as_crontab_l", is_flag=True, help="Read entries without a user, as from crontab -l."
)
@click.option("--system", is_flag=True, help="Read the sixth field of an entry as its user.")
@click.option(
    "--timezone", metavar="ZONE", help="Time zone of the schedules [default: that of this host]."
)
@click.option("--as-user", is_flag=True, help="Run each command as its crontab user, with runuser.")
@click.option("--faithful", is_flag=True, help="Allow runs to overlap, as cron does.")
def import_crontab(
    *,
    files: tuple[str, ...],
    output: str | None,
    force: bool,
    as_crontab_l: bool,
    system: bool,
    timezone: str | None,
    as_user: bool,
    faithful: bool,
) -> None:
    """Convert crontabs to a cronledger.toml.

    FILE is a crontab, a directory of crontabs such as /etc/cron.d, or - for standard input. Lines
    that have no equivalent are reported on standard error, and stay in the output as comments.

    Exit status: 0 if every line has an equivalent, 1 if a line has none, 2 for a usage error.
    """
    from cronledger.sources.crontab import Options
    from cronledger.sources.crontab_toml import render

    if as_crontab_l and system:
        raise click.UsageError("--user and --system exclude each other; use one of them")
    forced: Format | None = "user" if as_crontab_l else "system" if system else None
    options = Options(_zone(timezone), _current_user(), as_user, faithful)
    sources = [source for file in files for source in _sources(file)]
    crontabs = _read(sources, forced, options)
    _write(render(crontabs, options), output, force)
    for crontab in crontabs:
        _report(crontab)
    if not all(crontab.complete for crontab in crontabs):
        sys.exit(1)


def _sources(file: str) -> Iterator[_Source]:
    """Yield the crontabs that one argument names. Raises UsageError if one cannot be read."""
    from cronledger.rules.problems import RefusedError
    from cronledger.sources.files import read_file, read_stream

    path = Path(file)
    try:
        if file == "-":
            yield _Source(file, _decoded(read_stream(sys.stdin.buffer)), None, None)
        elif file.startswith(STREAMS):
            with path.open("rb") as stream:
                yield _Source(file, _decoded(read_stream(stream)), None, None)
        elif path.is_dir():
            for entry in sorted(path.iterdir()):
                format, owner = _place(entry)
                # Cron reads spool files of any name, and others by the naming rules of run-parts.
                if not entry.is_file():
                    click.echo(f"{entry}: skipped: it is not a regular file", err=True)
                elif owner is None and not _RUN_PARTS.fullmatch(entry.name):
                    click.echo(f"{entry}: skipped: cron ignores files with such names", err=True)
                else:
                    yield _Source(str(entry), _decoded(read_file(entry)), format, owner)
        else:
            yield _Source(file, _decoded(read_file(path)), *_place(path))
    except RefusedError as error:
        raise click.UsageError(f"FILE {file!r} {error.problem}; {error.remedy}") from None
    except OSError as error:
        raise click.UsageError(
            f"FILE {error.filename or file!r} cannot be read: {error.strerror}; name a crontab, "
            "a directory of crontabs, or -"
        ) from None


def _decoded(data: bytes) -> str:
    """Return the text. Bytes that are not UTF-8 become surrogates, and are refused line by line."""
    return data.decode("utf-8-sig", "surrogateescape")


def _place(path: Path) -> "tuple[Format | None, str | None]":
    """Return the format and the owner that follow from the path of a crontab."""
    parts = path.absolute().parts
    if parts[-2:-1] == ("cron.d",) or parts[-2:] == ("etc", "crontab"):
        return "system", None
    if "spool" in parts and parts[-2] in ("crontabs", "cron", "tabs"):
        return "user", parts[-1]
    return None, None


def _read(
    sources: Iterable[_Source], forced: "Format | None", options: "Options"
) -> "list[Imported]":
    from cronledger.sources.crontab import detect_format, read_crontab

    known = [entry.pw_name for entry in pwd.getpwall()]
    crontabs: list[Imported] = []
    for source in sources:
        format = forced or source.format or detect_format(source.text, known)
        taken = [job.name for crontab in crontabs for job in crontab.jobs]
        crontabs.append(
            read_crontab(
                source.text,
                file=source.file,
                format=format,
                options=options,
                owner=source.owner,
                taken=taken,
            )
        )
    return crontabs


def _write(text: str, output: str | None, force: bool) -> None:
    if output in (None, "-"):
        click.echo(text.encode(), nl=False)
        return
    try:
        with Path(str(output)).open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"--output {output!r} exists; choose another file, or add --force"
        ) from None
    except OSError as error:
        raise click.UsageError(
            f"--output {output!r} cannot be written: {error.strerror}; choose another file"
        ) from None


def _report(crontab: "Imported") -> None:
    for note in crontab.notes:
        place = f"{crontab.file}:{note.line}"
        if note.kind == "dropped":
            click.echo(f"{place}: not imported: {note.message}\n    {note.text.strip()}", err=True)
        else:
            click.echo(f"{place}: {note.message}", err=True)
    jobs = len(crontab.jobs)
    click.echo(
        f"{crontab.file}: {jobs} job{'' if jobs == 1 else 's'}, read in {crontab.format} format",
        err=True,
    )


def _zone(given: str | None) -> str:
    """Return the given zone, otherwise that of this host, otherwise UTC with a note."""
    from cronledger.rules import cron

    for name in [given] if given is not None else _local_zones():
        try:
            cron.parse("* * * * *", timezone=name)
        except cron.CronError as error:
            if given is not None:
                raise click.BadParameter(str(error), param_hint="--timezone") from None
        else:
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


def _current_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
