"""Whether a database is the ledger's own, or another one: restored or cloned; and whether it holds
the ledger that a runner began with (15_identity.sql)."""

import re
from dataclasses import dataclass
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from cronledger.ledger.schemas import internal

SQLSTATE = "CL005"
OTHER_LEDGER = "CL006"
ACCEPT = (
    "if it was restored or cloned, its original may go on beside it; decide with "
    "`cronledger accept-database --skip-missed` (what was due until then does not run here) or "
    "`--catch-up` (the jobs' catch_up decides)"
)


class OtherDatabaseError(RuntimeError):
    """This is another database than the one the ledger was made in; the message says what differs.

    Nothing is planned or started in it until `cronledger accept-database`.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"this is another database than the one the ledger was made in: {why}")
        self.why = why


RETURN = (
    "make the DSN lead to the ledger that the runner began with, or restart the runner if it is to "
    "work in this one"
)


@dataclass(slots=True)
class ExpectedLedger:
    """The ledger that a runner began with, by its id; None before it has begun. Transactions of its
    steps raise CL006 in any other ledger."""

    schema: str
    id: UUID | None = None


@dataclass(frozen=True, slots=True)
class OtherLedger:
    """Another ledger than the expected one, by its id. `copy_of`: the id of the ledger of which it
    was accepted as a copy."""

    why: str
    id: UUID
    copy_of: UUID | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """`why` it was another database; None: it was not, and nothing was done. How many `jobs` had
    what was due until then skipped, how many waiting executions were `cancelled`, and how many that
    are RUNNING were `asked_to_end`."""

    why: str | None
    jobs: int
    cancelled: int
    asked_to_end: int


def refusal(error: BaseException) -> str | None:
    """What the database said if it refused work because it is another one; None: `error` is of
    another kind."""
    if isinstance(error, psycopg.Error) and error.sqlstate == SQLSTATE:
        return (error.diag.message_primary or str(error)).partition(": ")[2]
    return None


def other_ledger(error: BaseException) -> OtherLedger | None:
    """The ledger that refused a runner which began with another one; None: `error` is of another
    kind."""
    if not isinstance(error, psycopg.Error) or error.sqlstate != OTHER_LEDGER:
        return None
    here, *original = map(UUID, re.findall(r"[0-9a-f-]{36}", error.diag.message_detail or ""))
    why = (error.diag.message_primary or str(error)).partition(": ")[2]
    return OtherLedger(why, here, original[0] if original else None)


def require_ledger(connection: psycopg.Connection, schema: str, ledger: UUID | None) -> None:
    """Raises psycopg.Error (CL006) in another ledger than the one with this id; None passes."""
    statement = sql.SQL("SELECT {}.require_ledger(%s)").format(sql.Identifier(internal(schema)))
    connection.execute(statement, [ledger])


def other_database(connection: psycopg.Connection, schema: str = "cronledger") -> str | None:
    """Why this is another database than the ledger's own; None: it is its own. Raises
    psycopg.Error."""
    statement = sql.SQL("SELECT {}.other_database()").format(sql.Identifier(internal(schema)))
    row = connection.execute(statement).fetchone()
    assert row is not None
    why: str | None = row[0]
    return why


def require_own(connection: psycopg.Connection, schema: str = "cronledger") -> None:
    """Raises OtherDatabaseError, psycopg.Error."""
    why = other_database(connection, schema)
    if why is not None:
        raise OtherDatabaseError(why)


def accept(
    connection: psycopg.Connection,
    schema: str = "cronledger",
    *,
    skip_missed: bool,
    by: str | None = None,
) -> Accepted:
    """This database is the ledger's own from now on.

    `skip_missed`: what was due until now does not run here, and is recorded `missed` by the next
    planning; else the policies of each job decide. Raises psycopg.Error.
    """
    statement = sql.SQL("SELECT * FROM {}.accept_database(%s, %s)").format(sql.Identifier(schema))
    with connection.cursor(row_factory=class_row(Accepted)) as cursor:
        row = cursor.execute(statement, [skip_missed, by]).fetchone()
    assert row is not None
    return row
