"""Parts of Markdown that the generators share."""

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `make docs`; do not edit. -->\n"
"""The second paragraph of each generated document."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, with `|` in its cells escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines
    )


def one_line(text: str) -> str:
    """Return the text with each run of white space replaced by one space."""
    return " ".join(text.split())
