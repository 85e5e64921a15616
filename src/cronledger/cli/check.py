"""`cronledger check`: check sources of jobs, and show their firings, without a database."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.check_report import Checked, Finding, print_report, report_of
from cronledger.cli.failures import tracebacks
from cronledger.cli.session import HERE
from cronledger.cli.show import echo, read_instant
from cronledger.cli.source import Source, load_source
from cronledger.explain.check import (
    Calendars,
    Served,
    ending_calendars,
    problems,
    undeclared_channels,
)
from cronledger.rules import chains, zones
from cronledger.rules.problems import ConfigurationError, Exit, Problem
from cronledger.settings import OfflineSettings
from cronledger.sources.files import read_file
from cronledger.sources.places import (
    Place,
    place_of_error,
    place_of_function,
    toml_line,
    toml_lines,
)
from cronledger.sources.python import load_app
from cronledger.sources.source_calendars import write_out
from cronledger.sources.toml import read_document

FORMATS = ("text", "json", "github")


@click.command()
@click.argument("sources", metavar="[FILE|APP]...", nargs=-1, shell_complete=complete.sources)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True,
    help="Format of the output; github: workflow commands.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(0, 1000), default=3, show_default=True,
    help="Number of firings to show of each job.",
)  # fmt: skip
@click.option("--from", "start", metavar="ISO", help="Show firings after this time [default: now].")
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", shell_complete=complete.queues,
    help="Queue that replicas serve; repeatable [default: `queues` of the settings].",
)  # fmt: skip
@click.option(
    "--at-once", type=click.IntRange(1, 2**31 - 1), metavar="N",
    help="Executions of one queue that may be due in a second [default: `slots` of the settings].",
)  # fmt: skip
@click.option("--no-import", is_flag=True, help="Do not import the Python functions of a FILE.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def check(
    *,
    sources: tuple[str, ...],
    form: str,
    count: int,
    start: str | None,
    queues: tuple[str, ...],
    at_once: int | None,
    no_import: bool,
    strict: bool,
) -> None:
    """Check files and Apps without a database, and show when their jobs fire.

    FILE ends with .toml, and APP is package.module:app [default: ./cronledger.toml]. The output
    lists the next firings of each job, the clock changes within a year that affect it, and how many
    of its firings of this year and the next its calendar moves or skips. A time without an offset
    is read in the time zone of the jobs.

    Errors are problems that `run` would refuse, and jobs whose queue is not listed by --queue or by
    `queues` of the settings. If neither is given, such a job causes only a warning.

    Other warnings are probable mistakes, jobs that never fire again, values that are probably
    secrets, and collisions. A secret is a password in a URL, or the value of a key that ends with a
    name of `web_redact`. A collision is a second, within 24 hours after --from, in which more than
    --at-once executions of one queue are due. Each scope of a job counts, and jitter spreads its
    executions. If any source declares channels, a job that names an undeclared channel causes a
    warning. So do an undeclared calendar of a job, and a calendar of a job that ends within 90
    days.

    The command exits with 0 if it finds no error, and with 2 if a source is invalid. It exits with
    1 if valid jobs have an error, or a warning with --strict.
    """
    checked = [_loaded(name, imports=not no_import) for name in sources or (HERE,)]
    valid = [one.source for one in checked if one.source is not None]
    after = _after(start, valid)
    for one in checked:
        _write_out(one, after)
    valid = [one.source for one in checked if one.source is not None]
    jobs = {job.name: job for source in valid for job in source.jobs}
    declared = frozenset(name for source in valid for name in source.channels)
    calendars = {calendar.name: calendar for one in checked for calendar in one.calendars}
    used = {job.calendar for source in valid for job in source.jobs if job.calendar is not None}
    for one in checked:
        if one.source is not None:
            found = chains.problems(one.source.jobs, jobs, one.name, complete=False)
            one.findings += _placed(one.name, found)
            one.source = replace(one.source, jobs=chains.resolved(one.source.jobs, jobs))
            one.findings += _found(
                one.name, one.source, after, queues=queues, at_once=at_once, calendars=calendars
            )
            one.findings += _undeclared(one.name, one.source, declared)
            own = {calendar.name: calendar for calendar in one.calendars}
            one.findings += _placed(one.name, ending_calendars(used, one.name, own, after))
    report = report_of(checked, after, count)
    print_report(report, form)
    levels = Counter(finding["level"] for finding in report["findings"])
    if not report["valid"]:
        raise click.exceptions.Exit(Exit.USAGE)
    if levels["error"] or (strict and levels["warning"]):
        raise click.exceptions.Exit(Exit.FAILED)


def _loaded(name: str, *, imports: bool) -> Checked:
    """Load one source, and print the tracebacks of its modules. What they print is no output."""
    try:
        with redirect_stdout(sys.stderr):
            source = load_source(name, settings=OfflineSettings, imports=imports)
    except ConfigurationError as error:
        for text in tracebacks(error):
            echo(text, err=True)
        return Checked(name, None, _placed(name, error.problems, error))
    return Checked(name, source, _placed(name, source.warnings))


def _write_out(one: Checked, after: datetime) -> None:
    """Write out the calendars of a source. It is invalid if one of them cannot be written out."""
    if one.source is None:
        return
    try:
        one.calendars, warnings = write_out(one.name, one.source.calendars, after.date())
    except ConfigurationError as error:
        one.source, warnings = None, error.problems
    one.findings += _placed(one.name, warnings)


def _after(start: str | None, sources: Iterable[Source]) -> datetime:
    """Return the instant of --from, or now."""
    if start is None:
        # Nothing is fired, and there is no database whose clock could be read.
        return datetime.now(UTC)  # noqa: TID251
    jobs = [(job.schedule, job.timezone) for source in sources for job in source.jobs]
    return read_start(start, "--from", jobs)


def read_start(text: str, field: str, jobs: Iterable[tuple[str | None, str]]) -> datetime:
    """Return the instant that `text` names, without an offset in the time zone of the jobs.

    `jobs`: their schedules and time zones. Raises BadParameter, which names `field`, also if they
    have several time zones.
    """
    text = text.strip()
    timezones = {
        timezone
        for schedule, timezone in jobs
        if schedule is not None and not schedule.strip().lower().startswith("@every")
    }
    (zone,) = timezones if len(timezones) == 1 else (None,)
    found = read_instant(text, field, UTC if zone is None else zones.named(zone))
    if len(timezones) > 1 and datetime.fromisoformat(text).tzinfo is None:
        raise click.BadParameter(
            f"{text!r} has no offset, and the jobs have several time zones "
            f"({', '.join(sorted(timezones))}); add an offset, such as Z or +01:00",
            param_hint=field,
        )
    return found


def _found(
    name: str,
    source: Source,
    after: datetime,
    *,
    queues: Sequence[str],
    at_once: int | None,
    calendars: Calendars,
) -> list[Finding]:
    most = at_once or source.settings.slots
    found = problems(
        source.jobs, source.channels, where=name, after=after, served=_served(source, queues),
        most=most, secret_names=source.settings.web_redact, calendars=calendars,
    )  # fmt: skip
    return _placed(name, found)


def _undeclared(name: str, source: Source, declared: frozenset[str]) -> list[Finding]:
    return _placed(name, undeclared_channels(source.jobs, where=name, declared=declared))


def _served(source: Source, queues: Sequence[str]) -> Served:
    if queues:
        return Served(queues, stated=True)
    return Served(source.settings.queues, stated="queues" in source.settings.model_fields_set)


def _placed(
    name: str, problems: Iterable[Problem], error: ConfigurationError | None = None
) -> list[Finding]:
    """Return the problems of a source with the places of their jobs."""
    problems = tuple(problems)
    if not problems:
        return []
    places = _file_places if name.endswith(".toml") else _app_places
    found = places(name, problems, error)
    return [Finding(name, problem, place) for problem, place in zip(problems, found, strict=True)]


def _file_places(
    name: str, problems: Sequence[Problem], _error: ConfigurationError | None
) -> list[Place | None]:
    path = Path(name)
    try:
        read_document(path)
        lines = toml_lines(read_file(path).decode("utf-8-sig"))
    except (ConfigurationError, OSError, ValueError):
        lines = {}  # it cannot be read: the problem may name a line
    return [
        Place(name, toml_line(lines, problem)) if problem.where == name else None
        for problem in problems
    ]


def _app_places(
    name: str, problems: Sequence[Problem], error: ConfigurationError | None
) -> list[Place | None]:
    raised = None
    for cause in (error, *(error.causes if error is not None else ())):
        raised = (None if cause is None else place_of_error(cause)) or raised
    handlers: Mapping[str, Callable[..., Any]] = {}
    if name.partition(":")[0] in sys.modules:  # otherwise its import failed, and would run again
        with suppress(ConfigurationError):
            handlers = load_app(name).handlers
    places = {name: place_of_function(function) for name, function in handlers.items()}
    return [places.get(problem.job or "", raised) for problem in problems]
