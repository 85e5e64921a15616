"""Errors of the database: which can be retried, and what an operator can do about the others."""

import re

import psycopg
from psycopg import errors

RETRYABLE_ERRORS = (
    errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable,
    errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout,
)  # fmt: skip
"""Another transaction was in conflict, or this client was silent. The whole step is retried."""

BAD_VALUE_ERRORS = (errors.DataError, errors.IntegrityError)
"""SQLSTATE classes 22 and 23: a value of one row, not the database, is at fault."""

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
