"""Runs what was claimed: one task per execution, and its end as an outcome for the finisher."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import assert_never
from uuid import UUID

from structlog.contextvars import bound_contextvars

from cronledger.app import CancelToken, Context
from cronledger.engine.lease import Lease, Leases, Stop
from cronledger.engine.running.finisher import Ended, Finisher
from cronledger.engine.running.handlers.command import CommandHandlers
from cronledger.engine.running.handlers.guard import (
    Guard,
    LeaseEndedError,
    guard_tasks,
    unguard_tasks,
)
from cronledger.engine.running.handlers.http import HttpHandlers
from cronledger.engine.running.handlers.python import PythonHandlers
from cronledger.engine.running.handlers.sql import SqlHandlers
from cronledger.engine.running.handlers.transaction import Connections, ExecutionTransaction
from cronledger.ledger.rows import UnreadablePayload
from cronledger.logger import get_logger
from cronledger.rules import outcome
from cronledger.rules.model import Handler, Status, Trigger
from cronledger.rules.outcome import Outcome

log = get_logger(__name__)


@dataclass(eq=False, slots=True)
class Running:
    """One execution in this process. `stop` says why its handler was asked to end, if it was;
    `began`, monotonic, is None until it was called."""

    lease: Lease
    cancel: CancelToken
    task: asyncio.Task[None] | None = None
    began: float | None = None
    stop: Stop | None = None
    insist: asyncio.TimerHandle | None = None
    overran: bool = False
    abandoned: bool = False

    @property
    def duration_ms(self) -> int:
        return 0 if self.began is None else round((monotonic() - self.began) * 1000)


class Executor:
    """Holds the slots. An execution keeps its slot until its handler has ended.

    A handler that was stopped has `GRACE` seconds to end (none beside a thief); after that it is
    reported, and an async one that swallowed its cancellation is cancelled again and again.
    """

    GRACE = 5.0
    INSIST = 1.0

    def __init__(
        self,
        leases: Leases,
        finisher: Finisher,
        python: PythonHandlers,
        commands: CommandHandlers,
        *,
        sql: SqlHandlers,
        http: HttpHandlers,
        connections: Connections,
        runner: str,
        slots: int,
        freed: Callable[[], None],
        added: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._finisher = finisher
        self._python = python
        self._commands = commands
        self._sql = sql
        self._http = http
        self._connections = connections
        self._runner = runner
        self._slots = slots
        self._freed = freed
        self._added = added
        self._running: dict[UUID, Running] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        guard_tasks(self._loop)

    def close(self) -> None:
        """Leave the event loop as it was. No handler is started afterwards."""
        unguard_tasks(self._loop)

    @property
    def running(self) -> int:
        return len(self._running)

    def executions(self) -> list[Running]:
        return list(self._running.values())

    def free(self) -> tuple[int, int]:
        """Free slots and all slots. Ends that the database has not taken yet hold up claims."""
        backlog = max(0, self._finisher.waiting - 4 * self._slots)
        return max(0, self._slots - len(self._running) - backlog), self._slots

    def start(self, leases: Sequence[Lease]) -> None:
        """Run the executions of these leases. Heartbeats extend the leases from now on."""
        begun = [self._begin(lease) for lease in leases]
        self._leases.add(leases)
        self._added()
        for running in begun:
            running.task = asyncio.create_task(
                self._run(running), name=f"execution {running.lease.claimed.id}"
            )

    def _begin(self, lease: Lease) -> Running:
        # A thread that asks learns of a lease that ended before it could be told.
        running = Running(lease, CancelToken(lambda: not lease.usable))
        lease.stop = lambda why: self._stop_from_any_thread(running, why)
        self._running[lease.token] = running
        self._idle.clear()
        return running

    def _stop_from_any_thread(self, running: Running, why: Stop) -> None:
        running.cancel.cancel()
        if why == "lease_lost":
            # Not over the main loop, which a handler may be blocking.
            self._commands.supervisor.kill(str(running.lease.token))
        self._loop.call_soon_threadsafe(self.stop, running, why)

    def stop(self, running: Running, why: Stop) -> None:
        """Ask the handler to end; the first reason counts, but a lost lease outweighs every
        other.
        """
        if running.stop == why or (running.stop is not None and why != "lease_lost"):
            return
        running.stop = why
        running.cancel.cancel()
        # A task that is cancelled before its first step never runs: `_outcome` looks at `stop`.
        if running.began is not None and self._running.get(running.lease.token) is running:
            self._ask(running)
            if running.insist is not None:
                running.insist.cancel()
            wait = self.INSIST if why == "lease_lost" else self.GRACE
            running.insist = self._loop.call_later(wait, self._insist, running)

    def _lapsed(self, running: Running) -> bool:
        """Stop a handler whose lease ended before its stop was requested; False: it was already."""
        if running.stop == "lease_lost":
            return False
        running.lease.stopped = True  # a late heartbeat must not extend it
        self.stop(running, "lease_lost")
        return True

    def _ask(self, running: Running) -> None:
        if running.lease.job.handler is Handler.COMMAND:
            # Its end comes back with the tail of its output, which a cancelled task has not.
            supervisor, key = self._commands.supervisor, str(running.lease.token)
            (supervisor.kill if running.stop == "lease_lost" else supervisor.stop)(key)
        elif running.task is not None:
            running.task.cancel()

    def _insist(self, running: Running) -> None:
        """The handler goes on though it was stopped. Commands are the supervisor's to kill."""
        if running.lease.job.handler is Handler.COMMAND:
            return
        if not running.overran:
            running.overran = True
            log.warning(
                "handler_overran",
                **_bound(running.lease),
                reason=running.stop,
                holds="its slot until it returns",
            )
        self._ask(running)
        running.insist = self._loop.call_later(self.INSIST, self._insist, running)

    async def idle(self) -> None:
        """No handler is running."""
        await self._idle.wait()

    async def _run(self, running: Running) -> None:
        claimed = running.lease.claimed
        running.began = monotonic()
        with bound_contextvars(
            **_bound(running.lease),
            plan_time=claimed.key.plan_time.isoformat(),
        ):
            log.info("execution_started", how=claimed.how, trigger=claimed.trigger)
            self._end(running, await self._outcome(running))

    async def _outcome(self, running: Running) -> Outcome:
        if running.stop is None and not running.lease.usable:
            # This process stood still between its claim and here: a thief may be at it by now.
            running.stop = "lease_lost"
        if running.stop is not None:  # asked to stop before it began
            return self._stopped(running)
        timer = self._timer(running)
        try:
            return await self._handle(running)
        except asyncio.CancelledError:
            # Without a reason: the program around us cancels all of its tasks.
            running.stop = running.stop or "shutdown"
            return self._stopped(running)
        except LeaseEndedError as ended:
            running.stop = running.stop or "lease_lost"
            return self._stopped(running, ended.output)
        except Exception as error:
            log.exception("execution_broke")
            return outcome.failure(error)
        finally:
            if timer is not None:
                timer.cancel()
            if running.insist is not None:
                running.insist.cancel()

    def _timer(self, running: Running) -> asyncio.TimerHandle | None:
        timeout = running.lease.job.run_timeout
        if timeout is None:
            return None
        return self._loop.call_later(timeout.total_seconds(), self.stop, running, "timeout")

    async def _handle(self, running: Running) -> Outcome:
        job = running.lease.job
        transaction = ExecutionTransaction(
            self._connections, running.lease, lambda: running.duration_ms
        )
        context = transaction.context = self._context(running, transaction)
        if isinstance(context.payload, UnreadablePayload):
            return outcome.payload_invalid(context.payload.error)
        guard = Guard(running.lease, partial(self._lapsed, running))
        match job.handler:
            case Handler.PYTHON:
                name = job.target["function"]
                ended = await self._python.run(name, context, transaction, guard)
            case Handler.COMMAND:
                ended = await self._commands.run(job, context, running.lease)
            case Handler.SQL:
                ended = await self._sql.run(job, context, transaction)
            case Handler.HTTP:
                ended = await self._http.run(job, context, guard)
            case Handler.EXTERNAL:
                return outcome.not_started(
                    "handler external: a worker of its own runs it, no replica"
                )
            case _:
                assert_never(job.handler)
        # A handler that was stopped and swallowed the cancellation ends as what it was stopped for.
        if running.stop is None or ended.written:
            return ended
        return self._stopped(running, ended.output)

    def _context(self, running: Running, transaction: ExecutionTransaction) -> Context:
        claimed = running.lease.claimed
        return Context(
            execution_id=claimed.id,
            job=claimed.key.job_name,
            scope_kind=claimed.key.scope_kind,
            scope_id=claimed.key.scope_id,
            plan_time=claimed.key.plan_time,
            trigger=Trigger(claimed.trigger),
            attempt=claimed.attempt,
            payload=claimed.payload,
            lease_token=claimed.token,
            runner_id=self._runner,
            cancel_scope=running.cancel,
            _held=lambda: running.lease.usable,
            _transaction=transaction.open,
        )

    def _stopped(self, running: Running, output: str | None = None) -> Outcome:
        job = running.lease.job
        match running.stop:
            case "timeout":
                assert job.run_timeout is not None, "only a run_timeout sets this reason"
                return outcome.timed_out(job.run_timeout, output, end_known=True)
            case "cancelled":
                return outcome.cancelled(output)
            case "shutdown" | None:
                return outcome.shutdown(output, end_known=True)
            case "lease_lost":
                return outcome.lease_over("lease", output)
            case _:
                assert_never(running.stop)

    def _end(self, running: Running, ended: Outcome) -> None:
        lease, claimed = running.lease, running.lease.claimed
        self._running.pop(lease.token, None)
        if not self._running:
            self._idle.set()
        if running.abandoned:
            self._freed()
            return
        # A reentrant execution whose runner goes, or lost touch, is not the worse for it.
        give_back = (
            running.stop in ("shutdown", "lease_lost")
            and lease.job.reentrant
            and lease.held
            and not ended.written
        )
        if running.stop == "shutdown" and not ended.written:
            decided = replace(ended, final=True, retry_after=None)
        else:
            decided = outcome.decide(
                ended, lease.job, claimed.attempt, claimed.max_attempts, random.random()
            )
        _log_end(decided, running.duration_ms, give_back=give_back)
        if lease.held:
            self._finisher.put(Ended(lease, decided, running.duration_ms, give_back))
        self._freed()

    def abandon(self, running: Running) -> None:
        """Wait no more for a handler that does not end; what it writes later is not its end.

        Not reentrant: FAILED shutdown, final. Reentrant: its lease runs out, and is stolen when
        this process renews it no more.
        """
        if running.abandoned:
            return
        running.abandoned = True
        if running.lease.held and not running.lease.job.reentrant:
            ended = outcome.shutdown(end_known=False)
            with bound_contextvars(**_bound(running.lease)):
                _log_end(ended, running.duration_ms, give_back=False)
            self._finisher.put(Ended(running.lease, ended, running.duration_ms))


def _bound(lease: Lease) -> dict[str, object]:
    claimed = lease.claimed
    return {
        "job": claimed.key.job_name,
        "scope": claimed.key.scope_id,
        "execution_id": claimed.id,
        "attempt": claimed.attempt,
    }


def _log_end(ended: Outcome, duration_ms: int, *, give_back: bool) -> None:
    if give_back:
        log.info("execution_given_back", duration_ms=duration_ms)
        return
    match ended.status:
        case Status.SUCCESS:
            if ended.error_code is None:
                log.info("execution_succeeded", duration_ms=duration_ms)
            else:  # its result is not in the ledger as the handler returned it
                log.warning(
                    "execution_succeeded",
                    duration_ms=duration_ms,
                    note=ended.error_code,
                    why=(ended.error_msg or "").partition("\n")[0],
                )
        case Status.CANCELLED:
            log.info("execution_cancelled", duration_ms=duration_ms)
        case _:
            wait = ended.retry_after
            log.warning(
                "execution_failed",
                duration_ms=duration_ms,
                error_code=ended.error_code,
                error=(ended.error_msg or "").partition("\n")[0],
                retry_after_s=None if wait is None else wait.total_seconds(),
            )
