"""Text without the characters that act on a terminal or a browser: controls and bidi marks."""

import unicodedata

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HARMLESS = frozenset("\n\t")


def clean(text: str) -> str:
    r"""Return the text with control and bidi characters escaped: ESC as `\x1b`, RLO as `\u202e`.

    Newlines and tabs stay.
    """
    if text.isprintable():  # no control, bidi mark or line separator is
        return text
    return "".join(_escaped(c) if _acts(c) else c for c in text)


def _acts(character: str) -> bool:
    if character in _HARMLESS:
        return False
    return character in _BIDI or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
