"""Tables of text, for the width of a terminal or with full width.

Text that other people wrote is cleaned, because a name or an error message must not move the
cursor, change colours or reverse the order of the text.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TextIO

import click
from wcwidth import wcwidth

from cronledger.rules.printable import clean

GAP = 2
"""Blanks between two columns."""


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    file: TextIO,
    *,
    width: int | None = None,
    colours: Mapping[str, str] | None = None,
) -> None:
    """Print a table without lines. Cells are cleaned, and are one line each.

    `width`: the width of the terminal. If the table is wider, its longest cells are cut and end
    with an ellipsis. None: no limit and no colours. `colours`: the colour of a cell that contains
    exactly this text, unless the environment has NO_COLOR or TERM=dumb.
    """
    cells = [[_plain(text) for text in row] for row in rows]
    widths = _widths(headings, cells)
    if width is not None:
        widths = _fitted(widths, width)
    if width is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        colours = None
    for heading, line in ((True, headings), *((False, row) for row in cells)):
        padded = []
        for text, columns in zip(line, widths, strict=True):
            shown = _cut(text, columns)
            blanks = " " * (columns - _columns(shown))
            if colours is not None and (heading or text in colours):
                shown = click.style(shown, fg=colours.get(text), bold=heading or None)
            padded.append(shown + blanks)
        file.write((" " * GAP).join(padded).rstrip() + "\n")


def width_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of the whole table in columns of a terminal."""
    widths = _widths(headings, [[_plain(text) for text in row] for row in rows])
    return sum(widths) + GAP * (len(widths) - 1)


def _plain(text: str) -> str:
    return clean(text).replace("\n", "\\n").replace("\t", " ")


def _widths(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_columns, column)) for column in zip(headings, *rows, strict=True)]


def _columns(text: str) -> int:
    return sum(map(wcwidth, text))


def _cut(text: str, columns: int) -> str:
    if _columns(text) <= columns:
        return text
    ends = accumulate(map(wcwidth, text))
    return "".join(c for c, end in zip(text, ends, strict=True) if end < columns) + "…"


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """Shorten the widest columns until all fit into `width`."""
    fitted = list(widths)
    while sum(fitted) + GAP * (len(fitted) - 1) > width and max(fitted) > 1:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted
