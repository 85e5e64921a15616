"""Instants in text: ISO 8601, or a duration before or after now."""

from datetime import UTC, datetime, tzinfo

from cronledger.rules import durations
from cronledger.rules.limits import END_OF_TIME, FIRST_INSTANT, LONGEST


class InstantError(ValueError):
    """A time cannot be used. `str()` has the value, the problem and the remedy."""


def iso(instant: datetime, precision: str = "auto") -> str:
    """Return the instant in UTC: `2026-03-08T07:00:00Z`, with microseconds if it has some.

    `precision`: that of datetime.isoformat, such as `seconds`, which leaves out the rest.
    """
    return instant.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def parse(text: str, zone: tzinfo = UTC) -> datetime:
    """Return the instant of ISO 8601. Without an offset it is a time of `zone`.

    Raises InstantError.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InstantError(
            f"{text[:100]!r} is not a time; write it like 2026-03-08T07:00:00Z"
        ) from None
    return storable(found if found.tzinfo is not None else found.replace(tzinfo=zone))


def parse_relative(text: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Return an instant, given as such or as a duration before `now`, or, if `ahead`, after it.

    Raises InstantError.
    """
    try:
        length = durations.parse(text)
    except durations.DurationError:
        if text.strip()[:4].isdigit():
            return parse(text)
        raise InstantError(
            f"{text[:100]!r} is neither a time nor a duration; write 2026-03-08T07:00:00Z or 90m"
        ) from None
    if length > LONGEST:
        raise InstantError(f"{text!r} is longer than 100 years; use a shorter duration")
    return storable(now + length if ahead else now - length)


def anchored(text: str, zone: tzinfo) -> str:
    """Return a time without an offset as the instant that it is in `zone`, any other text as it is.

    Raises InstantError, also for a time that the clocks of the zone skip or repeat.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    if found.tzinfo is not None:
        return text
    local = parse(text, zone)
    if not _is_certain(local):
        raise InstantError(
            f"the clocks of {zone} skip or repeat {text.strip()}; write it with an offset,"
            f" like {local.isoformat()}"
        )
    return iso(local)


def wall_time(text: str, zone: tzinfo) -> str | None:
    """Return the time in `zone` that `anchored` reads as the instant `text`, to the second.

    None: the text is not an instant, or no time of the zone names it.
    """
    try:
        local = parse(text).astimezone(zone)
    except InstantError:
        return None
    has_name = not local.microsecond and _is_certain(local)
    return local.replace(tzinfo=None).isoformat() if has_name else None


def _is_certain(local: datetime) -> bool:
    """Return whether the time exists once: in a change of the clocks, `fold` has a meaning."""
    return local.utcoffset() == local.replace(fold=1 - local.fold).utcoffset()


def storable(instant: datetime) -> datetime:
    """Return the instant. Raises InstantError if the ledger cannot store it."""
    if FIRST_INSTANT <= instant < END_OF_TIME:
        return instant
    raise InstantError(f"{instant.isoformat()} is outside the years 1000 to 9998; use another time")
