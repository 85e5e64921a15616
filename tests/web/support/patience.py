"""The limits of the page for what it reads. A busy machine exceeds them."""

from datetime import timedelta

import pytest

from cronledger.metrics import ledger_metrics, ledger_snapshot
from cronledger.web import examining, forecasting, reading, run_reports
from tests.waiting import PATIENCE

BEGIN = reading._BEGIN
"""How a transaction of the page begins, with the limit of the page for a statement."""
_LONG = f"{PATIENCE:.0f}s"


def lengthen(patched: pytest.MonkeyPatch) -> None:
    """Let statements of the page and of metrics take as long as a test waits."""
    settings = ledger_snapshot.SET
    limit = f"'{reading.STATEMENT_SECONDS}s'"
    of_metrics = f"'{ledger_snapshot.STATEMENT_SECONDS}s'".encode()
    assert BEGIN.count(limit) == settings.count(of_metrics) == 1
    patched.setattr(reading, "_BEGIN", BEGIN.replace(limit, f"'{_LONG}'"))
    patched.setattr(ledger_snapshot, "SET", settings.replace(of_metrics, f"'{_LONG}'".encode()))
    patched.setattr(reading, "PATIENCE", PATIENCE)
    patched.setattr(forecasting, "PATIENCE", PATIENCE)
    patched.setattr(run_reports, "PATIENCE", PATIENCE)
    patched.setattr(run_reports, "LOCK_TIMEOUT", timedelta(seconds=PATIENCE))
    patched.setattr(ledger_metrics, "PATIENCE", PATIENCE)
    patched.setattr(examining, "STATEMENT_SECONDS", round(PATIENCE))
