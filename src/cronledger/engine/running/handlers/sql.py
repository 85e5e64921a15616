"""SQL: a statement or a script, in one transaction with its own terminal write.

Exactly once by construction: what it wrote and its SUCCESS are committed together, or neither is.
"""

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
from psycopg import AsyncCursor
from psycopg.errors import Diagnostic

from cronledger.app import Context
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.rules import outcome
from cronledger.rules.model import Job
from cronledger.rules.outcome import ErrorCode, LeaseLost, Outcome, Result

LONGEST_TIMEOUT_MS = 2**31 - 1
COUNTED = ("INSERT", "UPDATE", "DELETE", "MERGE")
QUERY_CANCELED = "57014"


@dataclass(frozen=True, slots=True)
class SqlHandlers:
    """Runs the SQL of a runner, in the ledger's own database."""

    tail_bytes: int

    async def run(self, job: Job, context: Context, transaction: ExecutionTransaction) -> Outcome:
        """Run the statement to its end; cancelling cancels it in the server and propagates.

        `rows_affected` counts what INSERT, UPDATE, DELETE and MERGE touched, over all statements;
        None without any. The output has the notices and each statement's tag.
        """
        said = _Said(self.tail_bytes)
        limit = job.run_timeout
        began = monotonic()
        try:
            async with transaction as connection:
                connection.add_notice_handler(said.notice)
                await connection.execute(
                    "SELECT pg_catalog.set_config('statement_timeout', %s, true)",
                    [_milliseconds(limit)],
                )
                cursor = AsyncCursor(connection)
                # Without parameters it goes out as it is: many statements, and % is no mark.
                await cursor.execute(job.target["statement"].encode(), prepare=False)
                rows = await _affected(cursor, said)
            return await transaction.commit(outcome.success(Result(None, rows), said.text()))
        except LeaseLost as error:
            return outcome.failure(error, said.text())
        except psycopg.Error as error:
            if (
                limit is not None
                and error.sqlstate == QUERY_CANCELED
                and (monotonic() - began >= limit.total_seconds())
            ):
                return outcome.timed_out(limit, said.text(), end_known=True)
            return outcome.failed(ErrorCode.HANDLER_ERROR, explained(error), said.text())
        finally:
            await transaction.close()


def _milliseconds(limit: timedelta | None) -> str:
    """Return `limit` as a setting of the server, where 0 means no limit."""
    if limit is None:
        return "0"
    return str(min(LONGEST_TIMEOUT_MS, round(limit.total_seconds() * 1000)))


class _Said:
    """The last of what the server said, in characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = ""

    def add(self, line: str) -> None:
        self._text = (self._text + line + "\n")[-self._limit :]

    def notice(self, notice: Diagnostic) -> None:
        self.add(f"{notice.severity}: {notice.message_primary}")

    def text(self) -> str | None:
        return self._text or None


async def _affected(cursor: AsyncCursor[Any], said: _Said) -> int | None:
    total: int | None = None
    more: bool | None = True
    while more:
        tag = cursor.statusmessage or ""
        if tag:
            said.add(tag)
        if tag.startswith(COUNTED):
            total = (total or 0) + max(0, cursor.rowcount)
        more = cursor.nextset()
    return total


def explained(error: psycopg.Error) -> str:
    """SQLSTATE, class and what the server said of it; without a server's answer, the error's text.

    The statement itself is not in it, only the line that the server points at.
    """
    diag = error.diag
    state = f"SQLSTATE {error.sqlstate} " if error.sqlstate else ""
    lines = [f"{state}{type(error).__name__}: {diag.message_primary or error}"]
    for name, part in (
        ("DETAIL", diag.message_detail),
        ("HINT", diag.message_hint),
        ("CONTEXT", diag.context),
        ("POSITION", diag.statement_position),
    ):
        if part:
            lines.append(f"{name}: {part}")
    return "\n".join(lines)
