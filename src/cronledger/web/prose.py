"""Texts of the product: their instants are shown in the zone of the page's times."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from markupsafe import Markup

from cronledger.rules import instants
from cronledger.rules.instants import InstantError

_NAMED = re.compile(
    r"\b(?:(?:(?P<execution>[Ee]xecution)|(?P<revision>[Rr]evision)) (?P<number>\d+)"
    r"|(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    r"(?:Z| UTC|\+00(?::00)?(?!:?\d)))"
)
"""What a text names: rows, and instants as Python and SQL write them."""
_BEFORE, _AFTER = {"", *" \n('\""}, {"", *" \n)'\";,."}

Pieces = list[str | datetime]


def pieces(
    text: str,
    quoted: Iterable[str] = (),
    link: Callable[[re.Match[str]], Markup | None] = lambda _: None,
) -> Pieces:
    """Return a text in pieces: its instants, what `link` returns for the rows that it names, and
    the text between them.

    `quoted`: what people and handlers wrote in it. This stays as it is.
    """
    opaque = [span for one in quoted if one for span in _spans(text, one)]
    found: Pieces = []
    end = 0
    for match in _NAMED.finditer(text):
        if any(first <= match.start() and match.end() <= last for first, last in opaque):
            continue
        piece = link(match) if match["number"] else _instant(match)
        if piece is not None:
            found += [text[end : match.start()], piece]
            end = match.end()
    return [*found, text[end:]]


def _spans(text: str, quoted: str) -> Iterator[tuple[int, int]]:
    """Return where the text has what was quoted, and not as a part of longer words."""
    first = text.find(quoted)
    while first >= 0:
        last = first + len(quoted)
        if text[first - 1 : first] in _BEFORE and text[last : last + 1] in _AFTER:
            yield first, last
        first = text.find(quoted, first + 1)


def _instant(match: re.Match[str]) -> datetime | None:
    try:
        return instants.parse(f"{match['day']}T{match['time']}Z")
    except InstantError:  # in the name of a job
        return None
