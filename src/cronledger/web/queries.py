"""What a person asked for in the query of an address: text, instants, choices."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request

from cronledger.rules import instants
from cronledger.web import links


def text(request: Request, name: str) -> str | None:
    """Return a field of the address, or None if it is missing or empty. Blanks are part of a name.

    Raises HTTPException for a character that the database cannot store.
    """
    found = links.field(request, name)
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
    # Of the minute, so that the requests of one minute are the same panel.
    minute = now.replace(second=0, microsecond=0)
    with _named(name):
        return instants.parse_relative(given, minute).astimezone(UTC)


def absolute(given: str, name: str) -> datetime:
    """Return an instant; durations are refused. UTC if it has no offset. Raises HTTPException."""
    with _named(name):
        return instants.parse(given).astimezone(UTC)


def later(given: str, name: str, now: datetime | None) -> datetime | None:
    """Return the instant that a form names, or None if the field is empty.

    A duration lies after `now`. Raises HTTPException.
    """
    if not given.strip():
        return None
    if now is None:
        raise HTTPException(503, "The database does not respond.")
    with _named(name):
        return instants.parse_relative(given, now, ahead=True)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Raise HTTPException, which names the field, for an InstantError."""
    try:
        yield
    except instants.InstantError as error:
        raise HTTPException(400, f"{name}: {error}.") from None
