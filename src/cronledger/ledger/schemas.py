"""The names that follow from the schema of a ledger."""


def internal(schema: str) -> str:
    """Return the name of the schema of the functions that only the ledger calls."""
    return f"{schema}_internal"


def ended_channel(schema: str) -> str:
    """Return the channel of the notifications that an execution has ended.

    The channel of all other notifications has the name of the schema.
    """
    return f"{schema}_ended"
