"""Runs of `verify` that people start on the page: one at a time, in a thread of this process.

A run needs the acting login, because it is recorded. It reads and records on two connections of its
own, so that neither the event loop nor the pools of the page wait for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from cronledger.audit.compare import Violation
from cronledger.audit.recording import Recording
from cronledger.audit.verify import Report, verify
from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import explained
from cronledger.ledger.refusals import refusals
from cronledger.logs.loggers import get_logger
from cronledger.rules.remedies import Surface
from cronledger.web.reading import PACKAGE
from cronledger.web.stoppable import StoppableThread, StoppedError

log = get_logger(__name__)

NAME = "cronledger web verifies"
MOST_KEPT = 100
"""Violations of the last run that the page keeps. `cronledger verify` prints all of them."""


class BusyError(Exception):
    """A run of `verify` is under way. The text says where."""


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A request to check this job (None: all jobs) from this plan_time on (None: all history)."""

    job: str | None
    since: datetime | None
    requested_by: str


@dataclass(slots=True)
class Run:
    """A run that this process made or makes. `id` None: its beginning is not recorded yet.

    `checked` of `schedules` have been compared. `kept`: the first violations that are not accepted.
    `problem`: why it failed. `is_end_lost`: it has ended, and that could not be recorded.
    """

    request: VerifyRequest
    id: int | None = None
    checked: int = 0
    schedules: int = 0
    violations: int = 0
    kept: list[Violation] = field(default_factory=list)
    has_ended: bool = False
    problem: str | None = None
    is_end_lost: bool = False

    @property
    def is_under_way(self) -> bool:
        """Return whether it is recorded, and has not ended."""
        return self.id is not None and not self.has_ended


class Verifier:
    """Starts runs, and remembers the last one.

    At most one run at a time is made on the pages of a ledger; behind a pooler in transaction mode,
    at most one by each process.
    """

    def __init__(self, access: Access, schema: str, ended: Callable[[], None]) -> None:
        """`ended` is called in the event loop when a run has ended."""
        self._access = access
        self._schema = schema
        self._notify = ended
        self._thread: StoppableThread | None = None
        self._started: Run | None = None
        self.run: Run | None = None

    async def start(self, request: VerifyRequest) -> int:
        """Record the beginning of a run, and return its id. The run goes on in a thread.

        Raises BusyError, LedgerError if the acting login may not record it, and psycopg.Error.
        """
        if self._started is not None and not self._started.has_ended:
            raise BusyError("This process runs verify already.")
        run, begun = Run(request), Future[int]()
        self._started = run
        loop = asyncio.get_running_loop()

        def work(thread: StoppableThread) -> None:
            try:
                self._run(thread, run, begun)
            finally:
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(self._ended, run)

        self._thread = StoppableThread("cronledger-verify", work)
        try:
            return await asyncio.shield(asyncio.wrap_future(begun))
        except Exception:
            run.has_ended = True
            raise

    def _ended(self, run: Run) -> None:
        run.has_ended = True
        self._notify()

    async def close(self) -> None:
        """Interrupt the run that is under way, and record that."""
        if self._thread is not None:
            await self._thread.stop()

    def _run(self, thread: StoppableThread, run: Run, begun: "Future[int]") -> None:
        try:
            turn = f"{NAME} {self._schema}"
            with self._access.connect(turn) as recorder, self._access.connect(NAME) as reader:
                recording = self._begin(recorder, run.request)
                run.id, self.run = recording.run, run
                begun.set_result(recording.run)
                self._audit(thread, run, recording, reader)
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
                return
            shown = (
                explained(error, Surface.PAGE) if isinstance(error, psycopg.Error) else repr(error)
            )
            run.problem = str(shown)
            log.warning("web_verify_failed", run=run.id, error=run.problem, exc_info=error)

    def _begin(self, connection: psycopg.Connection[Any], request: VerifyRequest) -> Recording:
        if self._access.direct:  # behind a pooler, the session would outlive the run
            statement = queries.text("take_verify_turn", self._schema, PACKAGE).encode()
            if connection.execute(statement).fetchone() != (True,):
                raise BusyError("Another process of the page runs verify already.")
        with refusals(Surface.PAGE):
            return Recording.begin(
                connection, self._schema, job=request.job, from_=request.since, to=None,
                requested_by=request.requested_by,
            )  # fmt: skip

    def _audit(
        self, thread: StoppableThread, run: Run, recording: Recording,
        connection: psycopg.Connection[Any],
    ) -> None:  # fmt: skip
        """Check, and record the end: `finished`, or `interrupted` by a stop or an error."""

        def progress(checked: int, schedules: int) -> None:
            run.checked, run.schedules = checked, schedules
            thread.check()

        report = verify(
            connection, schema=self._schema, jobs=_jobs(run.request), from_=run.request.since,
            progress=progress,
        )  # fmt: skip
        try:
            with thread.cancellable(connection):
                self._read(thread, run, report)
        except Exception as error:
            with suppress(psycopg.Error):
                report.close()
            reason = StoppedError() if thread.is_stopping else error
            run.is_end_lost = not recording.interrupt(report, reason)
            if not thread.is_stopping:
                raise
        else:
            try:
                recording.finish(report)
            except psycopg.Error:
                run.is_end_lost = True
                raise

    @staticmethod
    def _read(thread: StoppableThread, run: Run, report: Report) -> None:
        for violation in report:
            thread.check()
            if violation.accepted is None:
                run.violations += 1
                if len(run.kept) < MOST_KEPT:
                    run.kept.append(violation)


def _jobs(request: VerifyRequest) -> Sequence[str] | None:
    return None if request.job is None else [request.job]
