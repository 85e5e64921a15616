"""Listings as tables for people and as JSON for programs; instants as they are written and read."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import click
from tabulate import tabulate

from cronledger.rules import durations

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def iso(instant: datetime) -> str:
    """Answer the instant as ISO 8601 in UTC: `2026-03-08T07:00:00Z`."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def print_json(value: object) -> None:
    """Print `value`: instants in UTC, durations as they are written in files."""
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=2))


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], none: str) -> None:
    """Print a table of `columns` (key to heading); without rows `none`, on standard error."""
    if not rows:
        click.echo(none, err=True)
        return
    cells = [[cell(row[key]) for key in columns] for row in rows]
    click.echo(tabulate(cells, list(columns.values()), tablefmt="plain", disable_numparse=True))


def print_fields(row: Mapping[str, Any]) -> None:
    """Print what is set of one row, a line for each; JSON and text of several lines beneath."""
    width = max(len(key) for key in row)
    for key, value in row.items():
        text = cell(value)
        if text:
            click.echo(f"{key:<{width}}  {text.replace(chr(10), chr(10) + ' ' * (width + 2))}")


def cell(value: object) -> str:
    """Answer the text of one cell; "" for what is not there. Instants to the second."""
    match value:
        case None:
            return ""
        case datetime():
            return iso(value.replace(microsecond=0))
        case timedelta():
            return _duration(value)
        case list():
            return ", ".join(cell(item) for item in value)
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
    return found if found.tzinfo is not None else found.replace(tzinfo=zone or UTC)


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
    try:
        return now + sign * length
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long", param_hint=field) from None


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
