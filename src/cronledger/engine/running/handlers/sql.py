"""SQL handlers: a statement or a script, in one transaction with the write of its outcome.

Its effects happen exactly once, because its writes and its SUCCESS commit together.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import AsyncCursor
from psycopg.errors import Diagnostic

from cronledger.declaring.app import Context
from cronledger.engine.commands.progress_lines import LONGEST, progress_of
from cronledger.engine.running.attempt_spans import trace_context
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.rules import outcome
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import Job
from cronledger.rules.outcome import LeaseLost, Outcome, Result
from cronledger.rules.retry_filters import causes_of
from cronledger.tracing.interface import AttemptSpan

LONGEST_TIMEOUT_MS = 2**31 - 1
COUNTED = ("INSERT", "UPDATE", "DELETE", "MERGE")
QUERY_CANCELED = "57014"


@dataclass(frozen=True, slots=True)
class SqlHandlers:
    """Runs the SQL of a runner, in the ledger's own database."""

    tail_bytes: int

    async def run(
        self,
        job: Job,
        context: Context,
        transaction: ExecutionTransaction,
        span: AttemptSpan | None,
    ) -> Outcome:
        """Run the statement to its end. A cancellation cancels it in the server and propagates.

        With a `span`, a comment behind the statement names its trace context.

        `rows_affected` is the number of rows that INSERT, UPDATE, DELETE and MERGE changed, over
        all statements, or None without any of these. The output contains the notices and the tag of
        each statement. A notice that is a progress line reports progress instead, while the
        statement runs.
        """
        if (unread := context._upstreams.error) is not None:
            return outcome.failure(unread)
        output = _Output(self.tail_bytes if job.capture_output else 0, context)
        limit = job.run_timeout
        began = monotonic()
        try:
            async with transaction.open(context) as connection:
                connection.add_notice_handler(output.notice)
                await connection.execute(
                    "SELECT pg_catalog.set_config('statement_timeout', %s, true)",
                    [_milliseconds(limit)],
                )
                cursor = AsyncCursor(connection)
                # Without parameters it is sent as it is: it may be a script, and may contain %.
                text = job.target["sql"] + _comment(span)
                await cursor.execute(text.encode(), prepare=False)
                rows = await _affected(cursor, output)
            return await transaction.commit(outcome.success(Result(None, rows), output.text()))
        except LeaseLost as error:
            return outcome.failure(error, output.text())
        except psycopg.Error as error:
            if (
                limit is not None
                and error.sqlstate == QUERY_CANCELED
                and (monotonic() - began >= limit.total_seconds())
            ):
                return outcome.timed_out(limit, output.text(), end_known=True)
            return outcome.failed(
                ErrorCode.HANDLER_ERROR, explained(error), output.text(), causes=causes_of(error)
            )
        finally:
            await transaction.close()


def _comment(span: AttemptSpan | None) -> str:
    """Return the trace context as a comment in the format of sqlcommenter.

    It begins a line, because the statement may end with a comment. It comes last, so that the
    positions in the server's messages stay those of the statement.
    """
    fields = sorted(trace_context(span).items())
    pairs = ",".join(f"{name}='{quote(value, safe='')}'" for name, value in fields)
    return f"\n/*{pairs}*/" if pairs else ""


def _milliseconds(limit: timedelta | None) -> str:
    """Return `limit` as a setting of the server, where 0 means no limit."""
    if limit is None:
        return "0"
    return str(min(LONGEST_TIMEOUT_MS, round(limit.total_seconds() * 1000)))


class _Output:
    """The last `limit` characters of the server's messages, without the progress lines."""

    def __init__(self, limit: int, context: Context) -> None:
        self._limit = limit
        self._context = context
        self._text = ""

    def add(self, line: str) -> None:
        self._text = (self._text + line + "\n")[-self._limit :] if self._limit else ""

    def notice(self, notice: Diagnostic) -> None:
        message = notice.message_primary or ""
        if len(message) <= LONGEST and (report := progress_of(message.encode())) is not None:
            with suppress(LeaseLost):  # the commit notices it as well
                self._context.progress(**report)
        else:
            self.add(f"{notice.severity}: {message}")

    def text(self) -> str | None:
        return self._text or None


async def _affected(cursor: AsyncCursor[Any], output: _Output) -> int | None:
    total: int | None = None
    more: bool | None = True
    while more:
        tag = cursor.statusmessage or ""
        if tag:
            output.add(tag)
        if tag.startswith(COUNTED):
            total = (total or 0) + max(0, cursor.rowcount)
        more = cursor.nextset()
    return total


def explained(error: psycopg.Error) -> str:
    """Return the SQLSTATE, the class and the server's messages, or the text of a local error.

    The statement itself is not included, only the line that the server refers to.
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
