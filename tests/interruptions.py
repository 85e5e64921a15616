"""Places between the statements of a function of the schema, at which a test may interrupt it."""

import itertools
import re

import psycopg

FUNCTIONS = ("claim_look", "claim_due", "claim_existing")
"""What a claim does inside one statement of its round trip."""

_BETWEEN = """
CREATE FUNCTION cronledger_internal.between_statements(place text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $between$
BEGIN
{body}
END $between$
"""
_END = re.compile(r"--[^\n]*|'(?:[^']|'')*'|RETURN;|;")


def install(connection: psycopg.Connection, body: str) -> None:
    """Let each function execute `body` (plpgsql) after each of its statements, with the place."""
    connection.execute(_BETWEEN.format(body=body).encode())
    for name in FUNCTIONS:
        connection.execute(_divided(name, _definition(connection, name)).encode())


def places(connection: psycopg.Connection) -> list[str]:
    """All places of a ledger with `install`. Those behind a condition may never be reached."""
    texts = [_definition(connection, name) for name in FUNCTIONS]
    return [place for text in texts for place in re.findall(r"between_statements\('(.*?)'", text)]


def _definition(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.proname = %s"
        " AND p.pronamespace = 'cronledger_internal'::regnamespace", (name,),
    ).fetchone()  # fmt: skip
    assert row is not None, name
    return str(row[0])


def _divided(name: str, definition: str) -> str:
    declared, begin, body = definition.partition("\nBEGIN\n")
    numbers = itertools.count(1)

    def between(found: re.Match[str]) -> str:
        if found[0] != ";":
            return found[0]
        place = f"{name} {next(numbers)}"
        return f"; PERFORM cronledger_internal.between_statements('{place}');"

    return declared + begin + _END.sub(between, body)
