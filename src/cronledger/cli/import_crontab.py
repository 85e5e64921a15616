"""`cronledger import crontab`: convert crontabs to a `cronledger.toml`, with notes."""

import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from cronledger.cli.importing import current_user, finish, output_options, zone_of_host
from cronledger.rules.problems import RefusedError
from cronledger.settings import OfflineSettings
from cronledger.sources.crontab import Format, Imported, Options, detect_format, read_crontab
from cronledger.sources.crontab_toml import convert
from cronledger.sources.files import read_file, read_stream

STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Path prefixes of the pipes of a shell, as in `import crontab <(crontab -l)`."""

USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?")
"""Names that --crontab-user accepts, those of a domain included."""

_RUN_PARTS = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _Source:
    """The text of a crontab, and the `format` and `owner` that follow from its path.

    `in_directory`: FILE is its directory. So its name is its user if it is in user format.
    """

    file: str
    text: str
    format: Format | None
    owner: str | None
    in_directory: bool = False


@click.command("crontab")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@output_options
@click.option(
    "--user", "as_crontab_l", is_flag=True, help="Read entries without a user, as from crontab -l."
)
@click.option("--system", is_flag=True, help="Read the sixth field of an entry as its user.")
@click.option(
    "--timezone", metavar="ZONE", help="Time zone of the schedules [default: that of this host]."
)
@click.option(
    "--crontab-user",
    metavar="NAME",
    help="User of the crontabs whose path names none, such as -; implies --user for them.",
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
    crontab_user: str | None,
    as_user: bool,
    faithful: bool,
) -> None:
    """Convert crontabs to a cronledger.toml.

    FILE is a crontab, a directory of crontabs such as /etc/cron.d, or - for standard input. The
    name of a file in a spool directory, such as /var/spool/cron/crontabs, is its user. Lines that
    have no equivalent are reported on standard error, and stay in the output as comments. Values
    that are probably secrets are reported too, because the ledger would store them. Only the
    current user can read the file of --output.

    Exit status: 0 if every line has an equivalent, 1 if a line has none, 2 for a usage error.
    """
    if as_crontab_l and system:
        raise click.UsageError("--user and --system exclude each other; use one of them")
    if crontab_user is not None and system:
        raise click.UsageError("--crontab-user and --system exclude each other; use one of them")
    if crontab_user is not None and not USER.fullmatch(crontab_user):
        raise click.BadParameter(
            f"{crontab_user!r} is not the name of a user; use one such as www-data",
            param_hint="--crontab-user",
        )
    forced: Format | None = "user" if as_crontab_l else "system" if system else None
    secret_names = OfflineSettings.load().web_redact
    options = Options(zone_of_host(timezone), current_user(), as_user, faithful, secret_names)
    sources = [source for file in files for source in _sources(file, spool=as_crontab_l)]
    crontabs = _read(sources, forced, crontab_user, options)
    finish(convert(crontabs, options), output, force=force)


def _sources(file: str, *, spool: bool) -> Iterator[_Source]:
    """Yield the crontabs that one argument names. Raises UsageError if one cannot be read.

    `spool`: a directory is a spool directory, whatever its path is.
    """
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
                elif not (spool or owner or _RUN_PARTS.fullmatch(entry.name)):
                    click.echo(f"{entry}: skipped: cron ignores files with such names", err=True)
                else:
                    yield _Source(str(entry), _decoded(read_file(entry)), format, owner, True)
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


def _place(path: Path) -> tuple[Format | None, str | None]:
    """Return the format and the owner that follow from the path of a crontab."""
    parts = path.absolute().parts
    if parts[-2:-1] == ("cron.d",) or parts[-2:] == ("etc", "crontab"):
        return "system", None
    folder = parts[-2:-1]
    if folder in (("crontabs",), ("tabs",)) or (folder == ("cron",) and "spool" in parts):
        return "user", parts[-1]
    return None, None


def _read(
    sources: Iterable[_Source],
    forced: Format | None,
    crontab_user: str | None,
    options: Options,
) -> list[Imported]:
    users = [entry.pw_name for entry in pwd.getpwall()]
    crontabs: list[Imported] = []
    for source in sources:
        format, owner = _format_and_owner(source, forced, crontab_user, users)
        crontab = read_crontab(
            source.text,
            file=source.file,
            format=format,
            options=options,
            owner=owner,
            taken=[job.name for crontab in crontabs for job in crontab.jobs],
            noted_users=[user for crontab in crontabs for user in crontab.users],
        )
        if options.as_user and format == "user" and owner is None and crontab.jobs:
            raise click.UsageError(
                f"--as-user: the user of FILE {source.file!r} is unknown; name it with "
                "--crontab-user NAME, or use --system if each entry has a user before its command"
            )
        crontabs.append(crontab)
    return crontabs


def _format_and_owner(
    source: _Source, forced: Format | None, crontab_user: str | None, users: Sequence[str]
) -> tuple[Format, str | None]:
    """Return the format of a crontab, and its user if it is in user format and the user is known.

    A directory of crontabs in user format is a spool directory, where the name of a file is its
    user. That the format is `user` is certain if it was forced, or if the name is that of a user.
    """
    owner, format = source.owner, forced or source.format
    if owner is None and crontab_user is not None and format != "system":
        return "user", crontab_user
    format = format or detect_format(source.text, users)
    name = Path(source.file).name
    if owner is None and source.in_directory and (forced == "user" or name in users):
        owner = name
    return format, owner if format == "user" else None
