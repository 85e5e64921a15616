"""Types of command line parameters. Each imports its modules when it converts a value."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
from psycopg.types.json import Jsonb

from cronledger.cli import complete
from cronledger.rules import durations, storable
from cronledger.rules.problems import shown

BIGINT = click.IntRange(-(2**63), 2**63 - 1)
"""The range of PostgreSQL's bigint. A call with a greater number would match no SQL function."""


IN_UTC = "A time without an offset is read in UTC."


class _Id(click.IntRange):
    """The id of a row. Its name is a part of the error about an argument that is not one."""

    name = "number"


ID = _Id(1, 2**63 - 1)


class Duration(click.ParamType[timedelta]):
    """A duration such as `90s` or `1h30m`, converted to a timedelta."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return durations.parse(value)
        except durations.DurationError as error:
            self.fail(str(error), param, ctx)


class Limit(click.ParamType[int | None]):
    """A whole number of at least 1, or `none`, which becomes None."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "none":
            return None
        return click.IntRange(min=1, max=2**31 - 1).convert(value, param, ctx)


class Payload(click.ParamType["Jsonb"]):
    """JSON that the ledger can store."""

    name = "payload"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Jsonb:
        try:
            payload = json.loads(value, parse_constant=_refuse)
        except RecursionError:
            self.fail(f"{storable.TOO_DEEP}; {storable.ELSEWHERE}", param, ctx)
        except ValueError as error:
            example = "quote it for the shell, like '{\"day\": 1}'"
            self.fail(f"{shown(value)} is not JSON ({error}); {example}", param, ctx)
        if (problem := storable.problem(payload)) is not None:
            self.fail("; ".join(problem), param, ctx)
        return Jsonb(payload)


def _refuse(constant: str) -> object:
    raise ValueError(f"JSON has no {constant}")


class Label(click.ParamType[tuple[str, str]]):
    """A label such as `team=data`, converted to its key and its value."""

    name = "label"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, _, text = value.partition("=")
        if not key or not text:
            self.fail(f"{value!r} is not KEY=VALUE; write it like team=data", param, ctx)
        return key, text


def _labels(
    _context: click.Context, _parameter: click.Parameter, given: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in given:
        if found.setdefault(key, value) != value:
            raise click.BadParameter(
                f"{key!r} is given as {found[key]!r} and as {value!r}; each label has one value"
            )
    return found


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --owner and --label, by which a command selects jobs."""
    command = click.option(
        "--label",
        "labels",
        type=Label(),
        metavar="KEY=VALUE",
        multiple=True,
        callback=_labels,
        help="Only jobs with this label; repeatable: with all of them.",
    )(command)
    return click.option("--owner", metavar="NAME", help="Only jobs of this owner.")(command)


def job_option(things: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option --job of a command that lists such things."""
    return click.option(
        "--job", metavar="NAME", shell_complete=complete.jobs, help=f"Only {things} this job."
    )


def moment_option(
    *names: str, help: str, required: bool = False, metavar: str = "ISO|DURATION"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option for `read_moment`. The help of its command states the time zone."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        if IN_UTC not in (text := command.__doc__ or ""):
            command.__doc__ = f"{text.rstrip()}\n\n    {IN_UTC}"
        return click.option(*names, required=required, metavar=metavar, help=help)(command)

    return add


def since_option(time: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option --since of a command, which bounds this time."""
    return moment_option("--since", help=f"Earliest {time}, or its age.")


def limit_option(things: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option --limit of a command that lists such things."""
    return click.option(
        "--limit",
        type=click.IntRange(1, 100_000),
        default=50,
        show_default=True,
        help=f"Maximum number of {things} to list.",
    )


payload_option = click.option(
    "--payload",
    type=Payload(),
    metavar="JSON",
    help="Payload of the execution [default: that of the job].",
)


def scope_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --scope and --scope-kind, which `Session.scope` resolves, to a command."""
    command = click.option(
        "--scope-kind", metavar="KIND", help="Kind of the scope [default: that of the job]."
    )(command)
    return click.option(
        "--scope",
        metavar="ID",
        shell_complete=complete.scopes,
        help="Scope of the job [default: its only scope].",
    )(command)
