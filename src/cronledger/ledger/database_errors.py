"""Errors of the database: which can be retried, and what a person can do about the others."""

import re
from dataclasses import dataclass, replace

import psycopg
from psycopg import errors

from cronledger.ledger import identity
from cronledger.rules.masks import masked
from cronledger.rules.problems import Exit
from cronledger.rules.remedies import Surface, remedy

MIGRATE = "run `cronledger migrate`, or set CRONLEDGER_SCHEMA to the schema of the ledger"
ROW = "Failing row contains"
PRIMARY = "use the connection string of the primary"

RETRYABLE_ERRORS = (
    errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable,
    errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout,
)  # fmt: skip
"""Another transaction was in conflict, or this client was silent. The whole step is retried."""

BAD_VALUE_ERRORS = (errors.DataError, errors.IntegrityError)
"""SQLSTATE classes 22 and 23: a value of one row, not the database, is at fault."""

_OUT_OF_DATE = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.InvalidSchemaName,
)
# A given name or value is wrong, and nothing was changed.
_USAGE = (errors.NoDataFound, errors.DataError, errors.InsufficientPrivilege)
REFUSALS = (
    *_USAGE, *_OUT_OF_DATE, errors.ObjectNotInPrerequisiteState, errors.IntegrityError,
)  # fmt: skip
"""The ledger refused a call: a name, a value, a state or a right. Repeating it does not help."""

# libpq reports no SQLSTATE for a failed connection, so the texts of the server, of libpq and of
# PgBouncer decide. An unknown text means that waiting may help.
_REMEDIES = (
    (
        r"authentication failed|no password supplied|wrong password",
        "correct the user and the password in the connection string, PGPASSWORD or ~/.pgpass",
    ),
    (r'role ".*" does not exist|no such user', "create the role, or use another one"),
    (r"is not permitted to log in", "run ALTER ROLE … LOGIN, or use another role"),
    (
        r'database ".*" does not exist|no such database',
        "create the database, or correct its name in the connection string",
    ),
    (r"permission denied for database", "run GRANT CONNECT ON DATABASE … TO this role"),
    (r"pg_hba\.conf", "allow this host, role and database in pg_hba.conf of the server"),
    (
        r"server does not support SSL, but SSL was required",
        "enable SSL in the server, or lower sslmode in the connection string",
    ),
)


def is_unreachable(error: BaseException) -> bool:
    """Return whether the database did not respond, or the connection to it is lost."""
    # psycopg has more kinds of OperationalError: a full disk, an object in use, a reached limit.
    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        state is None or state.startswith(("08", "57P")) or state == "53300"
    )


def refused_connection_remedy(error: BaseException) -> str | None:
    """Return the remedy if a server refuses this connection, so that waiting does not help.

    Return None for any other error.
    """
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return None
    text = str(error)
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, text)), None)


@dataclass(frozen=True, slots=True)
class Explained:
    """An error of the database for people: what is wrong, and what to do.

    `code`: the exit code of a command that it ends. `detail`, `remedy`: None if there is none.
    """

    code: Exit
    message: str
    detail: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        parts = [self.message]
        parts += [f"Detail: {self.detail}"] if self.detail else []
        parts += [f"Hint: {self.remedy}"] if self.remedy else []
        return "\n".join(parts)


def explained(error: psycopg.Error, surface: Surface) -> Explained:
    """Return `error` for people, without secrets. `surface`: where they read its remedy."""
    found = _explained(error)
    return found if found.remedy is None else replace(found, remedy=remedy(found.remedy, surface))


def _explained(error: psycopg.Error) -> Explained:
    if (why := identity.other_database_reason(error)) is not None:
        return other_database(why)
    if error.sqlstate == identity.OTHER_LEDGER:
        return Explained(Exit.OTHER_DATABASE, _primary(error), remedy=identity.RETURN)
    if isinstance(error, _OUT_OF_DATE):
        return Explained(Exit.SCHEMA, _primary(error), remedy=MIGRATE)
    given = masked(" ".join(str(error).split()))
    if (advice := refused_connection_remedy(error)) is not None:
        text = f"the server refused the connection: {given}"
        return Explained(Exit.USAGE, text, remedy=advice)
    if is_unreachable(error):
        advice = (
            "check CRONLEDGER_DATABASE_URL, or the ledgers file with --ledger, and check that "
            "PostgreSQL is running there"
        )
        return Explained(Exit.UNREACHABLE, f"the database is unreachable: {given}", remedy=advice)
    # The detail may quote a row with secrets: environments, headers, a lease_token.
    detail = error.diag.message_detail
    if detail is not None and detail.startswith(ROW):
        detail = None
    code = Exit.USAGE if isinstance(error, _USAGE) else Exit.FAILED
    return Explained(code, _primary(error), detail, error.diag.message_hint or _hint(error))


def other_database(why: str) -> Explained:
    """Return the error that this is not the ledger's own database, for people."""
    text = str(identity.OtherDatabaseError(why))
    return Explained(Exit.OTHER_DATABASE, text, remedy=identity.ACCEPT)


def _primary(error: psycopg.Error) -> str:
    text = error.diag.message_primary or masked(str(error)) or type(error).__name__
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"the server is a standby, or its transactions are read-only: {text}"
    return text


def _hint(error: psycopg.Error) -> str | None:
    match error:
        case errors.InsufficientPrivilege():
            return "use a role that has this right, or grant the right to the current role"
        case errors.LockNotAvailable() | errors.DeadlockDetected():
            return "another transaction holds a lock; try again"
        case errors.ReadOnlySqlTransaction():
            return PRIMARY
    return None
