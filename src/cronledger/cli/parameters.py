"""Types of command line parameters. They import what they need when a value is converted."""

from datetime import timedelta
from typing import Any

import click

BIGINT = click.IntRange(-(2**63), 2**63 - 1)
"""What PostgreSQL takes for a bigint; a function with a greater number would not be found."""


class Duration(click.ParamType[timedelta]):
    """A duration such as `90s` or `1h30m`, which becomes a timedelta."""

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
    """A whole number from 1 on, or `none`, which becomes None."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "none":
            return None
        return click.IntRange(min=1, max=2**31 - 1).convert(value, param, ctx)
