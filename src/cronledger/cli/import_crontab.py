"""`cronledger import crontab`: convert crontabs to a `cronledger.toml`, with notes."""

import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from cronledger.cli.importing import (
    HOST,
    current_user,
    divided,
    every_option,
    finish,
    observe_option,
    output_options,
    zone_of_host,
)
from cronledger.rules.problems import RefusedError
from cronledger.settings import OfflineSettings
from cronledger.sources import crontab_hosts
from cronledger.sources.crontab import Format, Imported, Options, detect_format, read_crontab
from cronledger.sources.crontab_hosts import HostCrontab
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

    `in_directory`: FILE is its directory. So its name is its user if it is in user format. `host`:
    the host from which it comes, with its `zone` if that is known.
    """

    file: str
    text: str
    format: Format | None
    owner: str | None
    in_directory: bool = False
    host: str | None = None
    zone: str | None = None


@click.command("crontab")
@click.argument("files", metavar="[[HOST=]FILE]...", nargs=-1)
@output_options
@observe_option
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
@click.option(
    "--hosts",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Directory with one directory for each host.",
)
@every_option
def import_crontab(
    *,
    files: tuple[str, ...],
    output: str | None,
    force: bool,
    observe: bool,
    as_crontab_l: bool,
    system: bool,
    timezone: str | None,
    crontab_user: str | None,
    as_user: bool,
    faithful: bool,
    directory: str | None,
    label: str,
) -> None:
    """Convert crontabs to a cronledger.toml.

    FILE is a crontab, a directory of crontabs such as /etc/cron.d, or - for standard input. The
    name of a file in a spool directory, such as /var/spool/cron/crontabs, is its user. Lines that
    have no equivalent are reported on standard error, and stay in the output as comments. Values
    that are probably secrets are reported too, because the ledger would store them. Only the
    current user can read the file of --output.

    HOST=FILE names the host of a crontab, so that the crontabs of many hosts become one file.
    Entries that are equal on several hosts become one job, and the differences between the hosts
    are reported. DIR of --hosts has a directory for each host, which contains any of `crontab` (a
    copy of /etc/crontab), `crontab.USER` (the output of crontab -l), `cron.d`, `crontabs` (a copy
    of the spool directory), and `timezone` (a copy of /etc/timezone).

    With --observe, cron keeps its entries and reports their runs. The output contains observed
    jobs, and the comment of each job has the new line for the crontab.

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
    sources = [source for file in files for source in _sources(file, spool=as_crontab_l)]
    sources += _hosts(Path(directory), own_zone=timezone is None) if directory else []
    if not sources:
        raise click.UsageError("no crontab is given; name a FILE, or --hosts DIR")
    if len({source.host is None for source in sources}) > 1:
        raise click.UsageError(
            "some crontabs have a host, and others have none; write HOST=FILE for each of them"
        )
    options = Options(
        zone_of_host(timezone), current_user(), as_user, faithful, secret_names, observe,
        named_hosts=sources[0].host is not None,
    )  # fmt: skip
    crontabs = _read(sources, forced, crontab_user, options)
    hosts = [
        HostCrontab(source.host, source.file, crontab)
        for source, crontab in zip(sources, crontabs, strict=True) if source.host is not None
    ]  # fmt: skip
    found = crontab_hosts.convert(hosts, options, label) if hosts else convert(crontabs, options)
    finish(found, output, force=force, observe=observe)


def _sources(file: str, *, spool: bool) -> Iterator[_Source]:
    """Yield the crontabs that one argument names. Raises UsageError if one cannot be read.

    `spool`: a directory is a spool directory, whatever its path is.
    """
    path = Path(file)
    host, rest = divided(file)
    try:
        if host is not None:
            yield from (replace(source, host=host) for source in _sources(rest, spool=spool))
        elif file == "-":
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


def _hosts(directory: Path, *, own_zone: bool) -> Iterator[_Source]:
    """Yield the crontabs of a directory with one directory for each host.

    `own_zone`: the zone of a host is that of its file `timezone`. Raises UsageError.
    """
    places = [place for place in sorted(directory.iterdir()) if place.is_dir()]
    if not places:
        raise click.UsageError(f"--hosts {str(directory)!r} contains no directory of a host")
    for place in places:
        if not HOST.fullmatch(place.name):
            raise click.UsageError(f"--hosts: {str(place)!r} does not have the name of a host")
        found = [source for entry in sorted(place.iterdir()) for source in _of_host(entry)]
        if not found:
            raise click.UsageError(
                f"--hosts: {str(place)!r} contains no crontab; its files are named crontab, "
                "crontab.USER, cron.d/* or crontabs/USER"
            )
        zone = _zone_of(place / "timezone") if own_zone else None
        for source in found:
            file = str(Path(source.file).relative_to(place))
            yield replace(source, file=file, host=place.name, zone=zone)


def _of_host(entry: Path) -> Iterator[_Source]:
    """Yield the crontabs of one entry in the directory of a host."""
    kind, _, user = entry.name.partition(".")
    if entry.name in ("cron.d", "crontabs") and entry.is_dir():
        yield from _sources(str(entry), spool=False)
    elif kind == "crontab" and entry.is_file():
        (source,) = _sources(str(entry), spool=False)
        yield replace(source, format="user" if user else "system", owner=user or None)
    elif entry.name != "timezone":
        click.echo(f"{entry}: skipped: it is not the name of a crontab", err=True)


def _zone_of(file: Path) -> str | None:
    """Return the time zone that a copy of /etc/timezone names, or None if there is no copy."""
    try:
        return zone_of_host(_decoded(read_file(file)).strip())
    except FileNotFoundError:
        return None
    except (click.BadParameter, RefusedError, OSError) as error:
        raise click.UsageError(f"{str(file)!r} names no time zone: {error}") from None


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
            file=source.file if source.host is None or "cron.d/" in source.file else "-",
            format=format,
            options=options if source.zone is None else replace(options, timezone=source.zone),
            owner=owner,
            taken=[x.name for crontab in crontabs for x in crontab.jobs] if not source.host else (),
            noted_users=[user for crontab in crontabs for user in crontab.users],
        )
        if (
            options.as_user
            and not options.observe
            and format == "user"
            and owner is None
            and crontab.jobs
        ):
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
