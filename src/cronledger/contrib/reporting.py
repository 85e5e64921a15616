"""Report the runs of another scheduler from its program, in a thread.

No fault of the database delays or prevents the work. Reports wait in memory until the database can
be reached. When a process ends, its undelivered reports are lost, unless it calls `flush`.
"""

import logging
import os
import queue
import threading
import time
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, sql

from cronledger.ledger.database_errors import RETRYABLE_ERRORS, is_unreachable
from cronledger.observing.delivery import LIMITS, Target

MOST_WAITING = 10_000
KEPT_SECONDS = 86_400.0
"""A report that is older is dropped at its next failure."""
FLUSH_SECONDS = 5.0
_PAUSE_SECONDS = 5.0
_PASSING = (*RETRYABLE_ERRORS, errors.QueryCanceled, errors.ReadOnlySqlTransaction)
_NO_RESOURCES = "53"
_log = logging.getLogger(__name__)


class _Report(NamedTuple):
    function: str
    at: float
    arguments: dict[str, Any]


class Reporter:
    """Delivers reports in their order. `source`: the scheduler that starts the runs."""

    def __init__(self, url: str, schema: str, source: str) -> None:
        self._target = Target(url, schema, _log.warning)
        self._source = source
        self._lock = threading.Lock()
        self._process: int | None = None
        self._waiting: queue.Queue[_Report] = queue.Queue(MOST_WAITING)

    def started(self, job: str, run_key: str) -> None:
        """Report the start of a run."""
        self._put("observe_start", {"job": job, "run_key": run_key})

    def ended(self, job: str, run_key: str, error: str | None) -> None:
        """Report the end of a run. `error`: why it failed; None: it succeeded."""
        self._put("observe_end", {"job": job, "run_key": run_key, "error": error})

    def _put(self, function: str, arguments: dict[str, Any]) -> None:
        with self._lock:
            if self._process != os.getpid():  # a worker forks after its program was loaded
                self._process, self._waiting = os.getpid(), queue.Queue(MOST_WAITING)
                threading.Thread(target=self._deliver, args=[self._waiting], daemon=True).start()
        try:
            self._waiting.put_nowait(_Report(function, time.monotonic(), arguments))
        except queue.Full:
            _log.warning(
                "a report of job %r is lost: %s are waiting", arguments["job"], MOST_WAITING
            )

    def flush(self) -> None:
        """Wait a moment until the reports of this process are delivered."""
        if self._process == os.getpid():
            waiting = self._waiting
            with waiting.all_tasks_done:
                waiting.all_tasks_done.wait_for(lambda: not waiting.unfinished_tasks, FLUSH_SECONDS)

    def _deliver(self, waiting: "queue.Queue[_Report]") -> None:
        while True:
            self._settle(waiting.get())
            waiting.task_done()

    def _settle(self, report: _Report) -> None:
        """Send a report until the ledger has it. Drop it after an error that does not pass."""
        waits = False
        while True:
            try:
                self._send(report)
                return
            except Exception as error:  # noqa: BLE001 - the thread delivers the later reports too
                job = report.arguments["job"]
                reason = str(error).partition("\n")[0] or type(error).__name__
                if not _may_pass(error) or time.monotonic() - report.at > KEPT_SECONDS:
                    _log.error("a report of job %r is lost: %s", job, reason)
                    return
                if not waits:
                    _log.warning("a report of job %r waits: %s", job, reason)
            waits = True
            time.sleep(_PAUSE_SECONDS)

    def _send(self, report: _Report) -> None:
        at = "started_at" if report.function == "observe_start" else "ended_at"
        given = {**report.arguments, "source": self._source}
        statement = sql.SQL(
            "SELECT {schema}.{}({} => {schema}.db_clock() - make_interval(secs => %s), {})"
        ).format(
            sql.Identifier(report.function), sql.Identifier(at),
            sql.SQL(", ").join(sql.SQL("{} => %s").format(sql.Identifier(name)) for name in given),
            schema=sql.Identifier(self._target.schema),
        )  # fmt: skip
        with self._target.connected() as connection, connection.transaction():
            connection.execute(f"SELECT {LIMITS}".encode())
            connection.execute(statement, [time.monotonic() - report.at, *given.values()])


def _may_pass(error: Exception) -> bool:
    if is_unreachable(error) or isinstance(error, _PASSING):
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_NO_RESOURCES)
