"""The argument of `run` and `jobs apply`: a file or an App, loaded and checked as a whole."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from pathlib import Path
from typing import Any

from cronledger.cli.ledgers import chosen
from cronledger.cli.session import HERE, settings_here
from cronledger.declaring.app import App, bind
from cronledger.engine.apps import AppRegistry
from cronledger.rules import validation
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.channels import Channel, Function
from cronledger.rules.model import Handler, Job
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.settings import Settings
from cronledger.sources import python, toml

SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class Source:
    """Valid jobs and channels, and what runs the jobs.

    `functions`: the functions of a file's jobs, by `module:name`. `calendars`: those that the
    source declares, by name, whose dates are not written out yet. `settings`: those of the process,
    in which variables override the table of the file. `host`: this host, if `name` is only a path
    or a reference, which names another file or App on another host.
    """

    name: str
    host: str | None
    settings: Settings
    jobs: tuple[Job, ...]
    channels: Mapping[str, Channel]
    deploy: int | None
    warnings: tuple[Problem, ...]
    apps: tuple[App, ...] = ()
    functions: Mapping[str, Callable[..., Any]] = attribute(default_factory=dict)
    calendars: Mapping[str, CalendarSpec] = attribute(default_factory=dict)


def find_source(named: str | None, *, name: str | None, deploy: int | None) -> Source | None:
    """Return the source `named`, otherwise ./cronledger.toml, or None if that does not exist."""
    if named is None and not Path(HERE).exists():
        return None
    return load_source(named or HERE, name=name, deploy=deploy)


def load_source(
    named: str,
    *,
    name: str | None = None,
    deploy: int | None = None,
    settings: type[Settings] = Settings,
    imports: bool = True,
) -> Source:
    """Load `named`: a path that ends with .toml, or `package.module:app`. Needs no database.

    `name` and `deploy` override those of the source. `settings`: the type of its settings.
    `imports`: import the functions of a file. Raises ConfigurationError with every problem.
    """
    if named.endswith(SUFFIX):
        found = _file(Path(named), name, settings, imports)
    else:
        found = _app(named, name, settings)
    return found if deploy is None else replace(found, deploy=deploy)


def _file(path: Path, name: str | None, settings: type[Settings], imports: bool) -> Source:
    found = toml.load(path, settings)
    # Links are not resolved, because a link such as `current` stays the same in each release.
    place = str(path.absolute())
    if name is None and place.encode("utf-8", "replace").decode() != place:
        message = "the path of the file is not UTF-8, so the ledger cannot store it"
        remedy = "name the source with --source"
        raise ConfigurationError([Problem(field="--source", message=message, remedy=remedy)])
    loaded = chosen(settings.load(found.settings, where=str(path)))
    return Source(
        name=name or place,
        host=None if name else loaded.host,
        settings=loaded,
        jobs=found.jobs,
        channels=found.channels,
        deploy=found.deploy,
        warnings=found.warnings,
        functions=_functions(found, str(path)) if imports else {},
        calendars=found.calendars,
    )


def _functions(source: toml.TomlSource, where: str) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    problems: list[Problem] = []
    causes: list[BaseException] = []
    for job in source.jobs:
        if job.handler is not Handler.PYTHON:
            continue
        reference = job.target["python"]
        try:
            found[reference] = python.resolve_function(reference)
            parameter = bind(found[reference]).payload
        except ConfigurationError as error:
            message = "; ".join(str(problem) for problem in error.problems)
            problems.append(Problem(where=where, job=job.name, field="python", message=message))
            causes.extend(error.causes)
        except TypeError as error:
            problems.append(Problem(where=where, job=job.name, field="python", message=str(error)))
        else:
            scheduled = job.schedule is not None
            if parameter and (refusal := parameter.problem(job.payload, scheduled=scheduled)):
                problems.append(Problem(where, job.name, "payload", None, *refusal))
    problems += _channel_problems(source.channels, where, causes)
    if problems:
        raise ConfigurationError(problems, causes)
    return found


def _channel_problems(
    channels: Mapping[str, Channel], where: str, causes: list[BaseException]
) -> Iterator[Problem]:
    """Yield a problem for each channel whose function cannot be imported; add to `causes`."""
    for name, channel in channels.items():
        if not isinstance(channel, Function):
            continue
        try:
            python.resolve_function(channel.python)
        except ConfigurationError as error:
            message = "; ".join(str(problem) for problem in error.problems)
            yield Problem(where=where, field=f"channels.{name}.python", message=message)
            causes.extend(error.causes)


def require_found(named: str) -> None:
    """Check that there is such a source, without reading or importing it.

    Raises ConfigurationError if the file or the outermost package does not exist.
    """
    if not named.endswith(SUFFIX):
        _require_reference(named)
        python.require_package(named)
    elif not Path(named).exists():
        message, remedy = "cannot be read: there is no such file", "name a file that exists"
        raise ConfigurationError([Problem(where=named, message=message, remedy=remedy)])


def _require_reference(named: str) -> None:
    if ":" not in named:
        message = f"{named!r} is neither a {SUFFIX} file nor an App"
        remedy = "write it like cronledger.toml or myproject.jobs:app"
        raise ConfigurationError([Problem(message=message, remedy=remedy)])


def _app(reference: str, name: str | None, kind: type[Settings]) -> Source:
    _require_reference(reference)
    app = python.load_app(reference)
    AppRegistry({}).add(app)  # refuse what no replica could run
    settings = settings_here(kind)
    jobs = tuple(app.jobs.values())
    causes: list[BaseException] = []
    if problems := list(_channel_problems(app.channels, reference, causes)):
        raise ConfigurationError(problems, causes)
    warnings = validation.check(jobs, where=reference, providers=app.providers)
    deploy = settings.deploy if settings.deploy is not None else app.deploy
    named = name or app.name
    return Source(
        name=named or reference,
        host=None if named else settings.host,
        settings=settings,
        jobs=jobs,
        channels=app.channels,
        deploy=deploy,
        warnings=warnings,
        apps=(app,),
        calendars=app.calendars,
    )
