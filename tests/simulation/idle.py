"""idle_in_transaction_session_timeout in virtual time; PostgreSQL's own counts real seconds."""

from psycopg import errors

from tests.simulation.request import Request

NAME = "idle_in_transaction_session_timeout"


def take_timeout(request: Request) -> float | None:
    """The seconds that this statement sets it to. PostgreSQL is told 0, which is never; so it is of
    transaction_timeout, whose time no simulation reaches."""
    values = list(request.params) if isinstance(request.params, list | tuple) else []
    seconds = None
    for name in (NAME, "transaction_timeout"):
        place = _place(name, request.query, values)
        if place is not None:
            seconds = int(values[place]) / 1000 if name == NAME else seconds
            values[place] = "0"
            request.params = values
    return seconds


def _place(name: str, query: bytes, values: list[object]) -> int | None:
    """Which parameter is its value: the one after its name, or that of its set_config."""
    if name in values:
        return values.index(name) + 1
    before, found, _ = query.partition(f"set_config('{name}', %s".encode())
    return before.count(b"%s") if found else None


def terminated() -> errors.IdleInTransactionSessionTimeout:
    """What the client of such a transaction hears."""
    return errors.IdleInTransactionSessionTimeout(
        "terminating connection due to idle-in-transaction timeout"
    )
