"""The runtime of one runner: it starts the components, drives their loops, and drains them.

`cronledger.replica.Replica` is its public interface. `reactions` lists what the components cause.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from importlib import metadata
from time import monotonic

import psycopg
from psycopg import errors
from psycopg_pool import PoolTimeout

from cronledger.declaring.app import App
from cronledger.engine.apps import AppRegistry
from cronledger.engine.maintenance.check_in import State, take_name
from cronledger.engine.runtime.assembly import Components, ttl
from cronledger.engine.runtime.diagnostics import Diagnostics, Health
from cronledger.engine.runtime.drain import DrainReport
from cronledger.engine.runtime.lifespans import CLOSE_SECONDS, Lifespans
from cronledger.engine.runtime.manual import Ran
from cronledger.engine.runtime.measuring import Measuring
from cronledger.engine.runtime.reactions import connect
from cronledger.ledger import identity
from cronledger.ledger import migrate as migrations
from cronledger.ledger.access import Access
from cronledger.ledger.statements import Statements
from cronledger.logs.loggers import get_logger
from cronledger.metrics.measurements import Observation
from cronledger.settings import Settings
from cronledger.sources.apply import Applied, ApplyRequest, Retired

log = get_logger(__name__)

POOL_SIZE = 5
"""One connection for each loop, so that no loop waits for a step of another one."""
FLUSH_SECONDS = 10.0
PING_SECONDS = 5.0
"""The seconds for which a drain waits for pings."""


class Runtime:
    """One runner, from its start to the end of its drain."""

    def __init__(
        self,
        settings: Settings,
        url: str,
        apps: AppRegistry,
        *,
        applied: bool,
        manual: bool,
        request: ApplyRequest | None = None,
    ) -> None:
        self.settings = settings
        self.state: State = "starting"
        self.apps = apps
        self.lifespans = Lifespans(apps)
        self.expected = identity.ExpectedLedger(settings.schema_name)
        self.measuring = Measuring(settings.queues)
        self.access = Access.from_settings(settings, url, self.expected)
        self._components: Components | None = None
        self._applied = applied
        self._request = request
        self._manual = manual
        self._runner_id: str | None = settings.runner_id
        self._changing_apps = asyncio.Lock()
        self._aborting = asyncio.Event()
        self._stopped = asyncio.Event()
        self._report = DrainReport()
        self._created = monotonic()

    @property
    def runner_id(self) -> str:
        """The name of the runner. Raises RuntimeError before it is known."""
        if self._runner_id is None:
            raise RuntimeError("the runner has no name before it has started; call start() first")
        return self._runner_id

    @property
    def components(self) -> Components:
        """The components of the runner. Raises RuntimeError before it has started."""
        if self._components is None:
            raise RuntimeError("the replica has not started")
        return self._components

    # -- start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See `Replica.start`. If it raises, nothing of the runner is left behind."""
        self._statements = Statements(self.settings.schema_name)
        self.pool = self.access.pool("cronledger", POOL_SIZE)
        built = False
        try:
            await self._open()
            self._components = Components(
                self.settings, self.access, self.pool, self._statements,
                apps=self.apps, lifespans=self.lifespans, measuring=self.measuring,
                state=lambda: self.state, runner=self.runner_id, expected=self.expected,
                applied=self._applied, request=self._request,
            )  # fmt: skip
            built = True
            connect(self.components)
            await self.components.supervisor.start()
            self.components.heartbeats.start()
            await self.components.check_ins.step()
            await self.components.lifecycle.step()
        except BaseException as error:
            if built:
                await self._sign_off()
            try:
                await (self._close() if built else self.pool.close(timeout=2))
            finally:
                await self.lifespans.close(CLOSE_SECONDS)
            if isinstance(error, PoolTimeout):
                # The pool's own error only reports the wait. Its cause is the connection's error.
                raise psycopg.OperationalError(str(error)) from error
            raise
        self.state = "running"
        self._drive()
        log.info(
            "runner_started",
            runner=self.runner_id,
            ledger=str(self.expected.id),
            host=self.settings.host,
            pid=os.getpid(),
            queues=list(self.settings.queues),
            slots=self.settings.slots,
            apps=[app.name for app in self.apps.apps],
            functions=len(self.apps.claimable),
            version=metadata.version("cronledger"),
        )

    async def _open(self) -> None:
        """Connect, check the schema and the server, enter the lifespans, take a runner's name."""
        await self.pool.open()
        await self.pool.wait(self.settings.connect_timeout.total_seconds())
        if not self._applied:
            await asyncio.to_thread(self._require_schema)
        await self._begin_in_ledger()
        # Before the ledger knows the runner, because this may take long, or fail.
        await self.lifespans.enter_all()
        self._runner_id = await take_name(
            self.pool, self._statements, self.settings, ttl(self.settings), self.expected.id
        )

    def _require_schema(self) -> None:
        schema = self.settings.schema_name
        migrations.require_current(migrations.check(self.access.url, schema), schema)

    async def _begin_in_ledger(self) -> None:
        """Check the server and bind the runner to the ledger of this database."""
        try:
            async with self.pool.connection() as c:
                server = await (await self._statements.read_server_settings(c)).fetchone()
                assert server is not None
                server.require()
                self.expected.id = await (await self._statements.begin_in_ledger(c)).fetchone()
            if server.not_durable:
                log.warning("server_not_durable", off=list(server.not_durable))
        except (errors.InvalidSchemaName, errors.UndefinedTable, errors.UndefinedFunction):
            await asyncio.to_thread(self._require_schema)  # which names what is missing
            raise
        except psycopg.Error as error:
            why = identity.other_database_reason(error)
            if why is None:
                raise
            raise identity.OtherDatabaseError(why) from error

    def _drive(self) -> None:
        parts = self.components
        drive = parts.loops.drive
        drive("finisher", parts.finisher.step, parts.finisher.wake)
        if self._manual:
            return
        drive("check_in", parts.check_ins.step, observes_clock=True)
        drive("sweeper", parts.sweeper.step, parts.sweeper.wake)
        drive("gates", parts.gates.step, parts.gates.wake)
        drive("scopes", parts.scopes.step)
        drive("output", parts.output.step)
        drive("alerts", parts.alerts.step, parts.alerts.wake)
        drive("deliveries", parts.deliveries.step, parts.deliveries.wake)
        drive(
            "dispatcher", parts.dispatcher.step, parts.dispatcher.wake, observes_clock=True,
            at_once=True,
        )  # fmt: skip
        if parts.listener is not None:
            drive("listener", parts.listener.step)

    # -- end --------------------------------------------------------------------------------------

    async def drain(self, timeout: float | None) -> DrainReport:  # noqa: ASYNC109
        """See `Replica.drain`."""
        if self.state != "running":
            if self.state == "draining":
                await self._stopped.wait()
            return self._report
        self.state = "draining"
        patience = self.settings.drain_timeout.total_seconds() if timeout is None else timeout
        began = monotonic()
        drain, running = self.components.drain, self.components.executor.running
        log.info("runner_draining", runner=self.runner_id, running=running, timeout_s=patience)
        until = began + patience
        try:
            await _each(
                self._stop_claiming,
                lambda: drain.wait_idle(until - monotonic(), self._aborting),
                lambda: drain.stop_running(self.diagnostics().executions),
                lambda: self.components.deliveries.close(until - monotonic()),
                self._flush,
                self.components.loops.halt,
                self._sign_off,
                lambda: self.components.pings.close(PING_SECONDS),
            )
        finally:
            self._report = drain.report()
            self.components.finisher.close()
            try:
                # Nothing of the ledger waits for the lifespans: no lease is extended any more.
                await _each(self._close, lambda: self._close_lifespans(until))
            finally:
                self._note_stopped(began)
        return self._report

    async def _stop_claiming(self) -> None:
        self.components.deliveries.stop_claiming()
        await self.components.drain.stop_claiming()
        self.components.loops.wake("check_in")  # so that others see the runner drain

    async def _flush(self) -> None:
        """Wait FLUSH_SECONDS at most until all outcomes are written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.components.finisher.wait_empty()

    def _note_stopped(self, began: float) -> None:
        self.state = "stopped"
        log.info(
            "runner_stopped",
            runner=self.runner_id,
            finished=self._report.finished,
            released=self._report.released,
            failed=self._report.failed,
            unfinished=self._report.unfinished,
            after_s=round(monotonic() - began, 3),
        )
        self._stopped.set()

    async def abort(self) -> DrainReport:
        """See `Replica.abort`."""
        self._aborting.set()
        return await self.drain(0)

    async def _close_lifespans(self, until: float) -> None:
        """Close the lifespans. They have until this monotonic instant, at least CLOSE_SECONDS.

        An abort leaves them CLOSE_SECONDS from then on.
        """
        seconds = until - monotonic()
        closing = asyncio.ensure_future(self.lifespans.close(max(CLOSE_SECONDS, seconds)))
        aborted = asyncio.ensure_future(self._aborting.wait())
        await asyncio.wait([closing, aborted], return_when=asyncio.FIRST_COMPLETED)
        aborted.cancel()
        if not closing.done():
            closing.cancel()
            await self.lifespans.close(CLOSE_SECONDS)

    async def _sign_off(self) -> None:
        """Release what a claim has won and nobody started, and mark the runner as stopped.

        The claim was cut off, or the reply to its COMMIT was lost.
        """
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(2):
                await self.components.claimer.unknown_commits.resolve()
                async with self.pool.connection() as c:
                    await self._statements.stop_runner(c, self.runner_id, self.expected.id)

    async def _close(self) -> None:
        """Close what `start` opened, and all of it, even if something raises.

        The heartbeats end after the commands, which need leases.
        """
        parts = self.components
        async with AsyncExitStack() as closing:  # the last one closes first
            closing.callback(parts.scopes.close)
            closing.callback(parts.threads.close)
            closing.push_async_callback(self.pool.close, timeout=2)
            closing.callback(parts.executor.close)
            closing.callback(parts.heartbeats.close)
            closing.push_async_callback(parts.supervisor.close)
            if parts.listener is not None:
                closing.push_async_callback(parts.listener.close)

    # -- requests of the host program -------------------------------------------------------------

    async def register(self, app: App, *, force: bool) -> Applied:
        """See `Replica.register`."""
        async with self._changing_apps:
            self._require_running("register")
            return await self.components.lifecycle.register(app, force=force)

    async def unregister(self, app: App) -> Retired:
        """See `Replica.unregister`."""
        async with self._changing_apps:
            self._require_running("unregister")
            return await self.components.lifecycle.unregister(app)

    async def step(self) -> tuple[Ran, ...]:
        """See `Replica.step`."""
        if not self._manual:
            raise RuntimeError(
                "this replica runs by itself; step() needs Replica(..., manual=True)"
            )
        self._require_running("step")
        return await self.components.manual.step()

    def diagnostics(self) -> Diagnostics:
        """See `Replica.diagnostics`."""
        return self.components.inspector.diagnose()

    def health(self) -> Health:
        """See `Replica.health`."""
        if self.state == "starting":
            age = round(monotonic() - self._created, 1)
            return Health(self.state, "ok", None, None, 0, self.settings.slots, age)
        return self.components.inspector.health()

    def observation(self) -> Observation:
        """Return the current state, from which the metrics are made. Any thread may call this."""
        counts = self.measuring.begin()
        if self._components is None:
            return Observation(counts, self.state, True, self.settings.slots)
        return self._components.inspector.observe(counts)

    def _require_running(self, what: str) -> None:
        if self.state != "running":
            raise RuntimeError(f"cannot {what}: the replica is {self.state}, not running")


async def _each(*steps: Callable[[], Awaitable[object]]) -> None:
    """Await each step in this order, even if one before it raises."""
    async with AsyncExitStack() as stack:
        for step in reversed(steps):
            stack.push_async_callback(step)
