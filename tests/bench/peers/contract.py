"""What a script of a peer does. `tests.bench.peers` runs it.

The scripts run in an environment of their own, which has no cronledger.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

import psycopg

from tests.bench.firing import Calls

T = TypeVar("T")
PAYLOAD = '{"n": 1}'
"""What each message contains, as those of cronledger in the same run."""


class Scheduler(ABC):
    """A tool that fires schedules. `c`: a connection in autocommit mode."""

    def __init__(self, dsn: str, c: psycopg.Connection) -> None:
        self.dsn = dsn
        self.c = c

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in an event loop of its own, and return its result."""
        return asyncio.run(coroutine)

    @abstractmethod
    async def install(self) -> None:
        """Create the tables of the tool, tuned as its documentation recommends."""

    @abstractmethod
    async def fire(self, calls: Calls) -> None:
        """Declare the schedules of `calls.firing`, and add each call to `calls` until it ends."""


class Peer(Scheduler):
    """A queue with one worker, which also fires schedules."""

    @abstractmethod
    async def enqueue(self, rows: int, batch: int) -> None:
        """Enqueue so many messages, `batch` with each call."""

    @abstractmethod
    async def work(self, concurrency: int, rows: int) -> float:
        """Execute the messages that wait, and return the seconds from the first to the last one."""

    def seconds(self, query: str) -> float:
        row = self.c.execute(query.encode()).fetchone()
        assert row is not None
        return float(row[0].total_seconds())
