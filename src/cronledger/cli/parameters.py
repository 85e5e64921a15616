"""Types of command line parameters. Each imports its modules when it converts a value."""

from datetime import timedelta
from typing import Any

import click

BIGINT = click.IntRange(-(2**63), 2**63 - 1)
"""The range of PostgreSQL's bigint. A call with a greater number would match no SQL function."""


class Duration(click.ParamType[timedelta]):
    """A duration such as `90s` or `1h30m`, converted to a timedelta."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        from cronledger.rules import durations

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
