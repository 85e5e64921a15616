"""The server's side of a connection. It goes on whatever becomes of its client: a COMMIT under way
lands after the client's death, or seconds after its connection broke.
"""

from collections import deque
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from tests.simulation.support.backend import PLAIN, Backend, is_lock_timeout
from tests.simulation.support.idle_timeouts import take_timeout, terminated
from tests.simulation.support.loop import Process
from tests.simulation.support.request import Request
from tests.simulation.support.row_order import UNORDERED

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster
    from tests.simulation.support.network import Connection

WRITES = frozenset({"try_claim_new", "finish_executions", "release_executions"})
"""Statements after which a transaction has something to lose, if they return rows. `claim_look`
always returns one."""


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
        self._dawdled = False
        self._aborted = False
        self._gone = False  # the server has noticed that its client is gone
        self._last_answer = 0.0
        self._lock_timeout = 5.0
        self._idle_timeout = float("inf")
        self._waits = 0
        self._taken_at = 0.0
        self._waits_since: float | None = None
        self.writes = False  # the transaction that it is in
        self.who = process.runner
        self.broken: psycopg.Error | None = None

    # -- the client's end -----------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self._backend is not None

    @property
    def pid(self) -> int | None:
        """Of the backend that holds its locks."""
        return None if self._backend is None else self._backend.pid

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
            self._cluster.loop.after(self._cluster.chance.way(self._process), self._serve)

    def end_pipeline(self) -> None:
        self._aborted = False

    def interrupt(self) -> None:
        """The client asks the server to cancel the statement that waits for a lock."""
        if self._cluster.turns.is_to_come(self):
            self._give_up(errors.QueryCanceled("canceling statement due to user request"))
        elif self._serving is not None and self._backend is not None and self._backend.busy:
            self._cluster.turns.leave(self)
            self._backend.cancel()
            self._completed()

    def break_off(self, why: str, notice_after: float | None = None) -> None:
        """The client has lost the connection; the server notices at once or later, and rolls
        back."""
        known, self.broken = self.broken, self.broken or psycopg.OperationalError(why)
        for request in tuple(self._unanswered):
            self._answer(request, self.broken)
        if known is not None:
            return
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
        if not self._dawdled and (seconds := self._cluster.chance.dawdle(self._queue[0])):
            self._scheduled = self._dawdled = True
            self._cluster.loop.after(seconds, self._serve)
            return
        self._dawdled = False
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
            self._taken_at, self.writes = self._cluster.loop.time(), False
        backend = self._backend
        self._note_lock_timeout(request)
        self._idle_timeout = take_timeout(request) or self._idle_timeout
        clock = None if request.query in PLAIN else (self._cluster.now(), self.who)
        place = self._cluster.chance.place(request, self._cluster.database.places)
        if place:
            self._cluster.database.hold(backend)
        if backend.begin(request.query, request.params, request.row_factory, clock, place):
            self._completed()
        else:
            self._settle(backend, request, place)

    def _settle(self, backend: Backend, request: Request, place: str = "") -> None:
        """The statement has ended, or it waits: at its place in a function, or for a lock."""
        cluster = self._cluster
        if cluster.database.settle(backend):
            self._completed()
        elif place and cluster.database.holds(backend):
            cluster.trace("interrupted", self.who, place)
            cluster.loop.after(cluster.chance.interruption(), self._go_on, backend, request)
        else:
            cluster.database.let_go(backend, cluster.now())  # where it waits is its place
            if self._waits_since is None:  # otherwise it was taken back, and waits again
                self._waits_since = cluster.loop.time()
            self._time_lock()
            cluster.turns.wait(self, request.label)

    def _go_on(self, backend: Backend, request: Request) -> None:
        """The function goes on after the place at which it was interrupted."""
        if self._backend is backend and self._serving is request:
            self._cluster.database.let_go(backend, self._cluster.now())
            self._settle(backend, request)

    def _time_lock(self) -> None:
        self._waits += 1
        waits = self._waits
        self._cluster.loop.after(self._lock_timeout, lambda: self._lock_timed_out(waits))

    def take_back(self) -> bool:
        """The statement that waits for a lock has not reached the server yet: it comes again when
        nobody waits any more. False where its transaction has done something before.

        Its wait goes on: whoever sent it can do nothing about the turns of others."""
        assert self._backend is not None and self._serving is not None
        if not self._backend.take_back():
            return False
        self._queue.appendleft(self._serving)
        self._serving, self._scheduled = None, True
        self._time_lock()
        return True

    def go_on(self) -> None:
        """It is the turn of what was taken back."""
        self._serve()

    def _give_up(self, error: psycopg.Error) -> None:
        """What was taken back ends without having come again."""
        backend = self._backend
        assert backend is not None
        self._cluster.turns.leave(self)
        self._serving, self._scheduled = self._queue.popleft(), False
        backend.rows, backend.rowcount, backend.error = [], -1, error
        self._completed()

    def _note_lock_timeout(self, request: Request) -> None:
        if is_lock_timeout(request.query):
            self._lock_timeout = int(request.params[0]) / 1000

    def _lock_timed_out(self, waits: int) -> None:
        backend = self._backend
        if waits != self._waits or backend is None:
            return
        if self._cluster.turns.is_to_come(self):
            self._give_up(errors.LockNotAvailable("canceling statement due to lock timeout"))
        if self._serving is None or not backend.busy:
            return
        self._cluster.turns.leave(self)
        backend.cancel()
        if isinstance(backend.error, errors.QueryCanceled):
            backend.error = errors.LockNotAvailable("canceling statement due to lock timeout")
        self._completed()

    def unblocked(self) -> bool:
        """Somebody has released locks: whether the statement that waited has ended."""
        assert self._backend is not None
        database = self._cluster.database
        if database.blocked(self._backend) or not database.settle(self._backend):
            return False
        self._cluster.turns.leave(self)
        self._completed()
        return True

    def _completed(self) -> None:
        request, backend = self._serving, self._backend
        assert request is not None and backend is not None
        self._waits += 1
        self._note_wait()
        self._cluster.database.let_go(backend, self._cluster.now())
        self.writes = self.writes or _writes(request, backend)
        if request.label in UNORDERED:
            backend.rows.sort(key=repr)
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
            self._cluster.turns.released()  # a transaction that failed has let go of its locks
        if self._backend is not None and self._idle_timeout < 3600:
            waits = self._waits
            self._cluster.loop.after(self._idle_timeout, lambda: self._idled(waits))
        self._deliver(request)

    def _note_wait(self) -> None:
        if self._waits_since is not None:
            self._cluster.calm.waited(self._process, self._waits_since)
            self._waits_since = None

    def _idled(self, waits: int) -> None:
        if self._backend is None or self._serving or self._queue or waits != self._waits:
            return
        if self.broken is None:
            self._cluster.trace("idle in transaction", self.who)
            self.broken = terminated()
            self.end()

    def _deliver(self, request: Request) -> None:
        self._serving = None
        fate = self._cluster.faults.after(self._client, request)
        if fate != "silence":
            loop, chance = self._cluster.loop, self._cluster.chance
            at = max(self._last_answer, loop.time() + chance.way(self._process))
            self._last_answer = at
            loop.after(at - loop.time(), self._answer, request, None)
        if self._queue and not self._scheduled and not self._gone:
            self._scheduled = True
            gap = self._cluster.chance.gap(self._process) + _slept(request)
            self._cluster.loop.after(gap, self._serve)

    def _release(self) -> None:
        backend, self._backend = self._backend, None
        self._idle_timeout = float("inf")
        if backend is not None:
            self._cluster.calm.held(self._taken_at, by_client=self.of_client)
            self._cluster.database.give(backend)
            self._cluster.turns.released()

    def end(self) -> None:
        """The server has noticed: what was not committed is rolled back."""
        if self._gone:
            return
        self._gone = True
        self._note_wait()
        self._queue.clear()
        self._serving = None
        self._cluster.turns.leave(self)
        if self._backend is not None:
            self._cluster.database.let_go(self._backend, self._cluster.now())
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
        self._cluster.loop.after(later, self._commit_late, lands, self._cluster.loop.time())

    def _commit_late(self, lands: bool, sent: float) -> None:
        if self._gone:
            return
        if lands and self._backend is not None:
            self._backend.run(b"COMMIT")
            self._cluster.calm.landed(self._process, sent)
            self._cluster.noted_late(self._process, self._backend.take_notes())
        self.end()


def _writes(request: Request, backend: Backend) -> bool:
    if request.label == "claim_look" and backend.rows:
        return bool(backend.rows[0].existing)
    return request.label in WRITES and backend.rowcount > 0


def _slept(request: Request) -> float:
    """The seconds for which the statement kept its session waiting."""
    asleep = request.label == "sleep_until" and request.error is None
    return float(request.rows[0][1]) if asleep else 0.0
