"""Masks secrets in texts that are shown, logged or stored."""

import json
import re
from html import escape
from urllib.parse import quote

from cronledger.rules.long_text import left_out

MASK = "***"
LONGEST_SPELLING = 12
"""The maximum number of bytes that one character of a secret takes in a response."""

_PASSWORD = re.compile(r"(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s&\\]|\\.)*)")
_DSN = re.compile(r"(?<=://)([^:@/?#]*):.*@", re.DOTALL)
_DSN_IN_TEXT = re.compile(r"(?<=://)([^\s:@/?#]*):\S*@")
_ROW = re.compile(r"(Failing row contains \()(.*\)|.*)")  # it may contain a lease_token


def masked(dsn: str) -> str:
    """Return `dsn` with every password replaced by `***`, and in doubt more than the password."""
    return _PASSWORD.sub(rf"\g<1>{MASK}", _DSN.sub(rf"\1:{MASK}@", dsn))


def scrubbed(text: str) -> str:
    """Return `text` with the passwords of connection strings, and rows that PostgreSQL quotes,
    masked.
    """
    if "://" in text or "assword" in text.lower():
        text = _PASSWORD.sub(rf"\g<1>{MASK}", _DSN_IN_TEXT.sub(rf"\1:{MASK}@", text))
    return _ROW.sub(rf"\1{MASK})", text) if "Failing row contains" in text else text


def redacted(text: str, hidden: tuple[str, ...]) -> str:
    """Return `text` with every spelling of the secrets in `hidden` masked."""
    if not hidden:
        return text
    return re.sub("|".join(_patterns(hidden)), MASK, text)


def longest_spelling(hidden: tuple[str, ...]) -> int:
    """Return how many bytes before a tail to keep, because it may begin in a secret."""
    return max((LONGEST_SPELLING * len(secret) for secret in hidden), default=0)


def redacted_tail(text: str, hidden: tuple[str, ...], limit: int, missing: int = 0) -> str:
    """Return the last `limit` bytes of `text`, after the secrets in `hidden` are masked.

    If bytes before them are left out, or `missing` before `text`, a line states how many.
    """
    if not limit:
        return ""
    if missing and hidden:
        text, missing = _after_secret(text, hidden, missing)
    whole = redacted(text, hidden).encode()
    tail = whole[-limit:].decode("utf-8", "ignore")
    missing += len(whole) - len(tail.encode())
    return left_out(missing).lstrip() + tail if missing else tail


class StreamMask:
    """Masks secrets in a text that arrives in parts, as `redacted` does in the whole text.

    The end of a part that may be the beginning of a secret is held back until the next one.
    """

    def __init__(self, hidden: tuple[str, ...]) -> None:
        self._hidden = hidden
        self._held = ""
        self._pattern = re.compile("|".join(_patterns(hidden))) if hidden else None

    def feed(self, text: str) -> str:
        """Return what can be shown after this part."""
        if self._pattern is None:
            return text
        text = self._held + text
        shown = _without_beginnings(text, self._hidden)
        for match in self._pattern.finditer(text):
            if match.start() < shown < match.end():
                shown = match.start()
        self._held = text[shown:]
        return redacted(text[:shown], self._hidden)

    def after_gap(self, text: str, missing: int) -> tuple[str, int]:
        """Return what can be shown of a part before which `missing` bytes were lost, and how many
        bytes are then left out.

        A secret may have begun in the lost part, so as much as a secret takes is left out.
        """
        if self._pattern is None:
            return text, missing
        text, missing = _after_secret(text, self._hidden, missing + len(self._held.encode()))
        self._held = ""
        return self.feed(text), missing


def _after_secret(text: str, hidden: tuple[str, ...], missing: int) -> tuple[str, int]:
    """Return the part of `text` in which no secret is cut that may have begun before it, and
    `missing` with the bytes before that part.
    """
    first = min(longest_spelling(hidden), len(text))
    for match in re.finditer("|".join(_patterns(hidden)), text):
        if match.start() < first < match.end():
            first = match.end()
    return text[first:], missing + len(text[:first].encode())


def _without_beginnings(text: str, hidden: tuple[str, ...]) -> int:
    """Return the length of `text` without an end with which a secret may begin."""
    shown = len(text)
    for spelling in {x for secret in hidden for x in _spellings(secret)}:
        plain = spelling.replace("\\", "")
        skipped = "\\" if plain else ""
        plain = plain or spelling
        place, seen = len(text), ""
        while place > 0 and len(seen) < len(plain) - 1:
            place -= 1
            if text[place] != skipped:
                seen = text[place] + seen
                if plain.startswith(seen):
                    shown = min(shown, place)
    return shown


def _patterns(hidden: tuple[str, ...]) -> list[str]:
    return [_pattern(x) for secret in hidden for x in _spellings(secret)]


def _spellings(secret: str) -> tuple[str, ...]:
    """Return the spellings of `secret` in a response or an exception, except for backslashes."""
    return secret, json.dumps(secret)[1:-1], quote(secret, safe=""), escape(secret)


def _pattern(text: str) -> str:
    """Return a pattern of `text` with any number of backslashes, as repeated quoting adds them."""
    plain = text.replace("\\", "")
    between = r"\\*"
    return between.join(re.escape(character) for character in plain) if plain else re.escape(text)
