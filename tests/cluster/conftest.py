"""Fixtures of the cluster tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cronledger.testing import Ledger
from tests.cluster.support.harness import Cluster


@pytest.fixture
def cluster(database_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """Replicas on a fresh database; what they logged is printed when the test fails."""
    made = Cluster(database_url, tmp_path)
    try:
        yield made
    finally:
        made.close()
        print(made.report())


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """What users get from cronledger.testing, on a database of this run."""
    made = Ledger(database_url)
    yield made
    made.close()
