"""A ledger has two schemas: one that people use, and one for the functions that only it calls."""


def internal(schema: str) -> str:
    """Return the name of the schema of the functions that only the ledger calls."""
    return f"{schema}_internal"
