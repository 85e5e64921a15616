"""Texts of the product: their instants are shown in the zone of the page's times."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime

from markupsafe import Markup

from cronledger.rules import instants
from cronledger.rules.instants import InstantError

_NAMED = (
    r"\b(?:(?:(?P<execution>[Ee]xecution)|(?P<revision>[Rr]evision)) (?P<number>\d+)"
    r"|(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    r"(?:Z| UTC|\+00(?::00)?(?!:?\d)))"
)
"""What a text names: rows, and instants as Python and SQL write them."""

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
    longest = sorted({*quoted} - {""}, key=len, reverse=True)
    opaque = [rf"(?<![^\s('\"]){re.escape(one)}(?![^\s)'\";,.])" for one in longest]
    named = re.compile("|".join([*opaque, _NAMED]))
    found: Pieces = []
    end = 0
    for match in named.finditer(text):
        part = link(match) if match["number"] else match["day"] and _instant(match)
        if part:
            found += [text[end : match.start()], part]
            end = match.end()
    return [*found, text[end:]]


def _instant(match: re.Match[str]) -> datetime | None:
    try:
        return instants.parse(f"{match['day']}T{match['time']}Z")
    except InstantError:  # in the name of a job
        return None
