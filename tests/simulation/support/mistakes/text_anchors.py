"""Texts of the product with other texts in their place. What is to be replaced must be there."""

from typing import Any

import psycopg


class AnchorError(Exception):
    """The text that is to be replaced is not there any more, or it was never reached."""


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """The text with each old one replaced by its new one, in turn."""
    for old, new in changes:
        if old not in text:
            raise AnchorError(f"nowhere: {old!r}")
        text = text.replace(old, new)
    return text


def definition(connection: "psycopg.Connection[Any]", function: str) -> str:
    """What makes this function of the schema."""
    row = connection.execute(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p"
        " WHERE p.proname = %s AND p.pronamespace::regnamespace::text ~ '^cronledger'", (function,),
    ).fetchone()  # fmt: skip
    if row is None:
        raise AnchorError(f"no function {function}")
    return str(row[0])
