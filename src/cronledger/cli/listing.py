"""Options and output of the commands that list rows: a table for people, JSON for programs.

On a terminal, a table has the columns that fit, times relative to the database's clock, and colours
for states that need attention. In a pipe, and with --wide, it has all columns and absolute times.
"""

import functools
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from cronledger.cli.show import cell, echo, json_option, print_json
from cronledger.process.tables import print_table, width_of

BAD, WAITING = "red", "yellow"
COLOURS = {
    "FAILED": BAD,
    "dead": BAD,
    "refused": BAD,
    "spec_error": BAD,
    "broken": BAD,
    "paused": WAITING,
    "no_runner": WAITING,
}
"""The colours of states. Other text has none."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Listing:
    """The columns of a table.

    `columns`: the heading of each key of a row, in order. `drop`: the columns to omit on a narrow
    terminal, in that order. `none`: the message if there are no rows.
    """

    columns: Mapping[str, str]
    drop: Sequence[str]
    none: str


Printer = Callable[[Sequence[Mapping[str, Any]], datetime], None]
"""Prints rows as the options of a command select. The instant is the database's time."""


def print_listing(
    rows: Sequence[Mapping[str, Any]],
    listing: Listing,
    now: datetime,
    *,
    wide: bool = False,
    chosen: Sequence[str] = (),
) -> None:
    """Print a table of the rows, or, if there are none, `listing.none` on standard error.

    On a terminal, times are relative to `now`, the database's time.
    """
    if not rows:
        echo(listing.none, err=True)
        return
    on_terminal = sys.stdout.isatty()
    relative = on_terminal and not wide
    keys = list(chosen or listing.columns)
    cells = {key: [_cell(row[key], now if relative else None) for row in rows] for key in keys}
    width = shutil.get_terminal_size().columns if on_terminal else None
    hidden = [] if width is None or wide or chosen else _drop(listing, cells, width)
    shown = [key for key in keys if key not in hidden]
    print_table(
        [listing.columns[key] for key in shown],
        list(zip(*(cells[key] for key in shown), strict=True)),
        sys.stdout,
        width=None if wide else width,
        colours=COLOURS,
    )
    if hidden:
        click.echo(f"Not shown: {', '.join(hidden)}; use --wide or --columns", err=True)


def _drop(listing: Listing, cells: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """Return the columns to omit so that the others fit, if that is possible."""
    # Omit empty columns first.
    empty = [key for key in listing.drop if not any(cells[key])]
    hidden: list[str] = []
    for key in [*empty, *(key for key in listing.drop if key not in empty)]:
        shown = [key for key in listing.columns if key not in hidden]
        rows = list(zip(*(cells[key] for key in shown), strict=True))
        if width_of([listing.columns[key] for key in shown], rows) <= width:
            break
        hidden.append(key)
    return hidden


def _cell(value: object, now: datetime | None) -> str:
    if isinstance(value, datetime) and now is not None:
        return relative(value, now)
    return cell(value)


def relative(instant: datetime, now: datetime) -> str:
    """Return the distance from `now` in one or two units: `in 5m`, `3h 2m ago`, `now`."""
    seconds = round((instant - now) / timedelta(seconds=1))
    if seconds == 0:
        return "now"
    left = abs(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size}{unit}")
            left %= size
        elif parts:
            break
    text = " ".join(parts)
    return f"in {text}" if seconds > 0 else f"{text} ago"


def listed(listing: Listing) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --wide, --columns and --json to a command. Its parameter `show` prints."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @json_option
        @click.option("--wide", is_flag=True, help="Print all columns, at any width.")
        @click.option(
            "--columns",
            "chosen",
            metavar="NAME,…",
            callback=functools.partial(_columns, listing),
            help="Print only these columns.",
        )
        @functools.wraps(command)
        def call(*, as_json: bool, wide: bool, chosen: tuple[str, ...], **more: Any) -> None:
            def show(rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
                if as_json:
                    print_json(rows)
                else:
                    print_listing(rows, listing, now, wide=wide, chosen=chosen)

            command(show=show, **more)

        return call

    return decorate


def _columns(
    listing: Listing, _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    for name in names:
        if name not in listing.columns:
            raise click.BadParameter(
                f"unknown column {name!r}; use some of {', '.join(listing.columns)}"
            )
    return names
