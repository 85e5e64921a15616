"""The exceptions for calls that the ledger refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors

from cronledger.ledger.database_errors import REFUSALS, Explained, explained
from cronledger.rules.problems import Exit
from cronledger.rules.remedies import Surface


class LedgerError(Exception):
    """The ledger refused a call, and nothing was changed by it.

    `message`: what is wrong. `detail`, `remedy`: more about it, and what to do, or None.
    `sqlstate`: the code of the database's error, which is the `__context__`.
    """

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        remedy: str | None = None,
        sqlstate: str | None = None,
    ) -> None:
        super().__init__(str(Explained(Exit.FAILED, message, detail, remedy)))
        self.message = message
        self.detail = detail
        self.remedy = remedy
        self.sqlstate = sqlstate


class NotFoundError(LedgerError, LookupError):
    """A job, a scope or an execution does not exist."""


@contextmanager
def refusals(surface: Surface | None = Surface.CLIENT) -> Iterator[None]:
    """Raise LedgerError where the database refuses a name, a value, a state or a right.

    Its remedy is in the terms of this surface. None: the error of the database passes.

    Every other psycopg.Error passes: a lost connection, and a conflict with another transaction,
    after which the caller may repeat its own transaction.
    """
    try:
        yield
    except REFUSALS as error:
        if surface is None:
            raise
        shown = explained(error, surface)
        kind = NotFoundError if isinstance(error, errors.NoDataFound) else LedgerError
        # Not `from error`, because a traceback would show the internal functions that raised.
        raise kind(
            shown.message, detail=shown.detail, remedy=shown.remedy, sqlstate=error.sqlstate
        ) from None
