"""`cronledger import systemd`: convert timers to a `cronledger.toml`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from cronledger.cli.importing import (
    current_user,
    divided,
    every_option,
    finish,
    observe_option,
    output_options,
    refusing,
    zone_of_host,
)
from cronledger.settings import OfflineSettings
from cronledger.sources import imported_hosts
from cronledger.sources.files import read_file
from cronledger.sources.imported import Import, Source
from cronledger.sources.systemd import HEADER, OBSERVED_HEADER, Options, read_timer
from cronledger.sources.systemd_units import Unit

TIMER = ".timer"


@click.command("systemd")
@click.argument("paths", metavar="[HOST=]PATH...", nargs=-1, required=True)
@output_options
@observe_option
@click.option(
    "--timezone", metavar="ZONE", help="Time zone of the schedules [default: that of this host]."
)
@every_option
@click.option("--as-user", is_flag=True, help="Run each command as its user, with runuser.")
def import_systemd(
    *,
    paths: tuple[str, ...],
    output: str | None,
    force: bool,
    observe: bool,
    timezone: str | None,
    label: str,
    as_user: bool,
) -> None:
    """Convert timers of systemd to a cronledger.toml.

    PATH is a file whose name ends with .timer, or a directory, such as /etc/systemd/system. The
    service of a timer, and drop-ins of both, are read from the directory of the timer, and then
    from the directories that are named. Only the current user can read the file of --output.

    HOST=PATH names the host of a path, so that the timers of many hosts become one file. A timer of
    one host becomes a job with `on`, and equal timers of several hosts become one job. The
    differences between the hosts are reported.

    With --observe, systemd keeps the timers, and their services report the runs. The output
    contains observed jobs, and the comment of each job has a drop-in for its service.

    Exit status: 0 if every timer has an equivalent, 1 if a part of one has none, 2 for a usage
    error.
    """
    options = Options(
        zone_of_host(timezone), current_user(), as_user, OfflineSettings.load().web_redact, observe
    )
    by_host: dict[str | None, list[str]] = {}
    for host, path in map(divided, paths):
        by_host.setdefault(host, []).append(path)
    header = OBSERVED_HEADER if observe else HEADER
    named = {host: _read(own, options) for host, own in by_host.items() if host is not None}
    if not named:
        found = Import("systemd", tuple(_read(paths, options)), header)
    elif observe:
        raise click.UsageError(
            "--observe does not accept hosts; import the timers of each host separately"
        )
    elif None in by_host:
        raise click.UsageError(
            "some paths have a host, and others have none; write HOST=PATH for each of them"
        )
    else:
        found = _of_hosts(named, label)
    finish(found, output, force=force, observe=observe)


def _of_hosts(by_host: Mapping[str, Sequence[Source]], label: str) -> Import:
    entries = {
        host: [(Path(entry.place).name, entry) for source in sources for entry in source.entries]
        for host, sources in by_host.items()
    }
    sources, repeated = imported_hosts.merged(entries, label)
    header = (*imported_hosts.header(label, repeated=repeated), *HEADER)
    return Import("systemd", sources, header)


def _read(paths: Sequence[str], options: Options) -> list[Source]:
    """Return the timers of these paths of one host."""
    taken: set[str] = set()
    directories = [Path(path) for path in paths if Path(path).is_dir()]
    sources = []
    for path in paths:
        entries = []
        for file in _timers(Path(path)):
            near = [file.parent, *directories]
            if (timer := _unit(file.name, near)) is None:
                click.echo(f"{file}: skipped: it is masked", err=True)
                continue
            named = timer.last("Unit") or f"{file.name.removesuffix(TIMER)}.service"
            service = _unit(named, near) or Unit(named)
            entries.append(
                read_timer(timer, service, place=str(file), options=options, taken=taken)
            )
        sources.append(Source(path, tuple(entries)))
    return sources


def _timers(path: Path) -> Sequence[Path]:
    if path.is_dir():
        return sorted(path.glob(f"*{TIMER}"))
    if path.name.endswith(TIMER) and path.exists():
        return [path]
    raise click.UsageError(
        f"PATH {str(path)!r} is neither a directory nor a file whose name ends with {TIMER}; name "
        "one that exists"
    )


def _unit(name: str, directories: Sequence[Path]) -> Unit | None:
    """Return the unit of this name from the first directory that has it, with its drop-ins.

    None: there is none, or it is masked. The unit of `backup@db.timer` may be `backup@.timer`.
    """
    prefix, at, rest = name.rpartition("@")
    template = f"{prefix}@.{rest.rpartition('.')[2]}" if at else name
    for directory in directories:
        for candidate in dict.fromkeys((name, template)):
            file = directory / candidate
            if "/" in candidate or not file.exists():
                continue
            if not file.is_file():  # a link to /dev/null
                return None
            unit = Unit(name)
            for part in (file, *_drop_ins(directory, candidate)):
                unit.add(_text(part))
            return unit
    return None


def _drop_ins(directory: Path, name: str) -> Iterator[Path]:
    yield from sorted((directory / f"{name}.d").glob("*.conf"))


def _text(file: Path) -> str:
    with refusing(lambda: f"PATH {str(file)!r}", "name a readable file"):
        return read_file(file).decode("utf-8-sig")
