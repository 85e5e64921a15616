"""Listings as tables for people and as JSON for programs; instants as they are written and read."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import click

from cronledger.rules import durations
from cronledger.rules.limits import END_OF_TIME, FIRST_INSTANT, LONGEST

MOST_ITEMS = 20
"""Items of a list that a person is shown."""
_ACTING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON may hold as it is, and what would act on a terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def iso(instant: datetime) -> str:
    """Answer the instant as ISO 8601 in UTC: `2026-03-08T07:00:00Z`."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that other people may have written: what would act on a terminal is escaped."""
    from cronledger.tables import clean

    click.echo(clean(text), err=err, nl=nl)


def print_json(value: object) -> None:
    """Print `value`: instants in UTC, durations as they are written in files."""
    click.echo(json_text(value, indent=2))


def json_text(value: object, indent: int | None = None) -> str:
    """Return `value` as JSON in which nothing acts on a terminal."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_result(result: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Print what a command did, as JSON or as one line for people."""
    if as_json:
        print_json(result)
    else:
        echo(text)


def print_fields(row: Mapping[str, Any]) -> None:
    """Print what is set of one row, a line for each; text of several lines is indented."""
    width = max(len(key) for key in row)
    for key, value in row.items():
        text = cell(value)
        if text:
            echo(f"{key:<{width}}  {text.replace(chr(10), chr(10) + ' ' * (width + 2))}")


def cell(value: object) -> str:
    """Return the text of one cell; "" for what is not there. Instants to the second.

    Of a long list the first items stand for all.
    """
    match value:
        case None:
            return ""
        case datetime():
            return iso(value.replace(microsecond=0))
        case timedelta():
            return _duration(value)
        case list():
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
        case timedelta():
            return _duration(value)
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _duration(value: timedelta) -> str:
    if value < timedelta(0):
        return f"-{durations.format(-value)}"
    return durations.format(value)


def read_instant(text: str, field: str, zone: ZoneInfo | None = None) -> datetime:
    """Answer the aware instant that ISO 8601 `text` names, read in `zone` (UTC) if it names none.

    Raises BadParameter naming `field`.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no instant; write it like 2026-03-08T07:00:00Z", param_hint=field
        ) from None
    return _usable(found if found.tzinfo is not None else found.replace(tzinfo=zone or UTC), field)


def _usable(instant: datetime, field: str) -> datetime:
    """Return `instant`; raises BadParameter when it lies where no instant of the ledger does."""
    if FIRST_INSTANT <= instant < END_OF_TIME:
        return instant
    raise click.BadParameter(
        "lies outside the years 1000 to 9998; name another instant", param_hint=field
    )


def read_moment(text: str, field: str, now: datetime, sign: int) -> datetime:
    """Answer an instant, written as such or as a duration from `now` on (`sign` 1) or back (-1)."""
    try:
        length = durations.parse(text)
    except durations.DurationError:
        if not text[:4].isdigit():
            raise click.BadParameter(
                f"{text!r} is neither an instant (2026-03-08T07:00:00Z) nor a duration (90m)",
                param_hint=field,
            ) from None
        return read_instant(text, field)
    if length > LONGEST:
        raise click.BadParameter(
            f"{text!r} is longer than 100 years; write a shorter duration", param_hint=field
        )
    return _usable(now + sign * length, field)


def without_secrets(target: dict[str, Any]) -> dict[str, Any]:
    """The target with what may be secret masked: variables, headers, passwords in URLs."""
    from cronledger.settings import MASK, masked

    shown: dict[str, Any] = {}
    for key, value in target.items():
        if key in ("env", "headers") and isinstance(value, dict):
            shown[key] = dict.fromkeys(value, MASK)
        else:
            shown[key] = masked(value) if isinstance(value, str) else value
    return shown
