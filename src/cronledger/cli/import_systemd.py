"""`cronledger import systemd`: convert timers to a `cronledger.toml`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cronledger.cli.importing import (
    current_user,
    finish,
    observe_option,
    output_options,
    refusing,
    zone_of_host,
)
from cronledger.settings import OfflineSettings
from cronledger.sources.files import read_file
from cronledger.sources.imported import Import, Source
from cronledger.sources.systemd import HEADER, OBSERVED_HEADER, Options, read_timer
from cronledger.sources.systemd_units import Unit

TIMER = ".timer"


@click.command("systemd")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@output_options
@observe_option
@click.option(
    "--timezone", metavar="ZONE", help="Time zone of the schedules [default: that of this host]."
)
@click.option("--as-user", is_flag=True, help="Run each command as its user, with runuser.")
def import_systemd(
    *,
    paths: tuple[str, ...],
    output: str | None,
    force: bool,
    observe: bool,
    timezone: str | None,
    as_user: bool,
) -> None:
    """Convert timers of systemd to a cronledger.toml.

    PATH is a file whose name ends with .timer, or a directory, such as /etc/systemd/system. The
    service of a timer, and drop-ins of both, are read from the directory of the timer, and then
    from the directories that are named. Only the current user can read the file of --output.

    With --observe, systemd keeps the timers and their services report their runs: the jobs are
    observed, and the comment of each job has a drop-in of its service.

    Exit status: 0 if every timer has an equivalent, 1 if a part of one has none, 2 for a usage
    error.
    """
    options = Options(
        zone_of_host(timezone), current_user(), as_user, OfflineSettings.load().web_redact, observe
    )
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
    found = Import("systemd", tuple(sources), OBSERVED_HEADER if observe else HEADER)
    finish(found, output, force=force, observe=observe)


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
