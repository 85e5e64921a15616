"""Fixtures of all suites. A test that asks for no database starts no server."""

from collections.abc import Iterator

import pytest

from tests.database import Databases, server


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[Databases]:
    """This worker's share in the run's server, and the means to make databases there."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    with server(shared) as dsn, Databases(dsn, testrun_uid) as made:
        yield made


@pytest.fixture(scope="session")
def template_database(databases: Databases) -> str:
    """The name of a migrated database to clone; nobody can connect to it."""
    return databases.template()


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """The DSN of a fresh database with the schema `cronledger` in it."""
    # Not `template_database`: pytest keeps what a session's fixture raised for all tests to come.
    name = databases.create(databases.template())
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """The DSN of a fresh database with nothing in it."""
    name = databases.create()
    yield databases.url(name)
    databases.drop(name)
