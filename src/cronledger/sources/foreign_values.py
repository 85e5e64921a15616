"""Values of other schedulers' programs in a `cronledger.toml`: fields of cron, and JSON."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import tomlkit
from tomlkit.items import Array, InlineTable

from cronledger.rules import cron, storable

LARGEST = 2**63 - 1
"""The largest integer of TOML."""

TEXT_LENGTH = 1000


class NoEquivalentError(ValueError):
    """A value is invalid or has no equivalent. `str()` names the value and the remedy."""


def field(values: Iterable[int], low: int, high: int, *, starred: bool) -> str:
    """Return the field of cron that names these values of `low` to `high`.

    `starred`: a step over the whole range is written as `*/5`, which keeps elapsed time at changes
    of the clocks. Raises NoEquivalentError for no values, or others than these.
    """
    found = sorted(set(values))
    if not found or found[0] < low or found[-1] > high:
        raise NoEquivalentError(f"{found} are not values of {low} to {high}")
    if len(found) == high - low + 1:
        return "*"
    if starred and len(found) > 2:
        step = found[1] - found[0]
        if found == list(range(low, high + 1, step)):
            return f"*/{step}"
    runs: list[list[int]] = []
    for value in found:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs
    )


def every(seconds: float) -> str:
    """Return the `@every` of a period. Raises NoEquivalentError unless it is whole seconds."""
    if seconds != int(seconds) or seconds < 1:
        raise NoEquivalentError(f"a period of {seconds:g} s is not whole seconds; use one that is")
    return f"@every {int(seconds)}s"


def parsed(schedule: str, timezone: str, *, day_or: bool = True) -> cron.Cron:
    """Return the schedule. Raises NoEquivalentError if cronledger refuses it."""
    try:
        return cron.parse(schedule, timezone=timezone, day_or=day_or)
    except cron.CronError as error:
        raise NoEquivalentError(str(error)) from None


def toml(value: Any, what: str) -> Any:
    """Return JSON as a value of TOML, with tables on one line. `what`: its name in errors.

    Raises NoEquivalentError for what JSON or TOML cannot write.
    """
    if problem := storable.problem(value):
        raise NoEquivalentError(f"{what} {problem[0]}; {problem[1]}")
    return _toml(value, what)


def _toml(value: Any, what: str) -> Any:
    if isinstance(value, Mapping):
        table: InlineTable = tomlkit.inline_table()
        for key, one in value.items():
            table.add(str(_toml(key, what)), _toml(one, what))
        return table
    if isinstance(value, list | tuple):
        array: Array = tomlkit.array()
        for one in value:
            array.append(_toml(one, what))
        return array
    if isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
        raise NoEquivalentError(f"{what} contains a NUL or half of a surrogate pair; remove it")
    if value is None:
        raise NoEquivalentError(
            f"{what} contains None, which TOML cannot write; leave it out, or declare the job in "
            "Python"
        )
    if isinstance(value, int) and abs(value) > LARGEST:
        raise NoEquivalentError(f"{what} contains {value}, which is too great for TOML")
    # An enum or another subclass is written as its plain value.
    return next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), value)


def bounds(start: Any, end: Any) -> dict[str, datetime | None]:
    """Return `starts_at` and `ends_at`. Raises NoEquivalentError if no instant is between them."""
    for value in (start, end):
        if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
            raise NoEquivalentError(f"{text_of(value)} is not an instant with a time zone")
    if start is not None and end is not None and start >= end:
        raise NoEquivalentError(f"it ends at {end}, which is not after its start at {start}")
    return {
        "starts_at": start and start.astimezone(UTC),
        "ends_at": end and end.astimezone(UTC),
    }


def text_of(value: object) -> str:
    """Return the repr of an object of the user, shortened, also if its own repr raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - the object is not ours
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"
    return text if len(text) <= TEXT_LENGTH else text[:TEXT_LENGTH] + " …"


def zone_name(zone: object) -> str:
    """Return the name of a time zone. Raises NoEquivalentError for a zone without a name."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)
    name = "UTC" if name in ("UTC", "UTC+00:00") else name
    try:
        cron.parse("* * * * *", timezone=name)
    except cron.CronError:
        raise NoEquivalentError(
            f"{text_of(zone)} is not a named time zone; use one such as Europe/Berlin"
        ) from None
    return str(name)
