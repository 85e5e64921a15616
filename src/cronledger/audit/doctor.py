"""`doctor`: what is wrong with a ledger and around it, each with its remedy; it changes nothing."""

from collections.abc import Iterator, Sequence

import psycopg

from cronledger.audit import doctor_ledger, doctor_server
from cronledger.audit.findings import Check, Finding, Patient
from cronledger.ledger.database import is_away

__all__ = ["Finding", "Patient", "examine"]


def examine(patient: Patient) -> list[Finding]:
    """What every check found, in order; nothing about the ledger where its schema is not there.

    Raises psycopg.OperationalError when the database is away.
    """
    found = list(_looked(patient, doctor_server.CHECKS))
    found += _looked(patient, [doctor_ledger.schema])
    if found[-1].severity != "problem":
        found += _looked(patient, doctor_ledger.CHECKS)
    return found


def _looked(patient: Patient, checks: Sequence[Check]) -> Iterator[Finding]:
    for check in checks:
        try:
            yield from check(patient)
        except psycopg.Error as error:
            if is_away(error):
                raise
            said = error.diag.message_primary or type(error).__name__
            remedy = "ask as a role that may: cronledger_runner and pg_read_all_stats, or the owner"
            yield Finding(check.__name__, "warning", f"could not be looked at: {said}", remedy)
