"""idle_in_transaction_session_timeout in virtual time; PostgreSQL's own counts real seconds."""

import re

from psycopg import errors

from tests.simulation.support.request import Request

NAME = "idle_in_transaction_session_timeout"


def take_timeout(request: Request) -> float | None:
    """The seconds that this statement sets it to. PostgreSQL is told 0, which is never. So it is of
    transaction_timeout, whose time no simulation reaches, and of lock_timeout, which the session
    counts."""
    values = list(request.params) if isinstance(request.params, list | tuple) else []
    seconds = None
    for name in (NAME, "transaction_timeout", "lock_timeout"):
        place = _place(name, request.query, values)
        if place is not None:
            seconds = int(values[place]) / 1000 if name == NAME else seconds
            values[place] = "0"
            request.params = values
    return seconds


def _place(name: str, query: bytes, values: list[object]) -> int | None:
    """Return which parameter is the value of the setting; None if the query does not set it.

    Otherwise the server would count real seconds, and end the session or the wait on a busy
    machine.
    """
    if b"set_config('%s'" % name.encode() not in query:
        return None
    found = re.search(rb"set_config\('%s',\s*(?:\w+\()*%%s" % name.encode(), query)
    assert found and values, f"{name} is set in a way that the simulator does not know: {query!r}"
    return query[: found.start()].count(b"%s")


def terminated() -> errors.IdleInTransactionSessionTimeout:
    """What the client of such a transaction hears."""
    return errors.IdleInTransactionSessionTimeout(
        "terminating connection due to idle-in-transaction timeout"
    )
