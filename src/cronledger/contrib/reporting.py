"""Report the runs of another scheduler from its program, in a thread.

No fault of the database delays or prevents the work. Reports wait in memory until the database can
be reached. When a process ends, its undelivered reports are lost.
"""

import logging
import os
import queue
import threading
import time
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

MOST_WAITING = 10_000
_CONNECT_SECONDS = 3
_PAUSE_SECONDS = 5.0
_IMPOSSIBLE = ("22", "23")
_log = logging.getLogger(__name__)


class _Report(NamedTuple):
    function: str
    at: float
    arguments: dict[str, Any]


class Reporter:
    """Delivers reports in their order. `source`: the scheduler that starts the runs."""

    def __init__(self, url: str, schema: str, source: str) -> None:
        self._url, self._schema, self._source = url, schema, source
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
                "a report of job %s is lost: %s are waiting", arguments["job"], MOST_WAITING
            )

    def _deliver(self, waiting: "queue.Queue[_Report]") -> None:
        while True:
            report = waiting.get()
            while not self._send(report):
                time.sleep(_PAUSE_SECONDS)

    def _send(self, report: _Report) -> bool:
        """Return whether the report is done: the ledger has it, or will never accept it."""
        at = "started_at" if report.function == "observe_start" else "ended_at"
        given = {**report.arguments, "source": self._source}
        statement = sql.SQL(
            "SELECT {schema}.{}({} => {schema}.db_clock() - make_interval(secs => %s), {})"
        ).format(
            sql.Identifier(report.function), sql.Identifier(at),
            sql.SQL(", ").join(sql.SQL("{} => %s").format(sql.Identifier(name)) for name in given),
            schema=sql.Identifier(self._schema),
        )  # fmt: skip
        try:
            with psycopg.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS, prepare_threshold=None
            ) as connection:
                connection.execute(statement, [time.monotonic() - report.at, *given.values()])
        except psycopg.Error as error:
            _log.warning("job %s: %s", given["job"], str(error).partition("\n")[0])
            return (error.sqlstate or "").startswith(_IMPOSSIBLE)
        return True
