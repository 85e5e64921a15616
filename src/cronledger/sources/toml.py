"""Read `cronledger.toml`: settings, defaults and jobs, or all of their problems."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from cronledger.rules import calendar_spec, channels, retry_filters, storable, validation, zones
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.channels import Channel
from cronledger.rules.cron_fields import CronError
from cronledger.rules.model import OF_OPERATORS, Handler, Job
from cronledger.rules.problems import (
    ConfigurationError,
    Problem,
    RefusedError,
    nearest,
    problems_of,
    shown,
)
from cronledger.rules.storable import ELSEWHERE, JSON_DEPTH, TOO_DEEP
from cronledger.settings import TABLE, Settings
from cronledger.sources.files import read_file

DEPTH_OF_PAYLOAD = 3  # the document, jobs, the job
TABLES = frozenset({TABLE, "calendars", "channels", "defaults", "jobs"})
_ELSEWHERE = {"ledgers": "write it into a file of its own, and name that file in ledgers_file"}
"""What to do about tables of another file."""
WORK = ("command", "sql", "http", "python", "external", "observed")
SURROUNDINGS = ("cwd", "env")
POLICIES = frozenset(Job.model_fields) - {"name", "handler", "target", *OF_OPERATORS}
OF_ONE_JOB = frozenset(
    {
        "description",
        "schedule",
        "payload",
        "payload_schema",
        "starts_at",
        "ends_at",
        "ping",
        "runbook",
    }
    | {"scope_kind", "scopes", "every", "requires", "after", "observed"}
    | {*retry_filters.FILTERS}  # their items depend on the handler
)
DEFAULTS = POLICIES - OF_ONE_JOB
KEYS = POLICIES.union(WORK, SURROUNDINGS)

_FORMS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "command": ((list, str), 'a list, ["backup", "--full"], or a string for the shell'),
    "sql": (str, "one statement in a string"),
    "http": (dict, 'a table, {url = "https://…"}'),
    "python": (str, '"package.module:function"'),
    "external": (bool, "external = true"),
    "observed": (bool, "observed = true"),
}


@dataclass(frozen=True, slots=True)
class TomlSource:
    """The checked content of a file. `settings` is its `[cronledger]` table as written.

    `calendars`: those that it declares, by name. Their dates are not written out yet.
    """

    path: Path
    jobs: tuple[Job, ...]
    channels: Mapping[str, Channel]
    settings: dict[str, Any]
    deploy: int | None
    warnings: tuple[Problem, ...]
    calendars: Mapping[str, CalendarSpec]


def load(path: str | Path, settings: type[Settings] = Settings) -> TomlSource:
    """Return the content of the file at `path`. `settings`: the type of its settings.

    Raises ConfigurationError with every problem of the file (settings, defaults, all jobs) and of
    the `CRONLEDGER_*` variables that override its settings.
    """
    path = Path(path)
    return _Reader(path, read_document(path), settings).source()


def read_document(path: Path) -> dict[str, Any]:
    """Return the tables of the file at `path`. Raises ConfigurationError."""
    remedy = "correct this line"
    try:
        document = tomllib.loads(read_file(path).decode("utf-8-sig"))
        if not storable.is_deeper(document, JSON_DEPTH + DEPTH_OF_PAYLOAD):
            return document
        message, remedy = TOO_DEEP, ELSEWHERE
    except UnicodeDecodeError as exc:
        message, remedy = f"byte {exc.start} is not UTF-8", "save the file as UTF-8"
    except RefusedError as exc:
        message, remedy = exc.problem, exc.remedy
    except ValueError as exc:  # TOMLDecodeError, and numbers of 5,000 digits
        message = f"is not TOML: {exc}"
    except RecursionError:
        message, remedy = TOO_DEEP, ELSEWHERE
    except OSError as exc:
        message, remedy = f"cannot be read: {exc.strerror}", "use a readable file"
    raise ConfigurationError([Problem(where=str(path), message=message, remedy=remedy)])


def problems_of_table(name: str, table: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a table [jobs.NAME], without warnings."""
    reader = _Reader(Path(), {}, Settings)
    reader.where = None
    reader.add_job(name, dict(table), {})
    return [problem for problem in reader.problems if not problem.warning]


class _Reader:
    """Reads a parsed file. It collects the problems, and `source` raises them together."""

    def __init__(self, path: Path, document: dict[str, Any], settings: type[Settings]) -> None:
        self.path = path
        self.where: str | None = str(path)
        self.document = document
        self.settings = settings
        self.problems: list[Problem] = []

    def source(self) -> TomlSource:
        for name in self.document:
            if name not in TABLES:
                self._add(None, name, "unknown table", _ELSEWHERE.get(name, nearest(name, TABLES)))
        table = self._table(TABLE)
        settings = self._settings(table)
        defaults = self._defaults()
        jobs = [self.add_job(name, entry, defaults) for name, entry in self._table("jobs").items()]
        declared, calendars = self._channels(), self._calendars()
        if settings is None or any(not problem.warning for problem in self.problems):
            raise ConfigurationError(self.problems)
        valid = tuple(job for job in jobs if job is not None)
        return TomlSource(
            self.path, valid, declared, table, settings.deploy, tuple(self.problems), calendars
        )

    def _add(self, job: str | None, field: str | None, message: str, remedy: str) -> None:
        problem = Problem(where=self.where, job=job, field=field, message=message, remedy=remedy)
        self.problems.append(problem)

    def _table(self, name: str) -> dict[str, Any]:
        table = self.document.get(name, {})
        if isinstance(table, dict):
            return table
        self._add(None, name, "is not a table", f"write it as [{name}]")
        return {}

    def _settings(self, table: dict[str, Any]) -> Settings | None:
        try:
            return self.settings.load(table, where=self.where)
        except ConfigurationError as exc:
            self.problems.extend(exc.problems)
            return None

    def _defaults(self) -> dict[str, Any]:
        """Return the valid policies of `[defaults]`."""
        table = self._table("defaults")
        for key in table:
            if key in KEYS - DEFAULTS:
                self._add(None, f"defaults.{key}", "cannot be a default", "move it to [jobs.NAME]")
            elif key not in DEFAULTS:
                message, remedy = "unknown policy", nearest(key, DEFAULTS)
                self._add(None, f"defaults.{key}", message, remedy)
        values = {key: value for key, value in table.items() if key in DEFAULTS}
        try:
            Job.model_validate({**values, "name": "defaults", "handler": Handler.EXTERNAL})
        except ValidationError as exc:
            self.problems.extend(problems_of(exc, where=self.where, prefix="defaults."))
            values = validation.without(values, exc)
        try:
            zones.named(values.get("timezone", "UTC"))
        except CronError as exc:
            zone, field = shown(values.pop("timezone")), "defaults.timezone"
            self.problems.append(Problem(
                where=self.where, field=field, value=zone, message=exc.problem, remedy=exc.remedy
            ))  # fmt: skip
        return values

    def add_job(self, name: str, entry: object, defaults: dict[str, Any]) -> Job | None:
        """Return the job, and add its problems; None if a field is invalid.

        `calendar = false` means that the job has none, although `[defaults]` may name one.
        """
        if not isinstance(entry, dict):
            self._add(name, None, "is not a table", f"write it as [jobs.{name}]")
            return None
        for key in entry:
            if key not in KEYS:
                self._add(name, key, "unknown name", _nearest_key(key))
        whole = defaults | entry
        if whole.get("calendar") is False:
            del whole["calendar"]
        values = {key: value for key, value in whole.items() if key in POLICIES}
        for key in values.keys() & {"payload", "payload_schema"}:
            values[key] = to_jsonable_python(values[key])
        work, values["handler"], values["target"] = self._work(name, entry)
        if len(entry.keys() & set(WORK)) == 1:
            values.pop("observed", None)  # it is the handler
        values["name"] = name
        job, found = validation.examined(
            values, where=self.where, defaults=defaults.keys() - entry.keys()
        )
        for problem in found:
            self.problems.append(replace(problem, field=written_field(problem.field, work)))
        return job

    def _channels(self) -> dict[str, Channel]:
        """Return the valid channels, and add the problems of the others."""
        found = {}
        for name, entry in self._table("channels").items():
            try:
                found[name] = channels.checked(name, entry, self.where)
            except ConfigurationError as exc:
                self.problems.extend(exc.problems)
        return found

    def _calendars(self) -> dict[str, CalendarSpec]:
        """Return the calendars, whose paths begin at the directory of the file."""
        found: dict[str, CalendarSpec] = {}
        for name, entry in self._table("calendars").items():
            try:
                found[name] = calendar_spec.read(
                    name, entry, self.where, self.path.absolute().parent
                )
            except ConfigurationError as exc:
                self.problems.extend(exc.problems)
        return found

    def _work(self, name: str, entry: dict[str, Any]) -> tuple[str, Handler, dict[str, Any]]:
        """Return what the job runs: the key in the file, the handler and the target.

        If that is missing or wrong, add the problem and return `external`.
        """
        nothing = ("external", Handler.EXTERNAL, dict[str, Any]())
        given = [key for key in WORK if key in entry]
        if len(given) == 2:  # the other one is for the replicas that adopt the job
            given = [key for key in given if key != "observed"]
        if len(given) != 1:
            message = f"has both {' and '.join(given)}" if given else "has nothing to run"
            self._add(name, None, message, f"use exactly one of {', '.join(WORK)}")
            return nothing
        key, value = given[0], entry[given[0]]
        for surrounding in SURROUNDINGS:
            if surrounding in entry and key != "command":
                message = f"has no effect with {key}"
                self._add(name, surrounding, message, "remove it, or use command")
        if not isinstance(value, _FORMS[key][0]) or (value is False):
            self._add(name, key, "has an invalid format", f"use {_FORMS[key][1]}")
            return nothing
        return key, Handler(key), _target(key, value, entry)


def _target(key: str, value: Any, entry: dict[str, Any]) -> dict[str, Any]:
    match key:
        case "command":
            return {key: value} | {name: entry[name] for name in SURROUNDINGS if name in entry}
        case "sql" | "python":
            return {key: value}
        case "http":
            return dict(to_jsonable_python(value))
        case _:
            return {}


def _nearest_key(key: str) -> str:
    if key == "name":
        return "the table [jobs.NAME] names the job"
    if key in ("handler", "target"):
        return f"use exactly one of {', '.join(WORK)}"
    return nearest(key, KEYS)


def written_field(field: str | None, work: str) -> str | None:
    """Return the name that a field of the target has in the file."""
    if field is None or not field.startswith("target"):
        return field
    inner = field.removeprefix("target").removeprefix(".")
    if inner.startswith(SURROUNDINGS):
        return inner
    if work == "http" and inner:
        return f"http.{inner}"
    return work + inner[len(inner.partition("[")[0]) :]
