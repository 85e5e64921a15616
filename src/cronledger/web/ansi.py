"""Output with the colours of a terminal, as HTML with classes: the CSP permits no styles."""

import re

from markupsafe import Markup, escape

from cronledger.rules.printable import clean

_SEQUENCE = re.compile(
    r"\x1b(?:\[([0-?]{0,60})[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]{0,60}[ -/]*|\][^\x07\x1b]{0,200}\x1b?)?\Z")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",)}


def _nearest(codes: list[int]) -> str | None:
    """Take one of 256 colours, or red, green and blue, off the parameters.

    Returns the name of the colour with this hue; None: black, white or a grey.
    """
    is_indexed = codes[:1] == [5]
    levels = codes[1 : 2 if is_indexed else 4]
    del codes[: 2 if is_indexed else 4]
    if is_indexed and levels:
        number = levels[0] - 16
        if number < 0:
            return _NAMES[number % 8]
        levels = [number // 36, number // 6 % 6, number % 6] if number < 216 else []
    hue = sum(1 << place for place, level in enumerate(levels) if 2 * level > max(levels))
    return _NAMES[hue] if 0 < hue < 7 else None


class Ansi:
    """Converts a text that arrives in parts. All sequences but colours and weights are removed."""

    def __init__(self) -> None:
        self._weights: set[str] = set()
        self._colours: dict[str, str] = {}  # by "fg" and "bg"
        self._unfinished = ""

    def feed(self, text: str) -> Markup:
        """Return the part as HTML."""
        text = (self._unfinished + text).replace("\r\n", "\n")
        cut = _UNFINISHED.search(text)
        text, self._unfinished = (text[: cut.start()], cut[0]) if cut else (text, "")
        parts, place = [], 0
        for found in _SEQUENCE.finditer(text):
            parts.append(self._shown(text[place : found.start()]))
            place = found.end()
            if found[2] == "m":
                self._apply(found[1])
        parts.append(self._shown(text[place:]))
        return Markup("").join(parts)

    def _shown(self, text: str) -> Markup:
        shown = escape(clean(_CONTROLS.sub("", text.replace("\r", "\n"))))
        classes = sorted(self._weights | {f"{kind}-{name}" for kind, name in self._colours.items()})
        if not classes or not shown:
            return shown
        return Markup('<span class="{}">{}</span>').format(" ".join(classes), shown)

    def _apply(self, parameters: str) -> None:
        codes = [int(code[:4]) if code.isdigit() else 0 for code in parameters.split(";")]
        while codes:
            code = codes.pop(0)
            kind = "bg" if 40 <= code <= 49 or code >= 100 else "fg"
            if code in (38, 48):  # one of 256 colours, or one of red, green and blue
                if (name := _nearest(codes)) is None:
                    self._colours.pop(kind, None)
                else:
                    self._colours[kind] = name
            elif code == 0:
                self._weights.clear()
                self._colours.clear()
            elif code in _ON:
                self._weights.add(_ON[code])
            elif code in _OFF:
                self._weights.difference_update(_OFF[code])
            elif code in (39, 49):
                self._colours.pop(kind, None)
            elif code % 10 < len(_NAMES) and code // 10 in (3, 4, 9, 10):
                self._colours[kind] = _NAMES[code % 10]


def shown(text: str) -> Markup:
    """Return a whole text as HTML."""
    return Ansi().feed(text)


def last_lines(text: str, count: int) -> Markup:
    """Return the last lines of a text as HTML, in the colours that they have in the whole text."""
    lines = text.rstrip("\n").split("\n")
    ansi = Ansi()
    ansi.feed("\n".join(lines[:-count]))
    return ansi.feed("\n".join(lines[-count:]))
