"""Fixtures of the cluster tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster


@pytest.fixture
def cluster(database_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """Replicas on a fresh database; what they logged is printed when the test fails."""
    made = Cluster(database_url, tmp_path)
    try:
        yield made
    finally:
        made.close()
        print(made.report())
