"""A replica: builds the engine, drives its loops, stops it. Embeddable in any asyncio program."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from time import monotonic
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import errors
from psycopg_pool import PoolTimeout

from cronledger.app import App
from cronledger.engine.diagnostics import MOST_KEPT, Diagnostics, Health
from cronledger.engine.draining import DrainReport
from cronledger.engine.finisher import Ended
from cronledger.engine.parts import Hooks, Parts, ttl
from cronledger.engine.plugins import Plugins, source_of
from cronledger.engine.presence import State, take_name
from cronledger.engine.stepping import Ran
from cronledger.ledger import identity
from cronledger.ledger import migrate as migrations
from cronledger.ledger.database import Access
from cronledger.ledger.server import ServerSettings
from cronledger.ledger.statements import Statements
from cronledger.logger import follow, get_logger
from cronledger.rules.errors import ConfigurationError, Problem
from cronledger.settings import EMBEDDED, Settings
from cronledger.sources.apply import Applied, Retired

__all__ = ["Applied", "Diagnostics", "DrainReport", "Health", "Ran", "Replica", "Retired", "State"]

log = get_logger(__name__)

POOL_SIZE = 5
"""One for each loop that steps: who waits for a connection waits for the database."""
CLAIM_SECONDS = 2.0
FLUSH_SECONDS = 10.0


class Replica:
    """One runner: `async with Replica(app, url=...)` claims and runs what is due until the block
    ends, and then drains.

    `apps` are applied under their names and run, unless `applied` (somebody checked the schema and
    did that already); more can come and go with `register` and `unregister`. `functions`: further
    handlers by `module:qualname`. `settings` default to those of the environment, `url` to their
    database.
    `manual`: nothing runs by itself; a test calls `step`.
    """

    def __init__(
        self,
        *apps: App,
        url: str | None = None,
        settings: Settings | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        applied: bool = False,
        manual: bool = False,
    ) -> None:
        self.settings = settings or Settings.load()
        self.state: State = "starting"
        self._url = url or _url(self.settings)
        self._expected = identity.ExpectedLedger(self.settings.schema_name)
        self._access = Access(
            self._url,
            prepare=not self.settings.pgbouncer,
            connect_timeout=self.settings.connect_timeout,
            lock_timeout=self.settings.lock_timeout,
            tcp_user_timeout=self.settings.tcp_user_timeout,
            expected=self._expected,
        )
        self._plugins = Plugins(functions or {})
        for app in apps:
            if not applied:
                source_of(app)
            self._plugins.add(app)
        self._applied = applied
        self._manual = manual
        self._runner_id: str | None = self.settings.runner_id
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._report = DrainReport()
        self._begun = monotonic()

    @property
    def runner_id(self) -> str:
        """Its name in the ledger: the configured one, else `host-pid`, known once it has started.

        Raises RuntimeError before that.
        """
        if self._runner_id is None:
            raise RuntimeError("the runner has its name once it has started")
        return self._runner_id

    # -- life -----------------------------------------------------------------------------------

    async def start(self, *, before: Callable[[], Awaitable[None]] | None = None) -> None:
        """Registered, its apps applied, and everything runs (nothing by itself when `manual`).

        Log settings that were given take effect, see `logger.follow`. `before` is awaited once all
        that a start needs was found, and before anything is claimed. What it raises ends the start.

        Raises psycopg.OperationalError when the database is away or refuses the connection,
        MigrationError where there is no ledger or an older one, ConfigurationError when a job
        belongs to another source, OtherDatabaseError where the ledger was restored or cloned, and
        what else hinders a start; then nothing runs.
        """
        follow(self.settings)
        self._statements = Statements(self.settings.schema_name)
        self._pool = self._access.pool("cronledger", POOL_SIZE)
        built = False
        try:
            await self._pool.open()
            await self._pool.wait(self.settings.connect_timeout.total_seconds())
            if not self._applied:
                await asyncio.to_thread(self._require_schema)
            await self._begin_in_ledger()
            self._runner_id = await take_name(
                self._pool, self._statements, self.settings, ttl(self.settings), self._expected.id
            )
            self._parts = Parts(
                self.settings, self._access, self._pool, self._statements,
                plugins=self._plugins, hooks=Hooks(
                    self._became, self._went_away, self._suspected, self._not_listening,
                    self._written, self._notified, self._pulse, self._described,
                ),
                runner=self.runner_id, expected=self._expected,
            )  # fmt: skip
            built = True
            self._pool.moved = self._went_away
            await self._parts.supervisor.start()
            self._parts.heartbeats.start()
            await self._pulse()
            if not self._applied:
                await self._parts.registry.apply_all()
            if before is not None:
                await before()
        except BaseException as error:
            if built:
                await self._sign_off(False)
            await (self._close() if built else self._pool.close(timeout=2))
            if isinstance(error, PoolTimeout):
                # The pool's own error only reports that it waited; its cause is why it did.
                raise psycopg.OperationalError(str(error)) from error
            raise
        self.state = "running"
        self._drive()
        log.info(
            "runner_started",
            runner=self.runner_id,
            ledger=str(self._expected.id),
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=list(self.settings.queues),
            slots=self.settings.slots,
            apps=[app.name for app in self._plugins.apps],
            functions=len(self._plugins.claimable),
            version=metadata.version("cronledger"),
        )

    def _require_schema(self) -> None:
        schema = self.settings.schema_name
        migrations.require_current(migrations.check(self._url, schema), schema)

    async def _begin_in_ledger(self) -> None:
        """The ledger of this database is the one that the runner works in from now on."""
        try:
            async with self._pool.connection() as c:
                found = await (await self._statements.read_server_settings(c)).fetchone()
                assert found is not None
                server = ServerSettings(*found)
                server.require()
                row = await (await self._statements.begin_in_ledger(c)).fetchone()
            assert row is not None
            self._expected.id = row[1]
            if server.not_durable:
                log.warning("server_not_durable", off=list(server.not_durable))
        except (errors.InvalidSchemaName, errors.UndefinedTable, errors.UndefinedFunction):
            await asyncio.to_thread(self._require_schema)  # which names what is missing
            raise
        except psycopg.Error as error:
            why = identity.refusal(error)
            if why is None:
                raise
            raise identity.OtherDatabaseError(why) from error

    def _drive(self) -> None:
        dispatcher = self._parts.dispatcher
        self._parts.loops.drive("finisher", self._parts.finisher.step, self._parts.finisher.wake)
        if self._manual:
            return
        self._parts.loops.drive("pulse", self._pulse, reads_clock=True)
        self._parts.loops.drive("sweeper", self._parts.sweeper.step)
        self._parts.loops.drive("scopes", self._parts.scopes.step)
        self._parts.loops.drive("dispatcher", dispatcher.step, dispatcher.wake, reads_clock=True)
        if self._parts.waker is not None:
            self._parts.loops.drive("waker", self._parts.waker.step)

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

    async def drain(self, timeout: float | None = None) -> DrainReport:  # noqa: ASYNC109
        """Stop claiming, let running work finish for `timeout` seconds (default: drain_timeout),
        then stop it and give back the rest; answers how it ended.

        Idempotent: a second call waits for the first, and answers the same.
        """
        if self.state != "running":
            if self.state == "draining":
                await self._ended.wait()
            return self._report
        self.state = "draining"
        patience = self.settings.drain_timeout.total_seconds() if timeout is None else timeout
        began = monotonic()
        running = self._parts.executor.running
        log.info("runner_draining", runner=self.runner_id, running=running, patience_s=patience)
        try:
            claim_cut_off = await self._stop_claiming()
            await self._wait_idle(patience)
            self._parts.draining.deadline(self.diagnostics().executions)
            await self._stop_running()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._parts.finisher.drained()
            await self._parts.loops.halt()
            await self._sign_off(claim_cut_off)
        finally:
            self._report = self._parts.draining.report()
            await self._close()
            self.state = "stopped"
            log.info(
                "runner_stopped",
                runner=self.runner_id,
                finished=self._report.finished,
                given_back=self._report.given_back,
                failed=self._report.failed,
                unfinished=self._report.unfinished,
                after_s=round(monotonic() - began, 3),
            )
            self._ended.set()
        return self._report

    async def abort(self) -> DrainReport:
        """Stop now: handlers are cancelled and their executions given back or failed; a drain that
        is waiting for them waits no more. Idempotent; answers as `drain` does.
        """
        self._stopping.set()
        return await self.drain(0)

    async def _stop_claiming(self) -> bool:
        """No claim is in flight; answers whether one had to be cut off."""
        # A claim in the middle of its commit is let end: its executions would be orphans.
        cut_off = self._parts.claimer.in_flight and not await self._parts.loops.finish(
            "dispatcher", CLAIM_SECONDS
        )
        await self._parts.loops.halt("dispatcher", "scopes", "waker")
        self._parts.loops.wake("pulse")  # others see that it drains
        return cut_off

    async def _wait_idle(self, patience: float) -> None:
        idle = asyncio.ensure_future(self._parts.executor.idle())
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([idle, stop], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        stop.cancel()

    async def _stop_running(self) -> None:
        left = self._parts.executor.executions()
        if not left:
            return
        for running in left:
            self._parts.executor.stop(running, "shutdown")
        with suppress(TimeoutError):
            async with asyncio.timeout(self._parts.executor.GRACE + 1):
                await self._parts.executor.idle()
        for running in self._parts.executor.executions():
            self._parts.executor.abandon(running)

    async def _sign_off(self, cut_off: bool) -> None:
        """The runner is seen to have left; what a claim that was cut off won goes back."""
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(2):
                if cut_off:
                    await self._parts.claimer.settle_unknown()
                async with self._pool.connection() as c:
                    await self._statements.stop_runner(c, self.runner_id, self._expected.id)

    async def _close(self) -> None:
        """What was begun has ended; heartbeats last, because what ends needs its lease."""
        if self._parts.waker is not None:
            await self._parts.waker.close()
        await self._parts.supervisor.close()
        self._parts.heartbeats.close()
        self._parts.executor.close()
        await self._pool.close(timeout=2)
        self._parts.threads.close()
        self._parts.scopes.close()

    # -- between the parts ----------------------------------------------------------------------

    def _went_away(self) -> None:
        self._parts.clock.distrust()
        self._parts.loops.wake("pulse")  # it notices the return, and begins the new time of trust

    def _became(self, other: identity.OtherLedger) -> bool:
        """A copy in which the replica waited, refused, was accepted as a ledger of its own: whoever
        accepted it decided about the replicas that were there."""
        if self._parts.dispatcher.refused is None or other.copy_of != self._expected.id:
            return False
        self._expected.id = other.id
        return True

    def _suspected(self) -> None:
        self._parts.loops.wake("pulse")  # its own failure decides whether the database is away

    def _not_listening(self) -> None:
        self._suspected()
        self._parts.dispatcher.wake.set()  # its sleep relied on being woken

    def _notified(self, payload: str) -> None:
        self._parts.dispatcher.wake.set()
        if payload in ("jobs", "accepted", "connected"):
            # Jobs were edited, or may be those of a restored ledger.
            self._parts.planners.reconsider()
            self._parts.dispatcher.reconsider()
        # A cancel may have been among what was notified while nobody listened.
        if payload in ("cancel", "connected"):
            self._parts.heartbeats.look_now()

    def _written(self, ended: Sequence[Ended]) -> None:
        self._parts.dispatcher.wake.set()
        self._parts.stepping.ended(ended)
        if self.is_draining:
            self._parts.draining.ended(ended)

    async def _pulse(self) -> float:
        """The runner is seen; what may be stale or due to resume is passed on."""
        pulse = await self._parts.presence.pulse()
        if self._parts.loops.answered():
            self._parts.loops.wake("waker")
        if not self._parts.claimer.in_flight:
            running = self._parts.executor.executions()
            self._plugins.forget(
                {
                    x.lease.job.target["function"]
                    for x in running
                    if "function" in x.lease.job.target
                }
            )
        self._parts.dispatcher.steal_at = pulse.stale
        moments = [x for x in (pulse.stale, pulse.resumes) if x is not None]
        due = min((self._parts.clock.until(x) for x in moments), default=None)
        if due is not None and due <= 0:
            self._parts.loops.wake("sweeper")
            if pulse.stale is not None and pulse.stale <= pulse.now:
                self._parts.dispatcher.wake.set()
            return min(1.0, self._parts.poll())
        return self._parts.poll() if due is None else min(self._parts.poll(), due + 0.05)

    def _described(self) -> dict[str, Any]:
        return {
            "state": "draining" if self.is_draining else "running",
            "running": self._parts.executor.running,
            "handlers": sorted(self._plugins.claimable),
            "diagnostics": self.diagnostics().as_json(MOST_KEPT),
        }

    # -- plugins --------------------------------------------------------------------------------

    async def register(self, app: App, *, force: bool = False) -> Applied:
        """`app` belongs to this replica: its jobs are applied under its name, and run from now on;
        what was due while they were retired does not.

        Where a newer deploy was applied before, `refused` says so, and its jobs stand (`force`
        overrides). Raises ConfigurationError for an App without a name, or with a job or function
        that another has, psycopg.Error when the database is away; then nothing has changed.
        """
        self._must_run("register")
        applied = await self._parts.registry.register(app, force=force)
        self._reconsider()
        return applied

    async def unregister(self, app: App) -> Retired:
        """`app` belongs to this replica no more: its jobs retire, what waited of them is CANCELLED,
        what runs was asked to end (its handlers may still be at it). A job whose function another
        live runner has stays as it is, and what runs of it here runs on.

        Raises ValueError when it is not registered, psycopg.Error when the database is away; then
        it is registered as before, though its jobs may have retired: call it again.
        """
        self._must_run("unregister")
        done = await self._parts.registry.unregister(app)
        self._parts.heartbeats.look_now()
        self._reconsider()
        return done

    def _must_run(self, what: str) -> None:
        if self.state != "running":
            raise RuntimeError(f"cannot {what}: the replica is {self.state}, not running")

    def _reconsider(self) -> None:
        """What this runner can run has changed: what is parked or left to others is looked at."""
        self._parts.sweeper.full_round()
        self._parts.dispatcher.reconsider()
        for loop in ("sweeper", "scopes"):
            self._parts.loops.wake(loop)

    # -- what people ask ------------------------------------------------------------------------

    async def step(self) -> tuple[Ran, ...]:
        """Only when `manual`: everything due now was claimed and run, to its end, and is written;
        answers what ran, in the order of the ends.

        What these executions make due runs as well, but no schedule's later plan_time. Raises
        RuntimeError when not `manual` or not running, psycopg.Error when the database is away.
        """
        if not self._manual:
            raise RuntimeError("step() is for a Replica(..., manual=True); this one runs by itself")
        self._must_run("step")
        return await self._parts.stepping.step()

    def diagnostics(self) -> Diagnostics:
        """How it is now. Any thread may ask, once it has started; raises RuntimeError before."""
        return self._parts.seen.diagnose(
            runner=self.runner_id,
            state=self.state,
            queues=self.settings.queues,
            apps=[app.name or "" for app in self._plugins.apps],
        )

    def health(self) -> Health:
        """Whether it takes work and gets on. Does not block."""
        if self.state == "starting":
            age = round(monotonic() - self._begun, 1)
            return Health(self.state, "ok", None, None, 0, self.settings.slots, age)
        return self._parts.seen.health(self.state)


def _url(settings: Settings) -> str:
    url = settings.require_database()
    if url != EMBEDDED:
        return url
    raise ConfigurationError(
        [
            Problem(
                None, None, "url", EMBEDDED, "is what `cronledger run` starts by itself",
                "start cronledger.ledger.embedded.Embedded, and hand over the DSN it answers",
            )
        ]
    )  # fmt: skip
