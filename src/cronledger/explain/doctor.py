"""`doctor`: check a ledger and its surroundings, and name a remedy for each problem."""

from collections.abc import Iterator, Sequence

import psycopg
from psycopg import errors

from cronledger.explain import doctor_ledger, doctor_server
from cronledger.explain.findings import Check, DoctorContext, Finding
from cronledger.ledger.database_errors import is_unreachable

__all__ = ["DoctorContext", "Finding", "examine"]

OF_REPLICAS = (doctor_server.pooler, doctor_server.listening, doctor_ledger.roles)
"""Checks of the connection string and of the role of replicas."""


def examine(context: DoctorContext, *, of_replicas: bool = True) -> list[Finding]:
    """Return the findings of all checks, in order. Without its schema, the ledger is not checked.

    `of_replicas` False: the connection is not that of a replica, so OF_REPLICAS are `unchecked`.

    Raises psycopg.OperationalError if the database is unreachable.
    """
    left_out = () if of_replicas else OF_REPLICAS
    found = list(_findings(context, (*doctor_server.CHECKS, doctor_ledger.schema), left_out))
    if not any(one.check == "schema" and one.severity == "problem" for one in found):
        found += _findings(context, doctor_ledger.CHECKS, left_out)
    return found


def _findings(
    context: DoctorContext, checks: Sequence[Check], left_out: Sequence[Check]
) -> Iterator[Finding]:
    for check in checks:
        if check in left_out:
            text = "depends on the connection string and the role of the replicas"
            yield Finding(check.__name__, "unchecked", text, "run `cronledger doctor` with these")
            continue
        try:
            yield from check(context)
        except psycopg.Error as error:
            if is_unreachable(error):
                raise
            reason = error.diag.message_primary or type(error).__name__
            yield Finding(check.__name__, "unchecked", reason, _remedy(error, context))


def _remedy(error: psycopg.Error, context: DoctorContext) -> str:
    """Return a remedy with which the check that raised `error` can be made."""
    match error:
        case errors.InsufficientPrivilege():
            role = context.connection.info.user
            return f"run doctor as a member of cronledger_viewer: GRANT cronledger_viewer TO {role}"
        case errors.UndefinedTable() | errors.UndefinedFunction() | errors.UndefinedColumn():
            return "first correct the problems of `objects` or `schema`"
        case errors.QueryCanceled():
            return (
                f"the check took longer than {context.patience}; "
                "run it again when the server is less busy"
            )
    return "see the log of the server"
