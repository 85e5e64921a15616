"""Record the reports of another scheduler's runs that arrive in requests with a token."""

import asyncio
from dataclasses import dataclass
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
MOST_WAITING = 50
"""Reports that one process receives or records at a time."""
PATIENCE = 10.0
"""The time limit of the database for recording a report, in seconds."""
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


class DatabaseAwayError(Exception):
    """The database did not confirm a report, which its sender may send again."""


class RunReports:
    """Records reports. It has connections of its own, so that reports and people do not wait
    for each other.
    """

    def __init__(self, access: Access, schema: str) -> None:
        self._connections = AsyncConnections(access, NAME, MOST_CONNECTIONS)
        self._schema = schema
        self._is_away = False
        self.waiting = 0
        """Reports that are received or recorded now."""

    async def record(self, token: str, report: Report) -> Receipt:
        """Record a report. Raises DatabaseAwayError."""
        try:
            async with asyncio.timeout(PATIENCE):
                receipt = await self._call(sha256(token.encode()).hexdigest(), report)
        except (psycopg.Error, OSError, TimeoutError) as error:
            if not self._is_away:  # otherwise anybody could fill the log
                log.warning("web_report_failed", error=str(error) or "it did not respond in time")
            self._is_away = True
            raise DatabaseAwayError from error
        self._is_away = False
        if receipt.problem is not None:
            log.warning("web_report_refused", error=receipt.problem)
        return receipt

    async def _call(self, token_hash: str, report: Report) -> Receipt:
        params: dict[str, Any] = {
            "token_hash": token_hash, "has_ended": report.has_ended, "run_key": report.run_key,
            "exit_status": report.exit_status, "error": report.error, "output": report.output,
        }  # fmt: skip
        call = queries.function_call("report_by_token", tuple(params), self._schema)
        async with self._connections.lend() as connection, self._connections.begin(connection, 1):
            cursor = connection.cursor(row_factory=dict_row)
            row = await (await cursor.execute(call, params)).fetchone()
        assert row is not None
        return Receipt(**row)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()
