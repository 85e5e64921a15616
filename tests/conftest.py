"""Fixtures of all suites. A test that asks for no database starts no server."""

import gc
import logging
import os
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cronledger.engine.running import capturing
from cronledger.ledger import senders
from cronledger.logs.loggers import Logger
from tests.database import Databases, server
from tests.db.support.rows import Db, connected
from tests.spans import Spans

# Hypothesis limits the time of each example by default, and a busy machine exceeds any limit.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Collect no garbage while tests are collected, which makes nothing but objects that stay."""
    # The controller of pytest-xdist collects no tests, so nothing would undo this there.
    if session.config.getoption("dist", "no") == "no":
        gc.disable()


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of every garbage collection from now on."""
    gc.collect()
    gc.freeze()
    gc.enable()


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


@pytest.fixture(autouse=True)
def unconfigured_logs() -> Iterator[None]:
    """Undo what a test set for all loggers of this process, as `logs.output.configure` does."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("cronledger", "psycopg"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    if structlog.is_configured():
        structlog.reset_defaults()
        for name, module in tuple(sys.modules.items()):
            log = getattr(module, "log", None)
            if name.startswith("cronledger.") and isinstance(log, Logger):
                # If cached on first use, it would keep the configuration of its first line.
                vars(log._structured).pop("bind", None)


@pytest.fixture(autouse=True)
def uncaptured_streams() -> Iterator[None]:
    """Undo the capture of output by replicas that the test has abandoned."""
    users = capturing._users
    yield
    while capturing._users > users:
        capturing.uninstall()


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CRONLEDGER_* variable is set, except those of the test run itself."""
    for name in list(os.environ):
        if name.upper().startswith("CRONLEDGER_") and not name.startswith("CRONLEDGER_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def db(database_url: str) -> Iterator[Db]:
    """A connection whose rows are dictionaries."""
    with connected(database_url) as connection:
        yield connection


@pytest.fixture
def database_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """The DSN of a database with a fresh schema `cronledger` in it.

    It is the worker's, or a clone for this test alone: with the marker `own_database`, and for
    tests that start processes. A killed process may leave one behind that connects later.
    """
    fixtures = set(request.fixturenames)
    in_process = "cluster" not in request.path.parts or fixtures & {"ledger", "world"}
    processes = not in_process or fixtures & {"cluster", "start", "run"}
    if not processes and request.node.get_closest_marker("own_database") is None:
        with databases.lend() as name:
            yield databases.url(name)
        return
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


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """Return what keeps the spans of this process, which can have one provider only."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Return the spans of a test, for which tracing is on."""
    exporter.clear()
    monkeypatch.setenv("CRONLEDGER_TRACING", "true")
    senders.default_tracing.cache_clear()
    yield Spans(exporter)
    senders.default_tracing.cache_clear()
