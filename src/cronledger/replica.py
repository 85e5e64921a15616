"""A replica: builds the engine, drives its loops, stops it. Embeddable in any asyncio program."""

import asyncio
import os
import platform
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from cronledger.app import App, Bound, bind
from cronledger.engine.choose import Abilities
from cronledger.engine.claim import Claimer
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.commands import Supervisor
from cronledger.engine.dispatcher import Dispatcher
from cronledger.engine.executor import Executor
from cronledger.engine.finisher import Finisher
from cronledger.engine.handlers.command import CommandHandlers
from cronledger.engine.handlers.python import PythonHandlers
from cronledger.engine.handlers.threads import Threads
from cronledger.engine.leases import Heartbeats, Leases
from cronledger.engine.loops import Loops
from cronledger.engine.scopes import Scopes
from cronledger.engine.sweeper import Sweeper
from cronledger.engine.waker import Waker
from cronledger.ledger.database import Access
from cronledger.ledger.statements import Statements
from cronledger.rules import cron
from cronledger.rules.errors import ConfigurationError, Problem
from cronledger.settings import Settings

log = structlog.get_logger(__name__)

State = Literal["starting", "running", "draining", "stopped"]

POOL_SIZE = 5
"""One for each loop that steps: who waits for a connection waits for the database."""
PULSE_SECONDS = 3.0
LISTENING_POLL = 15.0
CLAIM_SECONDS = 2.0
FLUSH_SECONDS = 10.0
SECRETS = ("CRONLEDGER_DATABASE_URL", "CRONLEDGER_LISTEN_URL", "PGPASSWORD")
"""Variables, in any case of letters, that commands do not inherit."""


@dataclass(frozen=True, slots=True)
class Health:
    """`stuck`: name of a loop that has not stepped for two minutes while the database answered."""

    state: State
    database: Literal["ok", "away"]
    away_for_s: float | None
    stuck: str | None
    running: int
    slots: int
    last_step_age_s: float


class Replica:
    """One runner. `url` is the database; `apps` and `functions` are what it can run.

    `start` returns once it is registered and its loops run; `drain` lets running work finish,
    `abort` does not. As an async context manager it starts on entry and drains on exit.
    """

    def __init__(
        self,
        settings: Settings,
        url: str,
        *,
        apps: Sequence[App] = (),
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.settings = settings
        self.runner_id = settings.runner_id or (
            f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        )
        self.state: State = "starting"
        self._access = Access(
            url,
            prepare=not settings.pgbouncer,
            connect_timeout=settings.connect_timeout,
            lock_timeout=settings.lock_timeout,
            tcp_user_timeout=settings.tcp_user_timeout,
        )
        self._apps = apps
        self._functions = _functions(apps, functions or {})
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._begun = monotonic()

    # -- building -------------------------------------------------------------------------------

    def _build(self) -> None:
        s = self.settings
        self._statements = statements = Statements(s.schema_name)
        self._pool = self._access.pool("cronledger", POOL_SIZE)
        self._clock = DatabaseClock()
        self._loops = Loops(self._went_away)
        self._leases = Leases()
        self._supervisor = Supervisor(
            {key: value for key, value in os.environ.items() if key.upper() not in SECRETS}
        )
        self._threads = Threads("handler")
        self._heartbeats = Heartbeats(
            self._access, statements, self._leases, self._supervisor.extend
        )
        self._finisher = Finisher(
            self._pool, statements, self._leases, lambda ended: self._dispatcher.wake.set()
        )
        self._executor = Executor(
            self._leases,
            self._finisher,
            PythonHandlers(self._functions, self._threads, s.max_result_bytes),
            CommandHandlers(self._supervisor, s.output_tail_bytes),
            runner=self.runner_id,
            slots=s.slots,
            freed=self._wake_dispatcher,
            added=self._heartbeats.wake,
        )
        self._claimer = Claimer(
            self._pool,
            statements,
            self._clock,
            Abilities(frozenset(self._functions), s.allow_sql_commands),
            runner=self.runner_id,
            queues=s.queues,
        )
        self._sweeper = Sweeper(
            self._pool,
            statements,
            self._clock,
            retention=s.retention,
            width=s.partition_interval,
            rearmed=self._wake_dispatcher,
            stagger=random.random(),
        )
        self._dispatcher = Dispatcher(
            self._claimer,
            self._clock,
            free=self._executor.free,
            start=self._executor.start,
            poll=self._poll_seconds(),
        )
        self._scopes = Scopes(self._pool, statements, _providers(self._apps))
        self._waker = self._build_waker()

    def _build_waker(self) -> Waker | None:
        """None behind a pooler that was given no DSN to LISTEN on: polling suffices."""
        s = self.settings
        if s.listen_url is not None:
            access = Access(s.listen_url.get_secret_value())
        elif s.pgbouncer:
            return None
        else:
            access = self._access
        return Waker(access, s.schema_name, self._notified)

    def _poll_seconds(self) -> float:
        poll = self.settings.poll_interval.total_seconds()
        listens = self.settings.listen_url is not None or not self.settings.pgbouncer
        return max(poll, LISTENING_POLL) if listens and poll == 5.0 else poll

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Registered, and everything runs. Raises psycopg.OperationalError when the database is
        away, and what else hinders a start; then nothing runs.
        """
        self._build()
        try:
            await self._pool.open()
            await self._pool.wait(self.settings.connect_timeout.total_seconds())
            await self._supervisor.start()
            self._heartbeats.start()
            await self._pulse()
        except BaseException as error:
            await self._close()
            if isinstance(error, PoolTimeout):
                raise psycopg.OperationalError(f"the database does not answer: {error}") from error
            raise
        self.state = "running"
        self._loops.drive("finisher", self._finisher.step, self._finisher.wake)
        self._loops.drive("pulse", self._pulse)
        self._loops.drive("sweeper", self._sweeper.step)
        self._loops.drive("scopes", self._scopes.step)
        self._loops.drive("dispatcher", self._dispatcher.step, self._dispatcher.wake)
        if self._waker is not None:
            self._loops.drive("waker", self._waker.step)
        log.info(
            "runner_started",
            runner=self.runner_id,
            queues=list(self.settings.queues),
            slots=self.settings.slots,
            version=metadata.version("cronledger"),
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.drain()

    @property
    def is_draining(self) -> bool:
        return self.state in ("draining", "stopped")

    async def drain(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Stop claiming, let running work finish for `timeout` seconds (default: drain_timeout),
        then stop it and give back the rest. Idempotent: a second call waits for the first."""
        if self.state != "running":
            if self.state == "draining":
                await self._ended.wait()
            return
        self.state = "draining"
        patience = self.settings.drain_timeout.total_seconds() if timeout is None else timeout
        log.info("runner_draining", runner=self.runner_id, running=self._executor.running)
        try:
            cut_off = await self._stop_claiming()
            await self._wait_idle(patience)
            await self._stop_running()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._finisher.drained()
            await self._loops.halt()
            await self._sign_off(cut_off)
        finally:
            unfinished = self._executor.running
            await self._close()
            self.state = "stopped"
            log.info("runner_stopped", runner=self.runner_id, unfinished=unfinished)
            self._ended.set()

    async def abort(self) -> None:
        """Stop now: handlers are cancelled and their executions given back or failed; a drain that
        is waiting for them waits no more. Idempotent.
        """
        self._stopping.set()
        await self.drain(0)

    async def _stop_claiming(self) -> bool:
        """No claim is in flight; answers whether one had to be cut off."""
        # A claim in the middle of its commit is let end: its executions would be orphans.
        cut_off = self._claimer.in_flight and not await self._loops.finish(
            "dispatcher", CLAIM_SECONDS
        )
        await self._loops.halt("dispatcher", "scopes", "waker")
        self._loops.wake("pulse")  # others see that it drains
        return cut_off

    async def _wait_idle(self, patience: float) -> None:
        idle = asyncio.ensure_future(self._executor.idle())
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([idle, stop], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        stop.cancel()

    async def _stop_running(self) -> None:
        left = self._executor.executions()
        if not left:
            return
        log.warning("drain_deadline_passed", stopping=len(left))
        for running in left:
            self._executor.stop(running, "shutdown")
        with suppress(TimeoutError):
            async with asyncio.timeout(self._executor.GRACE + 1):
                await self._executor.idle()
        for running in self._executor.executions():
            self._executor.abandon(running)

    async def _sign_off(self, cut_off: bool) -> None:
        """The runner is seen to have left; what a claim that was cut off won goes back."""
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(2):
                if cut_off:
                    await self._claimer.settle_unknown()
                async with self._pool.connection() as c:
                    await self._statements.stop_runner(c, self.runner_id)

    async def _close(self) -> None:
        """What was begun has ended; heartbeats last, because what ends needs its lease."""
        if self._waker is not None:
            with suppress(psycopg.Error):
                await self._waker.close()
        await self._supervisor.close()
        self._heartbeats.close()
        await self._pool.close(timeout=2)
        self._threads.close()

    # -- between the parts ----------------------------------------------------------------------

    def _went_away(self) -> None:
        self._clock.distrust()
        self._loops.wake("pulse")  # it notices the return, and begins the new time of trust

    def _wake_dispatcher(self) -> None:
        self._dispatcher.wake.set()

    def _notified(self, payload: str) -> None:
        self._dispatcher.wake.set()
        # A cancel may have been among what was notified while nobody listened.
        if payload in ("cancel", "connected"):
            self._heartbeats.look_now()

    async def _pulse(self) -> float:
        """The runner is seen; what may be stale or due to resume is passed on."""
        async with self._pool.connection(PULSE_SECONDS) as c:
            sent = monotonic()
            answer = await self._statements.pulse(c, **self._seen())
            pulse = await answer.fetchone()
        assert pulse is not None
        self._loops.answered()
        if self._clock.observe(pulse.now, sent):
            log.warning("database_clock_leapt", now=pulse.now.isoformat())
        self._dispatcher.steal_at = pulse.stale
        moments = [x for x in (pulse.stale, pulse.resumes) if x is not None]
        due = min((self._clock.until(x) for x in moments), default=None)
        if due is not None and due <= 0:
            self._loops.wake("sweeper")
            if pulse.stale is not None and pulse.stale <= pulse.now:
                self._dispatcher.wake.set()
            return min(1.0, self._poll_seconds())
        return self._poll_seconds() if due is None else min(self._poll_seconds(), due + 0.05)

    def _seen(self) -> dict[str, Any]:
        now = datetime.now(UTC)  # noqa: TID251 - shown to people as clock_skew; decides nothing
        skew = now - self._clock.at(monotonic()) if self._clock.known else timedelta(0)
        return {
            "runner": self.runner_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": metadata.version("cronledger"),
            "state": "draining" if self.is_draining else "running",
            "queues": list(self.settings.queues),
            "slots": self.settings.slots,
            "running": self._executor.running,
            "ttl": timedelta(seconds=3 * self._poll_seconds() + 5),
            "clock_skew": skew,
            "fingerprint": {"python": platform.python_version(), **cron.FINGERPRINT},
            "handlers": sorted(self._functions),
        }

    # -- what people ask ------------------------------------------------------------------------

    def health(self) -> Health:
        if self.state == "starting":
            age = round(monotonic() - self._begun, 1)
            return Health(self.state, "ok", None, None, 0, self.settings.slots, age)
        now = monotonic()
        since = self._loops.away_since
        return Health(
            self.state,
            "ok" if since is None else "away",
            None if since is None else round(now - since, 1),
            self._loops.stuck() if since is None else None,
            self._executor.running,
            self.settings.slots,
            round(now - (self._loops.last_step("dispatcher") or self._begun), 1),
        )


def _functions(
    apps: Sequence[App], functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Bound]:
    found = {name: bind(function) for name, function in functions.items()}
    for app in apps:
        for name, job in app.jobs.items():
            where, function = job.target["function"], app.handlers[name]
            if where in found and found[where].function is not function:
                # Rows name a function by its place alone: one of the two would run for both.
                raise ConfigurationError(
                    [
                        Problem(
                            where, name, "function", where,
                            "is the place of another function too, such as one made in a loop",
                            "give each a __qualname__ of its own, or use one function with scopes",
                        )
                    ]
                )  # fmt: skip
            found[where] = bind(function)
    return found


def _providers(apps: Sequence[App]) -> dict[str, tuple[Any, Callable[[], Any]]]:
    return {
        name: (app.jobs[name], provider) for app in apps for name, provider in app.providers.items()
    }
