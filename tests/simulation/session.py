"""The server's side of a connection. It goes on whatever becomes of its client: a COMMIT under way
lands after the client's death, or seconds after its connection broke.
"""

from collections import deque
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from tests.simulation.backend import PLAIN, Backend
from tests.simulation.loop import Process
from tests.simulation.request import Request

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.network import Connection


class Session:
    """The server's side of one connection. Holds a backend while it is in a transaction."""

    def __init__(self, cluster: "Cluster", process: Process, client: "Connection") -> None:
        self._cluster = cluster
        self._process = process
        self._client = client
        self._queue: deque[Request] = deque()
        self._unanswered: dict[Request, None] = {}
        self._serving: Request | None = None
        self._scheduled = False
        self._backend: Backend | None = None
        self._aborted = False
        self._gone = False  # the server has noticed that its client is gone
        self._last_answer = 0.0
        self._lock_timeout = 5.0
        self._waits = 0
        self.who = process.runner
        self.broken: psycopg.Error | None = None

    # -- the client's end -----------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self._backend is not None

    @property
    def of_client(self) -> bool:
        """Of an operator or another program, and of no replica."""
        return self._process.name.startswith("client")

    def of(self, process: Process) -> bool:
        return self._process is process

    def receive(self, request: Request) -> None:
        self._queue.append(request)
        self._unanswered[request] = None
        if not self._scheduled and self._serving is None:
            self._scheduled = True
            self._cluster.loop.after(self._cluster.chance.way(), self._serve)

    def end_pipeline(self) -> None:
        self._aborted = False

    def interrupt(self) -> None:
        """The client asks the server to cancel the statement that waits for a lock."""
        if self._serving is not None and self._backend is not None and self._backend.busy:
            self._cluster.unwait(self)
            self._backend.cancel()
            self._completed()

    def break_off(self, why: str, notice_after: float | None = None) -> None:
        """The client has lost the connection; the server notices at once or later, and rolls
        back."""
        if self.broken is not None:
            return
        self.broken = psycopg.OperationalError(why)
        for request in tuple(self._unanswered):
            self._answer(request, self.broken)
        self._cluster.loop.after(
            self._cluster.chance.notice() if notice_after is None else notice_after, self.end
        )

    def _answer(self, request: Request, error: psycopg.Error | None) -> None:
        self._unanswered.pop(request, None)
        if not request.answer.done():
            request.error = error or request.error
            request.answer.set_result(request)

    # -- the server's end -----------------------------------------------------------------------

    def _serve(self) -> None:
        self._scheduled = False
        if self._gone or not self._queue:
            return
        request = self._queue.popleft()
        self._serving = request
        self._cluster.faults.before(self._client, request)
        if self.gone_or_broken():
            return
        if self.broken is not None and request.query == b"BEGIN":
            self._serving = None
            return
        if self._aborted and request.query != b"ROLLBACK":
            request.error = errors.PipelineAborted("an earlier statement of the pipeline failed")
            self._deliver(request)
            return
        self._run(request)

    def gone_or_broken(self) -> bool:
        """Whether it broke under the statement that was to be served."""
        return self._serving is None

    def _run(self, request: Request) -> None:
        if self._backend is None:
            if request.query in PLAIN[1:]:
                self._deliver(request)
                return
            self._backend = self._cluster.database.take()
        backend = self._backend
        if not self._note_lock_timeout(request) and request.query not in PLAIN:
            backend.set_clock(self._cluster.now(), self.who)
        if backend.begin(
            request.query, request.params, request.row_factory
        ) or self._cluster.database.settle(backend):
            self._completed()
        else:
            self._cluster.wait(self, request.label)
            self._waits += 1
            waits = self._waits
            self._cluster.loop.after(self._lock_timeout, lambda: self._lock_timed_out(waits))

    def _note_lock_timeout(self, request: Request) -> bool:
        """Whether it is the statement that begins a step; it reads no clock."""
        if b"set_config('lock_timeout', %s" not in request.query:
            return False
        self._lock_timeout = int(request.params[0]) / 1000
        return True

    def _lock_timed_out(self, waits: int) -> None:
        backend = self._backend
        if self._serving is None or backend is None or not backend.busy or waits != self._waits:
            return
        self._cluster.unwait(self)
        backend.cancel()
        if isinstance(backend.error, errors.QueryCanceled):
            backend.error = errors.LockNotAvailable("canceling statement due to lock timeout")
        self._completed()

    def unblocked(self) -> bool:
        """Somebody has released locks: whether the statement that waited has ended."""
        assert self._backend is not None
        if not self._cluster.database.settle(self._backend):
            return False
        self._cluster.unwait(self)
        self._completed()
        return True

    def _completed(self) -> None:
        request, backend = self._serving, self._backend
        assert request is not None and backend is not None
        self._waits += 1
        request.rows, request.rowcount, request.error = (
            backend.rows,
            backend.rowcount,
            backend.error,
        )
        self._cluster.noted(self._process, request, backend.take_notes())
        if request.error is not None and self._client.pipelined:
            self._aborted = True
        if not backend.in_transaction:
            self._release()
        elif request.error is not None:
            self._cluster.released()  # a transaction that failed has let go of its locks
        self._deliver(request)

    def _deliver(self, request: Request) -> None:
        self._serving = None
        fate = self._cluster.faults.after(self._client, request)
        if fate != "silence":
            loop, chance = self._cluster.loop, self._cluster.chance
            at = max(self._last_answer, loop.time() + chance.way())
            self._last_answer = at
            loop.after(at - loop.time(), self._answer, request, None)
        if self._queue and not self._scheduled and not self._gone:
            self._scheduled = True
            self._cluster.loop.after(self._cluster.chance.gap(), self._serve)

    def _release(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            self._cluster.database.give(backend)
            self._cluster.released()

    def end(self) -> None:
        """The server has noticed: what was not committed is rolled back."""
        if self._gone:
            return
        self._gone = True
        self._queue.clear()
        self._serving = None
        if self._backend is not None:
            self._cluster.unwait(self)
            self._backend.reset()
            self._release()

    def break_in_commit(self, later: float, *, lands: bool) -> None:
        """The connection broke under a COMMIT: the old backend goes on and commits later (or not),
        its locks held until then."""
        self._queue.clear()
        self.broken = psycopg.OperationalError("the connection was lost in COMMIT")
        for sent in tuple(self._unanswered):
            self._answer(sent, self.broken)
        self._serving = None
        self._cluster.loop.after(later, self._commit_late, lands)

    def _commit_late(self, lands: bool) -> None:
        if self._gone:
            return
        if lands and self._backend is not None:
            self._backend.set_clock(self._cluster.now(), self.who)
            self._backend.run(b"COMMIT")
            self._cluster.noted_late(self._process, self._backend.take_notes())
        self.end()
