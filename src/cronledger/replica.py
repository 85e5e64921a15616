"""A replica: builds the engine, drives its loops, stops it. Embeddable in any asyncio program."""

import asyncio
import os
import platform
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
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
from cronledger.engine.leases import Heartbeats, Leases
from cronledger.engine.scopes import Scopes
from cronledger.engine.sweeper import Sweeper
from cronledger.engine.waker import Waker
from cronledger.ledger.database import Access, is_away
from cronledger.ledger.statements import Statements
from cronledger.rules import cron
from cronledger.settings import Settings

log = structlog.get_logger(__name__)

State = Literal["starting", "running", "draining", "stopped"]
Step = Callable[[], Awaitable[float | None]]

BACKOFF = (0.1, 0.25, 0.5, 1.0, 2.0)
STUCK_SECONDS = 120.0
POOL_SIZE = 4
LISTENING_POLL = 15.0
SECRETS = ("CRONLEDGER_DATABASE_URL", "CRONLEDGER_LISTEN_URL", "PGPASSWORD")


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


@dataclass(eq=False, slots=True)
class Loop:
    """One driven step: when it last began, and what wakes it."""

    name: str
    step: Step
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    at: float = field(default_factory=monotonic)
    busy: bool = False
    failures: int = 0
    task: asyncio.Task[None] | None = None


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
        self._loops: dict[str, Loop] = {}
        self._away_since: float | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._begun = monotonic()

    # -- building -------------------------------------------------------------------------------

    def _build(self) -> None:
        s = self.settings
        self._statements = statements = Statements(s.schema_name)
        self._pool = self._access.pool("cronledger", POOL_SIZE)
        self._clock = DatabaseClock()
        self._leases = Leases()
        base_env = {key: value for key, value in os.environ.items() if key not in SECRETS}
        self._supervisor = Supervisor(base_env)
        self._threads = ThreadPoolExecutor(s.slots, thread_name_prefix="handler")
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
            self._leases,
            runner=self.runner_id,
            retention=s.retention,
            width=s.partition_interval,
            rearmed=self._wake_dispatcher,
            claiming=lambda: self._claimer.in_flight,
            stagger=random.random(),
        )
        self._dispatcher = Dispatcher(
            self._claimer,
            self._clock,
            free=self._executor.free,
            start=self._executor.start,
            settle=self._sweeper.repair_soon,
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
        away.
        """
        self._build()
        await self._pool.open()
        try:
            await self._pool.wait(self.settings.connect_timeout.total_seconds())
        except PoolTimeout as error:
            await self._pool.close()
            self._threads.shutdown(wait=False)
            raise psycopg.OperationalError(f"the database does not answer: {error}") from error
        await self._supervisor.start()
        self._heartbeats.start()
        self.state = "running"
        await self._pulse()
        self._drive("finisher", self._finisher.step, self._finisher.wake)
        self._drive("pulse", self._pulse)
        self._drive("sweeper", self._sweeper.step)
        self._drive("scopes", self._scopes.step)
        self._drive("dispatcher", self._dispatcher.step, self._dispatcher.wake)
        if self._waker is not None:
            self._drive("waker", self._waker.step)
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
        await self._halt("dispatcher", "scopes", "waker")
        with suppress(Exception):
            await self._pulse()
        await self._wait_idle(patience)
        await self._stop_running()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._finisher.drained(), 10.0)
        await self._end()

    async def abort(self) -> None:
        """Stop now: handlers are cancelled and their executions given back or failed.
        Idempotent.
        """
        if self.state == "stopped":
            return
        self._stopping.set()
        if self.state == "running":
            await self.drain(0)
        else:
            await self._ended.wait()

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
            await asyncio.wait_for(self._executor.idle(), 6.0)
        for running in self._executor.executions():
            self._executor.abandon(running)

    async def _end(self) -> None:
        await self._halt(*self._loops)
        with suppress(psycopg.Error, PoolTimeout):
            async with self._pool.connection(timeout=2) as c:
                await self._statements.stop_runner(c, self.runner_id)
        if self._waker is not None:
            with suppress(psycopg.Error):
                await self._waker.close()
        await self._supervisor.close()
        # Last: what is being written may need its lease until it is.
        self._heartbeats.close()
        await self._pool.close(timeout=2)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.state = "stopped"
        log.info("runner_stopped", runner=self.runner_id, unfinished=self._executor.running)
        self._ended.set()

    # -- loops ----------------------------------------------------------------------------------

    def _drive(self, name: str, step: Step, wake: asyncio.Event | None = None) -> None:
        loop = Loop(name, step, wake or asyncio.Event())
        self._loops[name] = loop
        loop.task = asyncio.create_task(self._run_loop(loop), name=f"cronledger {name}")

    async def _run_loop(self, loop: Loop) -> None:
        """Step for ever. A step that raises is logged once per trouble and tried again."""
        while True:
            loop.wake.clear()
            loop.at, loop.busy = monotonic(), True
            try:
                delay = await loop.step()
                loop.failures = 0
                self._answered()
            except Exception as error:  # noqa: BLE001 - no error of a step may end its loop
                delay = self._failed(loop, error)
            loop.busy = False
            if delay == 0:
                await asyncio.sleep(0)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(loop.wake.wait(), delay)

    def _failed(self, loop: Loop, error: Exception) -> float:
        delay = BACKOFF[min(loop.failures, len(BACKOFF) - 1)]
        loop.failures += 1
        if is_away(error) or isinstance(error, PoolTimeout):
            if self._away_since is None:
                self._away_since = monotonic()
                log.warning("database_away", error=str(error).partition("\n")[0], loop=loop.name)
            self._clock.distrust()
        elif loop.failures in (1, 10) or loop.failures % 100 == 0:
            log.error("step_failed", loop=loop.name, failures=loop.failures, exc_info=error)
        return delay * (0.75 + random.random() / 2)

    def _answered(self) -> None:
        if self._away_since is not None:
            log.info("database_back", away_s=round(monotonic() - self._away_since, 1))
            self._away_since = None

    async def _halt(self, *names: str) -> None:
        tasks = [loop.task for name in names if (loop := self._loops.get(name)) and loop.task]
        for name in names:
            loop = self._loops.get(name)
            # A claim in the middle of its commit is let end: its executions would be orphans.
            if loop is not None and loop.task is not None:
                for _ in range(200):
                    if not (loop.busy and self._claimer.in_flight and name == "dispatcher"):
                        break
                    await asyncio.sleep(0.01)
                loop.task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for name in names:
            self._loops.pop(name, None)

    def _wake_dispatcher(self) -> None:
        self._dispatcher.wake.set()

    def _notified(self, payload: str) -> None:
        self._dispatcher.wake.set()
        if payload == "cancel":
            self._heartbeats.look_now()

    async def _pulse(self) -> float:
        """The runner is seen; what may be stale or due to resume is passed on."""
        sent = monotonic()
        async with self._pool.connection() as c:
            answer = await self._statements.pulse(c, **self._seen())
            pulse = await answer.fetchone()
        assert pulse is not None
        if self._clock.observe(pulse.now, sent):
            log.warning("database_clock_leapt", now=pulse.now.isoformat())
        self._dispatcher.steal_at = pulse.stale
        moments = [x for x in (pulse.stale, pulse.resumes) if x is not None]
        due = min((self._clock.until(x) for x in moments), default=None)
        if due is not None and due <= 0:
            self._wake("sweeper")
            if pulse.stale is not None and pulse.stale <= pulse.now:
                self._dispatcher.wake.set()
            return min(1.0, self._poll_seconds())
        return self._poll_seconds() if due is None else min(self._poll_seconds(), due + 0.05)

    def _wake(self, name: str) -> None:
        if name in self._loops:
            self._loops[name].wake.set()

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
        now = monotonic()
        away = None if self._away_since is None else now - self._away_since
        stuck = next(
            (x.name for x in self._loops.values() if x.busy and now - x.at > STUCK_SECONDS), None
        )
        dispatcher = self._loops.get("dispatcher")
        running = self._executor.running if self.state != "starting" else 0
        return Health(
            self.state,
            "ok" if away is None else "away",
            None if away is None else round(away, 1),
            stuck if away is None else None,
            running,
            self.settings.slots,
            round(now - (dispatcher.at if dispatcher else self._begun), 1),
        )


def _functions(
    apps: Sequence[App], functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Bound]:
    found = {name: bind(function) for name, function in functions.items()}
    for app in apps:
        for name, job in app.jobs.items():
            found[job.target["function"]] = bind(app.handlers[name])
    return found


def _providers(apps: Sequence[App]) -> dict[str, tuple[Any, Callable[[], Any]]]:
    return {
        name: (app.jobs[name], provider) for app in apps for name, provider in app.providers.items()
    }
