"""Output for people and, as JSON, for programs; parsing of times given as arguments."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any
from uuid import UUID

import click

from cronledger.ledger.reports import Reports
from cronledger.rules import durations, instants, remedies
from cronledger.rules.instants import InstantError, iso
from cronledger.rules.printable import clean

MOST_ITEMS = 20
"""Most items of a list in output for people."""
_ACTING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON may contain unescaped, and that would control a terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text from any author: characters that would control a terminal are escaped.

    Hints on standard error name the program as it was called.
    """
    click.echo(clean(named(text) if err else text), err=err, nl=nl)


def named(text: str) -> str:
    """Return text whose hints name the program as it was called: `manage.py cronledger run`."""
    ctx = click.get_current_context(silent=True)
    return remedies.named(text, None if ctx is None else ctx.find_root().info_name)


def counted(count: int, word: str) -> str:
    """Return a number and its noun, such as `1 job` or `2 jobs`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def print_json(value: object) -> None:
    """Print `value` as JSON, with instants in UTC and durations in the format of files."""
    click.echo(json_text(value, indent=2))


def json_text(value: object, indent: int | None = None) -> str:
    """Return `value` as JSON that contains no character that controls a terminal."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_result(result: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Print the result of a command, as JSON or as one line for people."""
    if as_json:
        print_json(result)
    else:
        echo(text)


def print_fields(row: Mapping[str, Any]) -> None:
    """Print each field of a row that is set, on its own line; indent text of several lines."""
    width = max(len(key) for key in row)
    for key, value in row.items():
        text = cell(value)
        if text:
            echo(f"{key:<{width}}  {text.replace(chr(10), chr(10) + ' ' * (width + 2))}")


def cell(value: object) -> str:
    """Return the text of one cell: "" for None, instants to the second, long lists shortened."""
    match value:
        case None:
            return ""
        case datetime():
            return iso(value, "seconds")
        case timedelta():
            return _duration(value)
        case list() | tuple():
            text = ", ".join(cell(item) for item in value[:MOST_ITEMS])
            more = len(value) - MOST_ITEMS
            return f"{text}, and {more:,} more" if more > 0 else text
        case dict() | bool():
            return json.dumps(value, default=_plain, ensure_ascii=False)
        case _:
            return str(value)


def _plain(value: object) -> object:
    match value:
        case datetime():
            return iso(value)
        case date():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case UUID():
            return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def _duration(value: timedelta) -> str:
    if value < timedelta(0):
        return f"-{durations.format(-value)}"
    return durations.format(value)


@contextmanager
def parameter(field: str) -> Iterator[None]:
    """Raise BadParameter, which names `field`, for an InstantError."""
    try:
        yield
    except InstantError as error:
        raise click.BadParameter(str(error), param_hint=field) from None


def read_instant(text: str, field: str, zone: tzinfo = UTC) -> datetime:
    """Return the instant of the ISO 8601 `text`. Raises BadParameter, which names `field`."""
    with parameter(field):
        return instants.parse(text, zone)


def read_moment(text: str, field: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Return a time, given as such or as a duration before `now`, or, if `ahead`, after it.

    A note on standard error states the instant of a time without an offset.
    """
    with parameter(field):
        found = instants.parse_relative(text, now, ahead=ahead)
        if instants.anchored(text, UTC) != text:
            echo(f"Note: {field} has no offset and is read in UTC: {iso(found)}", err=True)
    return found


def require_order(first: datetime | None, last: datetime | None) -> None:
    """Raise UsageError if --to is before --from."""
    if first is not None and last is not None and last < first:
        raise click.UsageError(f"--to {iso(last)} is before --from {iso(first)}; swap them")


def unknown_job(name: str, reports: Reports) -> click.UsageError:
    """Return the error for a job that is not in the ledger."""
    similar = reports.similar_job(name)
    advice = "" if similar is None else f"did you mean {similar!r}? "
    return click.UsageError(
        f"job {name!r} does not exist; {advice}`cronledger jobs list` lists the jobs"
    )
