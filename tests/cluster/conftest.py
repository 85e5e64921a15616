"""Fixtures of the cluster tests."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


async def eventually(what: str, look: Callable[[], Any], seconds: float = 90) -> Any:
    """What `look` answers as soon as it is true. It is called in a thread: where a replica lives on
    this event loop, nothing may block it for a lock that the replica holds."""
    give_up_at = time.monotonic() + seconds
    while not (found := await asyncio.to_thread(look)):
        assert time.monotonic() < give_up_at, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return found
