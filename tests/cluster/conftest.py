"""Fixtures of the cluster tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cronledger.testing import Ledger
from tests.cluster.support.harness import Cluster, cluster_on


@pytest.fixture
def cluster(database_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """Replicas on a fresh database."""
    with cluster_on(database_url, tmp_path) as made:
        yield made


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """What users get from cronledger.testing, on a database of this run."""
    made = Ledger(database_url)
    yield made
    made.close()
