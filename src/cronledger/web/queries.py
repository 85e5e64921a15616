"""What a person asked for in the query of an address: text, instants, choices."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException
from starlette.requests import Request

from cronledger.rules import instants, zones
from cronledger.rules.cron_fields import CronError
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


def moment(texts: Callable[[str], Sequence[str]], name: str) -> str:
    """Return the text of an instant, which a form has twice: chosen from a calendar, or typed.

    A time without an offset is one of the zone that the form names, and is returned as the instant.
    Empty: neither is filled in. Raises HTTPException.
    """
    found = [given.strip() for given in texts(name) if given.strip()]
    if len({*found}) > 1:
        both = " and ".join(repr(one[:40]) for one in found[:2])
        raise HTTPException(400, f"{name}: {both} are given; leave one of them empty.")
    there = next(iter(texts("zone")), "")
    if not found or not there:
        return found[0] if found else ""
    with _named(name):
        return instants.anchored(found[0], zone(there))


def moment_of(request: Request, name: str) -> str:
    """Return the text of an instant in the address. Raises HTTPException."""
    return moment(request.query_params.getlist, name)


def zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. Raises HTTPException."""
    try:
        return zones.named(name)
    except CronError as error:
        raise HTTPException(400, f"zone: {error}.") from None


def instant(request: Request, name: str, now: datetime) -> datetime | None:
    """Return an instant, or None if the field is empty. A duration lies before `now`.

    Raises HTTPException.
    """
    given = moment_of(request, name)
    if not given:
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
