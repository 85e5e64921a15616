"""Tables of text with rich, for the width of a terminal or with full width.

Text that other people wrote is cleaned, because a name or an error message must not move the
cursor, change colours or reverse the order of the text.
"""

from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cronledger.rules.printable import clean

GAP = 2
"""Blanks between two columns."""


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    file: TextIO,
    *,
    width: int | None = None,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table without lines. Cells are cleaned, and are one line each.

    `width`: the width of the terminal. If the table is wider, its longest cells are cut and end
    with an ellipsis. None: no limit and no colours. `styles`: the style of rich for a cell that
    contains exactly this text.
    """
    cells = [[_plain(text) for text in row] for row in rows]
    widths = _widths(headings, cells)
    if width is None:
        for line in (headings, *cells):
            padded = (
                text + " " * (n - cell_len(text)) for text, n in zip(line, widths, strict=True)
            )
            file.write("  ".join(padded).rstrip() + "\n")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, fitting in zip(headings, _fitted(widths, width), strict=True):
        table.add_column(heading, width=fitting, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*(Text(text, style=(styles or {}).get(text, "")) for text in row))
    Console(file=file, width=width, highlight=False).print(table)


def width_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of the whole table in columns of a terminal."""
    widths = _widths(headings, [[_plain(text) for text in row] for row in rows])
    return sum(widths) + GAP * (len(widths) - 1)


def _plain(text: str) -> str:
    return clean(text).replace("\n", "\\n").replace("\t", " ")


def _widths(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]


def _fitted(widths: Sequence[int], width: int) -> list[int]:
    """Shorten the widest columns until all fit into `width`."""
    fitted = list(widths)
    while sum(fitted) + GAP * (len(fitted) - 1) > width and max(fitted) > 1:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted
