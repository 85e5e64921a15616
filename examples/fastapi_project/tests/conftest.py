"""`ledger` and `client` come from cronledger.testing."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from cronledger.testing import Ledger

pytest_plugins = ["cronledger.testing"]
SCHEMA = Path(__file__).parents[1] / "invoicing" / "schema.sql"


@pytest.fixture
def books(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger with the tables of the service, on the evening before the clocks change."""
    with psycopg.connect(ledger.url) as conn:
        conn.execute(SCHEMA.read_bytes())
    ledger.travel(to=datetime(2027, 3, 27, 20, tzinfo=UTC))
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", ledger.url)
    return ledger
