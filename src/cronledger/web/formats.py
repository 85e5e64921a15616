"""How values look on the page: instants in a zone, durations, numbers, foreign text."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from markupsafe import Markup

from cronledger.rules import zones
from cronledger.rules.cron_fields import CronError
from cronledger.rules.printable import clean

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def finalize(value: Any) -> Any:
    """Return what a template writes for a value: nothing for None, and text without characters that
    act.
    """
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return clean(value) if isinstance(value, str) else value


def instant(value: datetime | None, zone: str | None = None, now: datetime | None = None) -> Markup:
    """Return a `<time>` in `zone` (None: UTC), with the date unless it is that of `now`.

    The hover text has the date, the zone and UTC; the script adds the zone of the viewer.
    """
    if value is None:
        return Markup("")
    there = _zone(zone)
    local = value.astimezone(there)
    today = now is not None and now.astimezone(there).date() == local.date()
    this_year = now is not None and now.astimezone(there).year == local.year
    date = "" if today else f"{local.day} {local:%b} " if this_year else f"{local:%Y-%m-%d} "
    utc = value.astimezone(UTC)
    name = zone if there is not UTC else "UTC"
    hover = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    if name != "UTC":
        hover = f"{local:%Y-%m-%d %H:%M:%S} {name}\n{hover}"
    return Markup(
        '<time datetime="{}" title="{}">{}{} <span class="zone">{}</span></time>'
    ).format(
        f"{utc:%Y-%m-%dT%H:%M:%S}Z", clean(hover), date, f"{local:%H:%M:%S}",
        local.tzname() if there is not UTC else "UTC",
    )  # fmt: skip


def _zone(name: str | None) -> tzinfo:
    if name is None or name == "UTC":
        return UTC
    try:
        return zones.named(name)
    except CronError:  # a job that was written by SQL; its spec_error names the zone
        return UTC


def span(value: timedelta | float | None) -> str:
    """Return a length of time with its two greatest units: `3m 12s`, `2d 4h`, `450ms`."""
    if value is None:
        return ""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 1:
        return f"{sign}{round(seconds * 1000)}ms"
    if seconds < 10:
        return f"{sign}{seconds:.1f}s"
    whole = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return sign + " ".join(part for part in parts[:2] if not part.startswith("0"))


def number(value: float | None) -> str:
    """Return a number with separators between thousands."""
    return "" if value is None else f"{value:,}"
