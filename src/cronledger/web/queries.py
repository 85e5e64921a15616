"""What a person asked for in the query of an address: text, instants, choices."""

from collections.abc import Collection
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request

from cronledger.rules import durations

EXAMPLE = "write 2026-11-22T03:00Z, 2026-11-22 for midnight UTC, or 6h for six hours ago"
ABSOLUTE = "write 2026-11-22T03:00Z, or 2026-11-22 for midnight UTC"
LATER = "write 2026-11-22T03:00Z, 2026-11-22 for midnight UTC, or 6h for in six hours"


def text(request: Request, name: str) -> str | None:
    """Return a field as it is, or None if it is missing or empty. Blanks are part of a name.

    Raises HTTPException for a character that the database cannot store.
    """
    found = request.query_params.get(name, "")
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in found):
        raise HTTPException(400, f"The field {name} has a character that no name can have.")
    return found or None


def choices(request: Request, name: str, known: Collection[str]) -> list[str]:
    """Return the values of a field. Raises HTTPException for one that is not known."""
    found = [value for value in request.query_params.getlist(name) if value]
    for value in found:
        if value not in known:
            raise HTTPException(400, f"{name} is one of {', '.join(known)}, not {value[:100]!r}.")
    return found


def instant(request: Request, name: str, now: datetime) -> datetime | None:
    """Return an instant, or None if the field is empty. Without an offset it is UTC.

    A duration lies before `now`. Raises HTTPException.
    """
    given = text(request, name)
    if given is None or not given.strip():
        return None
    try:
        # Of the minute, so that the requests of one minute are the same panel.
        return (now - durations.parse(given.strip())).replace(second=0, microsecond=0)
    except durations.DurationError:
        return absolute(given, name, EXAMPLE)
    except OverflowError:
        raise HTTPException(400, f"{name} is too long ago: {given[:100]!r}.") from None


def absolute(given: str, name: str, example: str = ABSOLUTE) -> datetime:
    """Return an instant; durations are refused. UTC if it has no offset. Raises HTTPException."""
    try:
        found = datetime.fromisoformat(given.strip())
        found = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        found = None
    if found is None or not 1000 <= found.year <= 9998:
        raise HTTPException(400, f"{name} is not an instant: {given[:100]!r}; {example}.")
    return found


def later(given: str, name: str, now: datetime | None) -> datetime | None:
    """Return the instant that a form names, or None if the field is empty.

    A duration lies after `now`. Raises HTTPException.
    """
    if not given.strip():
        return None
    try:
        ahead = durations.parse(given.strip())
    except durations.DurationError:
        return absolute(given, name, LATER)
    if now is None:
        raise HTTPException(503, "The database does not respond.")
    return now + ahead
