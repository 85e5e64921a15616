"""How values look on the page: instants in a zone, durations, numbers, foreign text."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from markupsafe import Markup

from cronledger.rules import instants, zones
from cronledger.rules.cron_fields import CronError
from cronledger.rules.instants import iso
from cronledger.rules.printable import clean

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
"""The units of ages, as in `page.js`. Days and hours are shown with the next smaller unit."""
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


def instant(
    value: datetime | None, zone: str | None = None, now: datetime | None = None,
    chosen: str | None = None, *, exact: bool = False,
) -> Markup:  # fmt: skip
    """Return a `<time>` in the zone `chosen`, or else in `zone`, or else in UTC.

    It has the date unless that is the date of `now`; `exact`: and the fraction of its second. The
    hover text has the date in the zones and in UTC; the script adds the zone of the viewer.
    """
    if value is None:
        return Markup("")
    there = zone_of(chosen or zone)
    local = value.astimezone(there)
    today = now is not None and now.astimezone(there).date() == local.date()
    this_year = now is not None and now.astimezone(there).year == local.year
    date = "" if today else f"{local.day} {local:%b} " if this_year else f"{local:%Y-%m-%d} "
    time = local.time().isoformat("auto" if exact else "seconds")
    return Markup(
        '<time datetime="{}" title="{}">{}{} <span class="zone">{}</span></time>'
    ).format(
        iso(value, "seconds"), _hover(value, chosen, zone), date, time,
        local.tzname() if there is not UTC else "UTC",
    )  # fmt: skip


def age(
    value: datetime | None, now: datetime | None, chosen: str | None = None, *, bare: bool = False
) -> Markup:
    """Return a `<time>` with `3 min ago` or `in 3 min`; `bare`: only `3 min`.

    The script counts on. The hover text is that of the instant.
    """
    if value is None or now is None:
        return Markup("")
    seconds = (now - value).total_seconds()
    words = _words(seconds)
    if not bare:
        words = ago(seconds) if seconds >= 0 else f"in {words}"
    return Markup('<time datetime="{}" title="{}" data-age="{}">{}</time>').format(
        iso(value, "seconds"), _hover(value, chosen), "bare" if bare else "", words
    )


def ago(seconds: float) -> str:
    """Return how long ago something was: `3 min ago`."""
    return f"{_words(seconds)} ago"


def _words(seconds: float) -> str:
    whole = int(abs(seconds))
    at = next((at for at, (size, _) in enumerate(_AGES) if whole >= size), len(_AGES) - 1)
    words: list[str] = []
    for size, unit in _AGES[at : at + 2 if at < 2 else at + 1]:
        count, whole = divmod(whole, size)
        if count or not words:
            words.append(f"{count} {unit}")
    return " ".join(words)


def _hover(value: datetime, *zone_names: str | None) -> str:
    """Return an instant with its date in these zones, and in UTC."""
    there = {str(zone_of(name)): zone_of(name) for name in (*zone_names, "UTC") if name is not None}
    lines = [f"{value.astimezone(at):%Y-%m-%d %H:%M:%S} {name}" for name, at in there.items()]
    return clean("\n".join(lines))


def known_zone(name: str | None) -> str | None:
    """Return the name if it is that of a time zone, otherwise None."""
    return name if name == "UTC" or str(zone_of(name)) == name else None


def zone_of(name: str | None) -> tzinfo:
    """Return the zone of this name, or UTC if there is no such zone."""
    if name is None or name == "UTC":
        return UTC
    try:
        return zones.named(name)
    except CronError:  # a job that was written by SQL; its spec_error names the zone
        return UTC


def wall_time(text: str, zone: str) -> str:
    """Return the time in a zone that names the instant `text`; empty: no calendar can choose it."""
    return instants.wall_time(text, zone_of(zone)) or ""


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


_QUOTED = """'[^']*'|"[^"]*\""""
_CODE = re.compile(f"""({_QUOTED}|`(?:{_QUOTED}|[^`'"])+`)""")


def code(text: str) -> Markup:
    """Return a text of the product in which the words between backquotes are code.

    Names in it that people wrote are quoted as in a shell, and what is quoted is left as it is.
    """
    return Markup("").join(
        Markup("<code>{}</code>").format(part[1:-1]) if place % 2 and part[0] == "`" else part
        for place, part in enumerate(_CODE.split(clean(text)))
    )


def number(value: float | None) -> str:
    """Return a number with separators between thousands."""
    return "" if value is None else f"{value:,}"
