"""`doctor`: what is wrong with a ledger and around it, each with its remedy; it changes nothing."""

from collections.abc import Iterator, Sequence

import psycopg
from psycopg import errors

from cronledger.explain import doctor_ledger, doctor_server
from cronledger.explain.findings import PATIENCE, Check, DoctorContext, Finding
from cronledger.ledger.database import is_unreachable

__all__ = ["DoctorContext", "Finding", "examine"]


def examine(patient: DoctorContext) -> list[Finding]:
    """What every check found, in order; nothing about the ledger where its schema is not there.

    Raises psycopg.OperationalError when the database is away.
    """
    found = list(_looked(patient, (*doctor_server.CHECKS, doctor_ledger.schema)))
    if not any(one.check == "schema" and one.severity == "problem" for one in found):
        found += _looked(patient, doctor_ledger.CHECKS)
    return found


def _looked(patient: DoctorContext, checks: Sequence[Check]) -> Iterator[Finding]:
    for check in checks:
        try:
            yield from check(patient)
        except psycopg.Error as error:
            if is_unreachable(error):
                raise
            said = error.diag.message_primary or type(error).__name__
            yield Finding(check.__name__, "unchecked", said, _remedy(error, patient))


def _remedy(error: psycopg.Error, patient: DoctorContext) -> str:
    """Return how the check that raised `error` can be made."""
    match error:
        case errors.InsufficientPrivilege():
            role = patient.connection.info.user
            return f"run it as a member of cronledger_viewer: GRANT cronledger_viewer TO {role}"
        case errors.UndefinedTable() | errors.UndefinedFunction() | errors.UndefinedColumn():
            return "put right what `objects` or `schema` says first"
        case errors.QueryCanceled():
            return f"it took longer than {PATIENCE}; run it again when the server is less busy"
    return "look at the server's log"
