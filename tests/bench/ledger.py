"""Ledgers for measurements: each in a database of its own, and verified at the end."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import psycopg
from psycopg.rows import dict_row

from tests.bench.product import OURS, Product
from tests.bench.runner import FUNCTION
from tests.bench.sample import Sample
from tests.bench.server import Server
from tests.bench.usage import Usage

Connection = psycopg.Connection[dict[str, Any]]

MESSAGES = 2000
"""Messages that one statement enqueues."""

_LATENESS = """
SELECT count(*) AS executions, count(DISTINCT due_at) AS seconds,
       (percentile_cont(0.5) WITHIN GROUP (ORDER BY ms))::float8 AS p50,
       (percentile_cont(0.99) WITHIN GROUP (ORDER BY ms))::float8 AS p99, max(ms)::float8 AS max
FROM (SELECT due_at, 1000 * extract(epoch FROM started_at - due_at) AS ms
      FROM cronledger.executions
      WHERE due_at > %(since)s AND due_at <= coalesce(%(until)s, 'infinity'::timestamptz)) x
"""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A migrated ledger: its DSN, a connection in autocommit mode, and its cronledger."""

    PAYLOAD: ClassVar[str] = '{"n": 1}'

    dsn: str
    connection: Connection
    product: Product

    def one(self, query: str, **params: object) -> dict[str, Any]:
        row = self.connection.execute(query.encode(), params).fetchone()
        assert row is not None
        return row

    def wait_for(self, condition: str, seconds: float = 600, **params: object) -> None:
        """Wait until an SQL condition is true. Raises TimeoutError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.one(f"SELECT ({condition}) AS done", **params)["done"]:
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.1)

    def lateness(self, since: datetime, until: datetime | None = None) -> dict[str, Any]:
        """Return quantiles of started_at - due_at in milliseconds, after `since`."""
        return self.one(_LATENESS, since=since, until=until)

    def declare(
        self, name: str, schedule: str | None, *, scopes: int = 1, **policies: object
    ) -> None:
        """Insert a job with so many scopes, whose handler does nothing."""
        values = {
            "name": name, "schedule": schedule, "handler": "python", "overlap": "allow",
            "target": f'{{"python": "{FUNCTION}"}}',
        } | policies  # fmt: skip
        if scopes > 1:
            values |= {"scope_kind": "tenant", "scopes": [f"s{n:06}" for n in range(scopes)]}
        places = ", ".join(f"%({column})s" for column in values)
        self.connection.execute(
            f"INSERT INTO cronledger.jobs ({', '.join(values)}) VALUES ({places})".encode(), values
        )

    def enqueue_many(self, job: str, rows: int) -> None:
        """Enqueue so many messages, 2,000 in each statement."""
        for first in range(0, rows, MESSAGES):
            self.connection.execute(
                "SELECT cronledger.enqueue_many(%s, %s::jsonb[])",
                [job, [self.PAYLOAD] * min(MESSAGES, rows - first)],
            )

    def enqueue_each(self, job: str, rows: int) -> None:
        """Call `enqueue` once for each message, in statements of 2,000 calls."""
        for first in range(0, rows, MESSAGES):
            self.connection.execute(
                "SELECT count(cronledger.enqueue(%s, payload => %s)) FROM generate_series(1, %s)",
                [job, self.PAYLOAD, min(MESSAGES, rows - first)],
            )

    def timed(self, rows: int, work: Callable[[], object]) -> Sample:
        """Return the sample of `work` in this process, which handles so many rows."""
        self.settle()
        before, began = Usage.until_now([os.getpid()], self.connection), time.monotonic()
        work()
        seconds = time.monotonic() - began
        return Sample.of(
            rows, seconds, Usage.until_now([os.getpid()], self.connection).since(before)
        )

    def settle(self) -> None:
        """Write what the preparation left in memory, so that it does not count as measured work."""
        self.connection.execute("VACUUM (ANALYZE) cronledger.schedules")
        self.connection.execute("CHECKPOINT")


@contextmanager
def new_ledger(server: Server, product: Product = OURS, *, verify: bool = True) -> Iterator[Ledger]:
    """Create a ledger in a database of its own, and drop it at the end.

    Unless `verify` is False, `cronledger verify` checks it at the end of a block that succeeds.
    Raises NotCleanError if there are violations.
    """
    with server.database() as dsn:
        product.migrate(dsn)
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as c:
            yield Ledger(dsn, c, product)
        if verify:
            product.verify(dsn)
