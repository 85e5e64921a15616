"""Fixtures of the database tests: a clock that travels, and the test's own view of the ledger."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.rows import Db, connected
from tests.db.support.sites import Site, serving
from tests.db.support.whole_replica import Whole


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """The ledger of `database_url`; its clock shows half a minute past noon of tomorrow."""
    made = Ledger(database_url)
    tomorrow = (made.now() + timedelta(days=1)).replace(hour=12, minute=0, second=30)
    made.travel(to=tomorrow.replace(microsecond=0))
    yield made
    made.close()


@pytest.fixture
async def one(ledger: Ledger) -> AsyncIterator[Runner]:
    """The runner `r1`, which a test drives by hand."""
    async with runners(ledger.url, {}) as (made,):
        yield made


@pytest.fixture
def other(database_url: str) -> Iterator[Db]:
    """Another connection like `db`."""
    with connected(database_url) as connection:
        yield connection


@pytest.fixture
def whole(database_url: str) -> Iterator[Whole]:
    """Jobs of the test, and a replica that runs them by itself."""
    made = Whole(database_url)
    yield made
    made.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A server that answers as the test says."""
    made = Site()
    async with serving(made.handle) as made.url:
        yield made
