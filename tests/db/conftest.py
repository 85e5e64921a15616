"""Fixtures of the database tests: a clock that travels, and the test's own view of the ledger."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.db.support.engine import Ledger
from tests.travel import Travel


@pytest.fixture
def travel(database_url: str) -> Iterator[Travel]:
    """The clock of `database_url`; it says half a minute past noon of tomorrow and goes on."""
    clock = Travel(database_url)
    tomorrow = (clock.now() + timedelta(days=1)).replace(hour=12, minute=0, second=30)
    clock.travel(to=tomorrow.replace(microsecond=0))
    yield clock
    clock.close()


@pytest.fixture
def ledger(database_url: str, travel: Travel) -> Iterator[Ledger]:
    """The database with its travelling clock."""
    made = Ledger(database_url, travel)
    yield made
    made.close()
