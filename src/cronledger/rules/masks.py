"""Masks secrets in texts that are shown, logged or stored."""

import json
import re
from html import escape
from urllib.parse import quote

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
    return re.sub(
        "|".join(_pattern(x) for secret in hidden for x in _spellings(secret)), MASK, text
    )


def longest_spelling(hidden: tuple[str, ...]) -> int:
    """Return how many bytes before a tail to keep, because it may begin in a secret."""
    return max((LONGEST_SPELLING * len(secret) for secret in hidden), default=0)


def redacted_tail(text: str, hidden: tuple[str, ...], limit: int) -> str:
    """Return the last `limit` bytes of `text`, after the secrets in `hidden` are masked."""
    return redacted(text, hidden).encode()[-limit:].decode("utf-8", "ignore") if limit else ""


def _spellings(secret: str) -> tuple[str, ...]:
    """Return the spellings of `secret` in a response or an exception, except for backslashes."""
    return secret, json.dumps(secret)[1:-1], quote(secret, safe=""), escape(secret)


def _pattern(text: str) -> str:
    """Return a pattern of `text` with any number of backslashes, as repeated quoting adds them."""
    plain = text.replace("\\", "")
    between = r"\\*"
    return between.join(re.escape(character) for character in plain) if plain else re.escape(text)
