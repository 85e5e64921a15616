"""`ledger` comes from cronledger.testing."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from kiosk.plugins import news, weather

from cronledger.testing import Ledger

pytest_plugins = ["cronledger.testing"]


@pytest.fixture
def monday(ledger: Ledger) -> Iterator[Ledger]:
    """A ledger in which it is half past seven in the evening of a Monday, in UTC."""
    ledger.travel(to=datetime(2030, 6, 3, 19, 30, tzinfo=UTC))
    yield ledger
    for left in (news.printed, news.wire, weather.measured):
        left.clear()
