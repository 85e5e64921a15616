"""The identity of a ledger (functions/identity/other_database.sql).

A restored or cloned database is not the ledger's own. A runner works only in the ledger in which it
began.
"""

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
    "if it was restored or cloned, the original may still be running; decide with "
    "`cronledger accept-database --skip-missed` (plan_times that were due until then do not run "
    "here) or `--catch-up` (the jobs' catch_up decides)"
)

CONFIRM = (
    "after a failover, confirm it with `cronledger accept-database --catch-up`; in a copy whose "
    "original stays in use, run `cronledger refuse-database` and then "
    "`cronledger accept-database --skip-missed`, because otherwise both run every job"
)


class OtherDatabaseError(RuntimeError):
    """This is not the database in which the ledger was created. The message names the difference.

    Nothing is planned or started in it until `cronledger accept-database`.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"this is not the database in which the ledger was created: {why}")
        self.why = why


RETURN = (
    "correct the DSN so that it leads to the ledger with which the runner began, or restart the "
    "runner to use this ledger"
)


@dataclass(slots=True)
class ExpectedLedger:
    """The id of the ledger in which a runner began; None before it has begun.

    The transactions of its steps raise CL006 in any other ledger.
    """

    schema: str
    id: UUID | None = None


@dataclass(frozen=True, slots=True)
class OtherLedger:
    """Another ledger than the expected one.

    `copy_of`: the id of the ledger of which it was accepted as a copy.
    """

    why: str
    id: UUID
    copy_of: UUID | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The changes of an acceptance.

    `why`: what differed; None: nothing differed, and no job was changed. `jobs`: the number of
    jobs whose due plan_times were skipped. `cancelled`: the number of waiting executions that were
    CANCELLED. `asked_to_end`: the number of RUNNING executions that were requested to end.
    """

    why: str | None
    jobs: int
    cancelled: int
    asked_to_end: int


def other_database_reason(error: BaseException) -> str | None:
    """Return why the ledger refuses to work in this database, if `error` says so; else None."""
    if isinstance(error, psycopg.Error) and error.sqlstate == SQLSTATE:
        return (error.diag.message_primary or str(error)).partition(": ")[2]
    return None


def other_ledger(error: BaseException) -> OtherLedger | None:
    """Return the ledger that refused a runner of another ledger, if `error` is that; else None."""
    if not isinstance(error, psycopg.Error) or error.sqlstate != OTHER_LEDGER:
        return None
    here, *original = map(UUID, re.findall(r"[0-9a-f-]{36}", error.diag.message_detail or ""))
    why = (error.diag.message_primary or str(error)).partition(": ")[2]
    return OtherLedger(why, here, original[0] if original else None)


def require_ledger(connection: psycopg.Connection, schema: str, ledger: UUID | None) -> None:
    """Raise psycopg.Error (CL006) if this is not the ledger with this id. None is any ledger."""
    statement = sql.SQL("SELECT {}.require_ledger(%s)").format(sql.Identifier(internal(schema)))
    connection.execute(statement, [ledger])


def other_database(connection: psycopg.Connection, schema: str = "cronledger") -> str | None:
    """Return why this is not the ledger's own database, or None if it is. Raises psycopg.Error."""
    statement = sql.SQL("SELECT {}.other_database()").format(sql.Identifier(internal(schema)))
    row = connection.execute(statement).fetchone()
    assert row is not None
    why: str | None = row[0]
    return why


def require_own(connection: psycopg.Connection, schema: str = "cronledger") -> None:
    """Raise OtherDatabaseError if this is not the ledger's own database. Raises psycopg.Error."""
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
    """Make this database the ledger's own.

    With `skip_missed`, plan_times that were due until now do not run here, and the next planning
    records them as `missed`. Otherwise the policies of each job decide. Raises psycopg.Error.
    """
    statement = sql.SQL("SELECT * FROM {}.accept_database(%s, %s)").format(sql.Identifier(schema))
    with connection.cursor(row_factory=class_row(Accepted)) as cursor:
        row = cursor.execute(statement, [skip_missed, by]).fetchone()
    assert row is not None
    return row
