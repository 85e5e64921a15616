"""The executor: runs the handler of each lease, and passes its outcome to the finisher."""

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, assert_never
from uuid import UUID

from cronledger.declaring.app import Bound, CancelToken, Context
from cronledger.engine.awaited import FOLLOW_SECONDS
from cronledger.engine.event import Event
from cronledger.engine.late import Late
from cronledger.engine.lease import Lease, Leases, Stop
from cronledger.engine.running import attempt_spans, capturing
from cronledger.engine.running.capturing import Printed
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.finisher import Finisher
from cronledger.engine.running.handlers.command import CommandHandlers
from cronledger.engine.running.handlers.guard import (
    Guard,
    LeaseEndedError,
    guard_tasks,
    start_task,
    unguard_tasks,
)
from cronledger.engine.running.handlers.python import PythonHandlers
from cronledger.engine.running.handlers.sql import SqlHandlers
from cronledger.engine.running.handlers.transaction import Connections, ExecutionTransaction
from cronledger.engine.running.output import Capture, LiveOutput
from cronledger.engine.running.upstreams import Upstreams
from cronledger.ledger.claim_rows import UnreadablePayload
from cronledger.logs.fields import EXECUTION, fields_from
from cronledger.logs.loggers import get_logger
from cronledger.rules import outcome
from cronledger.rules.model import Handler, Job, Status, Trigger
from cronledger.rules.outcome import Outcome
from cronledger.rules.problems import ConfigurationError
from cronledger.rules.progress import Progress
from cronledger.rules.requirements import UpstreamResults
from cronledger.tracing.interface import AttemptSpan, Tracing

if TYPE_CHECKING:
    from cronledger.engine.running.handlers.http import HttpHandlers

log = get_logger(__name__)

_STARTED_ELSEWHERE = {
    Handler.EXTERNAL: "handler external: a replica cannot run it; its workers have to claim it",
    Handler.OBSERVED: "handler observed: a replica cannot run it; another scheduler starts it",
}


@dataclass(eq=False, slots=True)
class Running:
    """One execution in this process.

    `called_at`: the monotonic instant at which its task began, or None before that. `stop`: the
    reason why the handler was requested to end, or None. `overran`: it did not end in time.
    `abandoned`: the executor no longer waits for its end. `span`: of the attempt, if it is traced.
    `output`: writes what it prints; None: that is not captured. `capture`: what it has printed;
    None: nothing yet. `over`: nothing is added to it any more.
    """

    lease: Lease
    cancel: CancelToken
    output: LiveOutput | None
    task: asyncio.Task[None] | None = None
    called_at: float | None = None
    stop: Stop | None = None
    stop_again: asyncio.TimerHandle | None = None
    overran: bool = False
    abandoned: bool = False
    span: AttemptSpan | None = None
    capture: Capture | None = None
    over: bool = False

    @property
    def duration_ms(self) -> int:
        return 0 if self.called_at is None else round((monotonic() - self.called_at) * 1000)

    @property
    def printed(self) -> Printed | None:
        return None if self.output is None else self

    def capturing(self) -> Capture | None:
        """Return its capture, which is made by the first call. Any thread may call this."""
        if self.capture is None and self.output is not None:
            made = Capture(self.lease, self.output)  # not under the lock: a finaliser may print
            with self.output.lock:
                if self.capture is None:
                    self.capture = made
                if self.over:  # since the call began
                    self.capture.over = True
        return self.capture

    def write(self, text: str) -> None:
        """Add what the handler has printed, until the attempt has ended."""
        if not self.over and (capture := self.capturing()) is not None:
            capture.write(text)

    def end(self, ended: Outcome) -> Outcome:
        """Return the outcome with the output, to which nothing is added any more."""
        self.over = True
        return ended if self.capture is None else self.capture.end(ended)

    def ended(self, decided: Outcome, *, release: bool = False) -> Ended:
        """Return the outcome to write. The span ends now, and gets its outcome later."""
        if self.span is not None:
            self.span.stop()
        if not self.lease.job.capture_output and decided.output is not None:
            decided = replace(decided, output=None)
        decided = self.end(decided)
        has_chunks = self.capture is not None and self.capture.written
        return Ended(
            self.lease, decided, self.duration_ms, release, span=self.span, has_chunks=has_chunks
        )


class Executor:
    """Runs executions in its slots. An execution keeps its slot until its handler has ended.

    A handler that was requested to stop has `GRACE` seconds to end, or `REPEAT` seconds if its
    lease is lost. Then it is reported, and requested again every `REPEAT` seconds, because an async
    handler may have swallowed its cancellation.

    Events: `added`, the leases of new executions; `begun`, the lease of an attempt whose task
    begins; `lost`, the outcomes that cannot be written; `freed`, a slot is free again; `reported`,
    the lease of a handler that reports progress, in the handler's thread.
    """

    GRACE = 5.0
    REPEAT = 1.0

    def __init__(
        self,
        leases: Leases,
        finisher: Finisher,
        python: PythonHandlers,
        commands: CommandHandlers,
        *,
        sql: SqlHandlers,
        http: "Late[HttpHandlers]",
        connections: Connections,
        upstreams: Upstreams,
        output: LiveOutput,
        runner: str,
        slots: int,
        tracing: Tracing | None = None,
    ) -> None:
        self._leases = leases
        self._finisher = finisher
        self._python = python
        self._commands = commands
        self._sql = sql
        self._http = http
        self._connections = connections
        self._upstreams = upstreams
        self._output = output
        self._runner = runner
        self._slots = slots
        self._tracing = tracing
        self.added = Event[[Sequence[Lease]]]()
        self.begun = Event[[Lease]]()
        self.lost = Event[[Sequence[Ended]]]()
        self.freed = Event[[]]()
        self.reported = Event[[Lease]]()
        self._running: dict[UUID, Running] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        guard_tasks(self._loop)
        capturing.install()

    def close(self) -> None:
        """Restore the event loop and the streams. No handler may be started afterwards."""
        capturing.uninstall()
        unguard_tasks(self._loop)

    @property
    def running(self) -> int:
        return len(self._running)

    def executions(self) -> list[Running]:
        return list(self._running.values())

    def functions(self) -> set[str]:
        """Return the names of the functions that are running."""
        targets = (x.lease.job.target for x in self._running.values())
        return {target["python"] for target in targets if "python" in target}

    def free(self) -> tuple[int, int]:
        """Return the number of free slots and of all slots.

        A backlog of outcomes that the database has not accepted yet reduces the free slots.
        """
        backlog = max(0, self._finisher.waiting - 4 * self._slots)
        return max(0, self._slots - len(self._running) - backlog), self._slots

    async def prepare(self, jobs: Iterable[Job]) -> None:
        """Import what the handlers of these jobs need, so that no execution waits for it."""
        if any(job.handler is Handler.HTTP for job in jobs):
            await self._http.get()

    def start(self, leases: Sequence[Lease]) -> None:
        """Run the executions of these leases. Heartbeats extend the leases from now on."""
        started = [self._begin(lease) for lease in leases]
        self._leases.add(leases)
        self.added(leases)
        for running in started:
            running.task = start_task(
                self._loop, self._run(running), name=f"execution {running.lease.claimed.id}"
            )

    def _begin(self, lease: Lease) -> Running:
        # A thread that reads the token sees the end of its lease before it is requested to stop.
        output = self._output if self._output.collects(lease.job) else None
        running = Running(lease, CancelToken(lambda: not lease.usable), output)
        lease.stop = partial(self._stop_from_any_thread, lease.token)
        self._running[lease.token] = running
        self._idle.clear()
        return running

    def _stop_from_any_thread(self, token: UUID, why: Stop) -> None:
        running = self._running.get(token)
        if running is None:  # its handler has ended
            return
        running.cancel.cancel()
        if why == "lease_lost":
            # Not through the main loop, which a handler may be blocking.
            self._commands.supervisor.kill(str(token))
        self._loop.call_soon_threadsafe(self.stop, running, why)

    def stop(self, running: Running, why: Stop) -> None:
        """Request the end of the handler.

        The first reason counts, except that a lost lease takes precedence over every other.
        """
        if running.stop == why or (running.stop is not None and why != "lease_lost"):
            return
        running.stop = why
        running.cancel.cancel()
        # A task that is cancelled before its first step would never run. `_outcome` reads `stop`.
        if running.called_at is not None and self._running.get(running.lease.token) is running:
            self._stop_handler(running)
            if running.stop_again is not None:
                running.stop_again.cancel()
            wait = self.REPEAT if why == "lease_lost" else self.GRACE
            running.stop_again = self._loop.call_later(wait, self._repeat_stop, running)

    def _lapsed(self, running: Running) -> bool:
        """Stop a handler whose lease ended before anything else stopped it.

        Return False if the handler was already stopped for that reason.
        """
        if running.stop == "lease_lost":
            return False
        self._leases.expire(running.lease)
        self.stop(running, "lease_lost")
        return True

    def _stop_handler(self, running: Running) -> None:
        if running.lease.job.handler is Handler.COMMAND:
            # Not by a cancellation: the task has to receive the tail of the command's output.
            supervisor, key = self._commands.supervisor, str(running.lease.token)
            (supervisor.kill if running.stop == "lease_lost" else supervisor.stop)(key)
        elif running.task is not None:
            running.task.cancel()

    def _repeat_stop(self, running: Running) -> None:
        """Report a handler that did not end, and stop it again. The supervisor kills commands."""
        if running.lease.job.handler is Handler.COMMAND:
            return
        if not running.overran:
            running.overran = True
            log.warning(
                "handler_not_stopped",
                **running.lease.log_fields,
                reason=running.stop,
                holds="its slot until it returns",
            )
        self._stop_handler(running)
        running.stop_again = self._loop.call_later(self.REPEAT, self._repeat_stop, running)

    def followed(self) -> None:
        """Show the output of the executions that somebody follows as it comes."""
        for running in self._running.values():
            capture = running.capture
            if capture is not None and capture.is_followed:
                self._commands.supervisor.follow(str(running.lease.token), FOLLOW_SECONDS)
                self._output.hurry(capture)

    async def wait_idle(self) -> None:
        """Wait until no handler is running."""
        await self._idle.wait()

    async def wait_ended(self, functions: Collection[str]) -> None:
        """Wait for the ends of the handlers of these functions that are running now."""
        running = [
            x.task
            for x in self._running.values()
            if x.task is not None and x.lease.job.target.get("python") in functions
        ]
        if running:
            await asyncio.wait(running)

    async def _run(self, running: Running) -> None:
        claimed = running.lease.claimed
        running.called_at = monotonic()
        EXECUTION.set(partial(self._log_fields, running.lease))  # until the end of this task
        if self._tracing is not None:
            running.span = attempt_spans.begin(self._tracing, running.lease)
        log.info("execution_started", how=claimed.how, trigger=claimed.trigger)
        self.begun(running.lease)
        self._end(running, await self._outcome(running))

    def _log_fields(self, lease: Lease) -> dict[str, object]:
        key = lease.claimed.key
        fields = {
            "job": key.job_name,
            "scope_kind": key.scope_kind,
            "scope": key.scope_id,
            "execution_id": lease.claimed.id,
            "plan_time": key.plan_time.isoformat(),
            "attempt": lease.claimed.attempt,
            "runner": self._runner,
        }
        return fields if lease.trace_id is None else {**fields, "trace_id": lease.trace_id}

    async def _outcome(self, running: Running) -> Outcome:
        if running.stop is None and not running.lease.usable:
            # The process was suspended after its claim, so the lease may have been stolen.
            self._leases.expire(running.lease)
            running.stop = "lease_lost"
        if running.stop is not None:  # stopped before it began
            return self._stopped(running)
        timer = self._timer(running)
        try:
            return await self._handle(running)
        except asyncio.CancelledError:
            # Without a reason if the host program cancels all of its tasks.
            running.stop = running.stop or "shutdown"
            return self._stopped(running)
        except LeaseEndedError as ended:
            self._leases.expire(running.lease)
            running.stop = running.stop or "lease_lost"
            return self._stopped(running, ended.output)
        except Exception as error:
            log.exception("execution_crashed")
            return outcome.failure(error)
        finally:
            if timer is not None:
                timer.cancel()
            if running.stop_again is not None:
                running.stop_again.cancel()

    def _timer(self, running: Running) -> asyncio.TimerHandle | None:
        timeout = running.lease.job.run_timeout
        if timeout is None:
            return None
        return self._loop.call_later(timeout.total_seconds(), self.stop, running, "timeout")

    async def _handle(self, running: Running) -> Outcome:
        job, payload = running.lease.job, running.lease.claimed.payload
        if isinstance(payload, UnreadablePayload):
            return outcome.payload_invalid(payload.error)
        guard = Guard(running.lease, partial(self._lapsed, running))
        bound = self._bound(job)
        if bound is not None and not bound.needs_context:  # most functions
            ended = await self._python.run(job.target["python"], guard, running.printed)
        else:
            ended = await self._handle_with_context(running, guard)
        # The reason for the stop decides, because a handler may have swallowed its cancellation.
        if running.stop is None or ended.written:
            return ended
        return self._stopped(running, ended.output)

    async def _handle_with_context(self, running: Running, guard: Guard) -> Outcome:
        job = running.lease.job
        transaction = ExecutionTransaction(
            self._connections, running.lease, running.cancel, lambda: running.duration_ms
        )
        bound, upstreams = self._bound(job), UpstreamResults({})
        if job.gates and (bound is None or bound.takes_context or bound.middleware):
            upstreams = await self._upstreams.read(running.lease)
        context = self._context(running, transaction, upstreams)
        match job.handler:
            case Handler.PYTHON:
                name = job.target["python"]
                return await self._python.run_with(
                    context, transaction, name, guard, running.printed
                )
            case Handler.COMMAND:
                return await self._commands.run(
                    job, context, running.lease, running.span, running.capturing()
                )
            case Handler.SQL:
                return await self._sql.run(job, context, transaction, running.span)
            case Handler.HTTP:
                try:
                    http = await self._http.get()
                except ConfigurationError as error:  # of a replica without its library
                    return outcome.not_started(str(error))
                return await http.run(job, context, guard, running.span)
            case Handler.EXTERNAL | Handler.OBSERVED:
                return outcome.not_started(_STARTED_ELSEWHERE[job.handler])
            case _:
                assert_never(job.handler)

    def _bound(self, job: Job) -> Bound | None:
        """Return the function of a Python job; None: the job is of another kind."""
        return (
            self._python.functions[job.target["python"]] if job.handler is Handler.PYTHON else None
        )

    def _context(
        self, running: Running, transaction: ExecutionTransaction, upstreams: UpstreamResults
    ) -> Context:
        claimed, job = running.lease.claimed, running.lease.job
        bound = self._bound(job)
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
            cancel_token=running.cancel,
            window=claimed.window,
            resources=None if bound is None else bound.resources,
            _held=lambda: running.lease.usable,
            _transaction=transaction.open,
            _report=partial(self._report, running.lease),
            _upstreams=upstreams,
        )

    def _report(self, lease: Lease, progress: Progress) -> None:
        if self._leases.report(lease, progress):
            self.reported(lease)

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
                lease = running.lease
                unrenewed, error = lease.expired or (monotonic() - lease.sent, None)
                return outcome.lease_expired(unrenewed, error, job.stale_timeout, output)
            case _:
                assert_never(running.stop)

    def _end(self, running: Running, ended: Outcome) -> None:
        lease, claimed = running.lease, running.lease.claimed
        running.task = None  # its context refers to `running`
        self._running.pop(lease.token, None)
        if not self._running:
            self._idle.set()
        if running.abandoned:
            self.freed()
            return
        # Shutdown or lease loss does not cost a reentrant execution an attempt.
        release = (
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
        _log_end(decided, running.duration_ms, release=release)
        end = running.ended(decided, release=release)
        if running.capture is not None:
            self._output.forget(running.capture)
        if lease.held:
            self._finisher.put(end)
        else:
            self.lost([end])
        self.freed()

    def abandon(self, running: Running) -> None:
        """Stop waiting for a handler that does not end. Its outcome will be ignored.

        An execution that is not reentrant becomes FAILED `shutdown`, final. The lease of a
        reentrant one expires after the end of this process, and is stolen.
        """
        if running.abandoned:
            return
        running.abandoned = True
        end = running.ended(outcome.shutdown(end_known=False))
        if running.capture is not None:
            self._output.forget(running.capture)
        if running.lease.held and not running.lease.job.reentrant:
            with fields_from(partial(self._log_fields, running.lease)):
                _log_end(end.outcome, running.duration_ms, release=False)
            self._finisher.put(end)
        else:
            self.lost([end])


def _log_end(ended: Outcome, duration_ms: int, *, release: bool) -> None:
    if release:
        log.info("execution_released", duration_ms=duration_ms)
        return
    if ended.postpone is not None:
        log.info(
            "execution_not_ready", duration_ms=duration_ms, reason=ended.error_msg,
            after_s=ended.postpone.total_seconds(),
        )  # fmt: skip
        return
    match ended.status:
        case Status.SUCCESS:
            if ended.error_code is None:
                log.info("execution_succeeded", duration_ms=duration_ms)
            else:  # the ledger contains the result changed, or not at all
                log.warning(
                    "execution_succeeded",
                    duration_ms=duration_ms,
                    error_code=ended.error_code,
                    error=(ended.error_msg or "").partition("\n")[0],
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
                not_retried=ended.not_retried,
            )
