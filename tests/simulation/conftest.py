"""One prepared database for all simulations of a worker."""

from collections.abc import Iterator

import pytest

from tests.database import Databases
from tests.simulation.support.backend import Database, opened
from tests.simulation.support.run import prepare


@pytest.fixture(scope="session")
def simulated(databases: Databases, template_database: str) -> Iterator[Database]:
    """A ledger with the simulator's clock; each simulation clears it."""
    name = databases.create(template_database)
    prepare(databases.url(name))
    with opened(databases.url(name)) as database:
        yield database
    databases.drop(name)
