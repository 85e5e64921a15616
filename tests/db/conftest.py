"""Fixtures of the database tests: a clock that travels, and the test's own view of the ledger."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cronledger.ledger import senders
from tests.db.support.engine import Ledger
from tests.db.support.rows import Db, connected
from tests.db.support.spans import Spans
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
def db(database_url: str) -> Iterator[Db]:
    """A connection whose rows are dictionaries."""
    with connected(database_url) as connection:
        yield connection


@pytest.fixture
def other(database_url: str) -> Iterator[Db]:
    """Another such connection."""
    with connected(database_url) as connection:
        yield connection


@pytest.fixture
def whole(database_url: str) -> Iterator[Whole]:
    """Jobs of the test, and a replica that runs them by itself."""
    made = Whole(database_url)
    yield made
    made.close()


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
