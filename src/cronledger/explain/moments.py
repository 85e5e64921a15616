"""The time about which a person asks: ISO 8601, or a time of day in the zone of the job."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronledger.audit.walk import clock_change
from cronledger.rules import instants
from cronledger.rules.instants import iso

_SECONDS = re.compile(r"\d\d:\d\d:\d\d")
_MINUTE, _SECOND, _TICK = timedelta(minutes=1), timedelta(seconds=1), timedelta(microseconds=1)


class Moment(NamedTuple):
    """The instants [since, until) in UTC that a person means: a minute, a second or a microsecond.

    `note`: which instant was chosen, if the clocks skipped or repeated the time; else None.
    """

    since: datetime
    until: datetime
    note: str | None

    @property
    def text(self) -> str:
        """What `read_moment` reads as these instants at any time."""
        return iso(self.since, "minutes" if self.until - self.since == _MINUTE else "auto")


def read_moment(text: str, zone: ZoneInfo, now: datetime) -> Moment:
    """Return what `text` means: ISO 8601, or the latest time of day such as `03:00` before `now`.

    Without an offset it is a time of `zone`. Raises InstantError.
    """
    clock = _clock(text)
    if clock is not None:
        today = now.astimezone(zone).replace(tzinfo=None)
        named = datetime.combine(today.date(), clock)
        local = (named if named <= today else named - timedelta(days=1)).replace(tzinfo=zone)
    else:
        local = instants.parse(text, zone)
    length = _TICK if local.microsecond else _SECOND if _SECONDS.search(text) else _MINUTE
    start, note = _existing(local, zone)
    return Moment(start, start + length, note)


def _existing(local: datetime, zone: ZoneInfo) -> tuple[datetime, str | None]:
    """Return the instant of a local time, and a note if the clock skipped or repeated it."""
    instant = local.astimezone(UTC)
    if local.tzinfo is not zone:
        return instant, None
    change = clock_change(zone.key, instant)
    if change is not None and instant.astimezone(zone).replace(tzinfo=None) != local.replace(
        tzinfo=None
    ):
        note = (
            f"on {local:%Y-%m-%d} the clocks of {zone.key} skipped {local:%H:%M}; this is"
            f" about {iso(change[0])}, the first instant after the change"
        )
        return change[0], note
    second = local.replace(fold=1).astimezone(UTC)
    if second != instant:
        note = (
            f"{local:%Y-%m-%d %H:%M} occurred twice in {zone.key}; this is about the first,"
            f" the second is {iso(second)}"
        )
        return instant, note
    return instant, None


def _clock(text: str) -> time | None:
    if ":" not in text or len(text) > len("03:00:00"):
        return None
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return None
    return clock if clock.tzinfo is None else None  # a time of day has no offset
