"""Record the reports of another scheduler's runs that arrive in requests with a token."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import psycopg
from psycopg.rows import dict_row

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.senders import AsyncConnections
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

NAME = "cronledger web reports"
MOST_CONNECTIONS = 2
MOST_WAITING = 200
"""Reports with a valid token that one process receives or records at a time."""
MOST_LOOKUPS = 200
"""Reports with a new token that one process looks up at a time, or waits to look up."""
MOST_OF_JOB = 50
"""How many of them are of one job. Only one of them has a connection at a time."""
PATIENCE = 10.0
"""The time limit of the database for a token or a report, in seconds."""
LOCK_TIMEOUT = timedelta(seconds=1)
FAILED = "the run was reported as failed"


@dataclass(frozen=True, slots=True)
class Report:
    """One report. `exit_status` and `error` are those of a run that has ended."""

    has_ended: bool
    run_key: str | None
    exit_status: int | None = None
    error: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a report: accepted, refused, unknown or limited, from `report_by_token`."""

    outcome: str
    retry_after: int | None = None
    problem: str | None = None
    remedy: str | None = None


class TooManyLookupsError(Exception):
    """Too many tokens wait to be looked up."""


class DatabaseAwayError(Exception):
    """The database did not confirm a report, which its sender may send again."""


class RunReports:
    """Records reports. It has connections of its own, so that reports and people do not wait
    for each other.

    A token that this process does not know is looked up first, on another connection. So an
    invented token never takes a place, a job whose schedule is locked does not delay the reports of
    other jobs, and invented tokens do not keep out those that are known. `report_by_token` checks
    every token again. A token that was revoked after its look-up takes places until `record` finds
    it invalid, or until one of its requests does not arrive in full, which calls `forget`.
    """

    def __init__(self, access: Access, schema: str) -> None:
        access = replace(access, lock_timeout=LOCK_TIMEOUT)
        self._recorders = AsyncConnections(access, NAME, MOST_CONNECTIONS)
        self._lookups = AsyncConnections(access, NAME, 1)
        self._schema = schema
        self._away: set[str] = set()
        """The functions whose last call the database did not confirm."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._known: dict[str, str] = {}
        """The jobs of valid tokens, by the hash of the token. A ledger has few tokens."""
        self.waiting: Counter[str] = Counter()
        """Reports of each job that are received or recorded now."""
        self.lookups = 0
        """Tokens that are looked up now, or wait for it."""

    async def job_of(self, token: str) -> str | None:
        """Return the job of a token, or None if it is not valid.

        Raises DatabaseAwayError or TooManyLookupsError.
        """
        hashed = _hash(token)
        if (known := self._known.get(hashed)) is not None:
            return known
        if self.lookups >= MOST_LOOKUPS:
            raise TooManyLookupsError
        params = {"token_hash": hashed}
        self.lookups += 1
        try:
            row = await self._call(self._lookups, nullcontext(), "report_token_job", params)
        finally:
            self.lookups -= 1
        job: str | None = row["report_token_job"]
        if job is not None:
            self._known[hashed] = job
        return job

    def forget(self, token: str) -> None:
        """Look up this token again at its next request, because it may have been revoked."""
        self._known.pop(_hash(token), None)

    @contextmanager
    def place(self, job: str) -> Iterator[bool]:
        """Take a place for a report of this job. Yield False if there is none."""
        if self.waiting.total() >= MOST_WAITING or self.waiting[job] >= MOST_OF_JOB:
            yield False
            return
        self.waiting[job] += 1
        try:
            yield True
        finally:
            self.waiting[job] -= 1
            if not self.waiting[job]:
                del self.waiting[job]
                self._turns.pop(job, None)

    async def record(self, job: str, token: str, report: Report) -> Receipt:
        """Record a report for this job, which has a place. Raises DatabaseAwayError."""
        params: dict[str, Any] = {
            "token_hash": _hash(token), "has_ended": report.has_ended, "run_key": report.run_key,
            "exit_status": report.exit_status, "error": report.error, "output": report.output,
        }  # fmt: skip
        turn = self._turns.setdefault(job, asyncio.Lock())
        receipt = Receipt(**await self._call(self._recorders, turn, "report_by_token", params))
        if receipt.outcome == "unknown":
            self.forget(token)
        if receipt.problem is not None:
            log.warning("web_report_refused", error=receipt.problem)
        return receipt

    async def _call(
        self, connections: AsyncConnections, turn: AbstractAsyncContextManager[None], name: str,
        params: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        call = queries.function_call(name, tuple(params), self._schema)
        try:
            async with (
                asyncio.timeout(PATIENCE), turn, connections.lend() as connection,
                connections.begin(connection, 1),
            ):  # fmt: skip
                cursor = connection.cursor(row_factory=dict_row)
                row = await (await cursor.execute(call, params)).fetchone()
        except (psycopg.Error, OSError, TimeoutError) as error:
            if name not in self._away:  # otherwise anybody could fill the log
                log.warning("web_report_failed", error=str(error) or "it did not respond in time")
            self._away.add(name)
            raise DatabaseAwayError from error
        self._away.discard(name)
        assert row is not None
        return row

    async def close(self) -> None:
        """Close the connections."""
        await self._recorders.close()
        await self._lookups.close()


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()
