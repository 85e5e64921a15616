"""The state of the whole ledger at one instant, for its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from time import monotonic
from typing import Any

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import dict_row

from cronledger.ledger import queries
from cronledger.ledger.session_settings import COMMAND, set_expressions

Row = dict[str, Any]

PACKAGE = "cronledger.metrics"
STATEMENT_SECONDS = 5
"""A statement that takes longer is stopped, and the snapshot is not read."""
LOCK_SECONDS = 2
"""The longest wait for a migration that has locked a table."""
MOST_QUEUES = 100
"""Maximum number of queues, and of channels, with series of their own."""
MOST_READ = 10_000
"""Number of the newest rows among which breaches, failures and starts are counted."""
MOST_ALERTS = 1_000
"""Number of the newest alerts that are read."""
MOST_FAILURES = 1_000
"""Number of the newest failures among which failing scopes are searched for."""
MOST_SCOPES = 10
"""Number of scopes of a job whose history is read, in addition to those that fail."""

_SETTINGS = {
    **COMMAND,
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    # A generic plan would read all partitions.
    "plan_cache_mode": "force_custom_plan",
    # The planner underestimates the rows of a scope, and would sort all of its history.
    "enable_sort": "off",
}
_BEGIN = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
SET = f"SELECT {set_expressions(_SETTINGS, local=True)}".encode()
_DELIBERATE = frozenset({"paused", "queue_paused", "retired"})
"""Overdue jobs with these reasons do not come first, because a person decided them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values that one transaction read.

    `seconds`: the time that this took. `job_limit`: the maximum number of `jobs`. Each other field
    has the rows, or the only value, of one statement.
    """

    now: datetime
    seconds: float
    schema_version: int
    job_limit: int
    jobs: Sequence[Row]
    overdue: Sequence[Row]
    progress: Sequence[Row]
    queues: Sequence[Row]
    runners: Sequence[Row]
    violations: Sequence[Row]
    breaches: Sequence[Row]
    skips: Sequence[Row]
    undelivered: Sequence[Row]
    crashes: int
    failures: Sequence[Row]
    lateness: float | None
    horizon: datetime
    verification: Row | None


async def read_snapshot(
    connection: AsyncConnection[Any], schema: str, *, job_limit: int
) -> Snapshot:
    """Read a snapshot in one transaction that sees the ledger at one instant.

    Raises psycopg.Error, for example QueryCanceled after STATEMENT_SECONDS.
    """
    began = monotonic()
    async with (
        connection.transaction(),
        AsyncCursor[Row](connection, row_factory=dict_row) as cursor,
    ):
        await cursor.execute(_BEGIN)
        await cursor.execute(SET)

        async def read(name: str, **params: object) -> list[Row]:
            text = queries.text(name, schema, PACKAGE).encode()
            await cursor.execute(text, params or None, binary=True)
            return await cursor.fetchall()

        (head,) = await read("read_now")
        overdue = await read("count_overdue")
        jobs = await read(
            "list_jobs", overdue=_first_overdue(overdue, job_limit), max_jobs=job_limit,
            max_scopes=MOST_SCOPES, max_failures=MOST_FAILURES,
        )  # fmt: skip
        return Snapshot(
            now=head["now"],
            schema_version=head["schema_version"],
            job_limit=job_limit,
            jobs=jobs,
            overdue=overdue,
            progress=await read("read_progress"),
            queues=await read("list_queues", max_rows=MOST_QUEUES),
            runners=await read("count_runners"),
            violations=await read("count_violations"),
            breaches=await read("count_breaches", max_read=MOST_READ),
            skips=await read("count_skips"),
            undelivered=await read("list_undelivered", max_read=MOST_ALERTS, max_rows=MOST_QUEUES),
            crashes=(await read("count_crashes"))[0]["count"],
            failures=await read("count_failures", max_read=MOST_READ),
            lateness=(await read("read_lateness", max_read=MOST_READ))[0]["p99"],
            horizon=(await read("read_horizon"))[0]["horizon"],
            verification=next(iter(await read("read_verification")), None),
            seconds=monotonic() - began,
        )


def _first_overdue(overdue: Sequence[Row], most: int) -> list[str]:
    """Return the names of the jobs that are overdue for longest, unless somebody paused them."""
    longest: dict[str, float] = {}
    for row in overdue:
        if row["job_name"] is not None and row["reason"] not in _DELIBERATE:
            longest[row["job_name"]] = max(longest.get(row["job_name"], 0.0), row["seconds"])
    return sorted(longest, key=lambda name: -longest[name])[:most]


def version() -> str:
    """Return the version of this program."""
    return metadata.version("cronledger")
