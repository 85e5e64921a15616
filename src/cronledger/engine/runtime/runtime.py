"""The runtime of one runner: it builds the components, drives their loops, and stops them in order.

`cronledger.replica.Replica` is its public interface.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from importlib import metadata
from time import monotonic
from typing import Any

import psycopg
from psycopg import errors
from psycopg_pool import PoolTimeout

from cronledger.app import App
from cronledger.engine.apps import AppRegistry
from cronledger.engine.maintenance.check_in import State, take_name
from cronledger.engine.running.ended import Ended
from cronledger.engine.runtime.assembly import Components, ttl
from cronledger.engine.runtime.diagnostics import MOST_KEPT, Diagnostics, Health
from cronledger.engine.runtime.drain import DrainReport
from cronledger.engine.runtime.lifespans import CLOSE_SECONDS, Lifespans
from cronledger.engine.runtime.manual import Ran
from cronledger.engine.runtime.measuring import Measuring
from cronledger.ledger import identity
from cronledger.ledger import migrate as migrations
from cronledger.ledger.access import Access
from cronledger.ledger.rows import CheckInReply
from cronledger.ledger.statements import Statements
from cronledger.logger import get_logger
from cronledger.metrics.measurements import Observation
from cronledger.rules.model import Status
from cronledger.settings import Settings
from cronledger.sources.apply import Applied, Retired

log = get_logger(__name__)

POOL_SIZE = 5
"""One connection for each loop, so that no loop waits for a step of another one."""
FLUSH_SECONDS = 10.0
PING_SECONDS = 5.0
"""The seconds for which a drain waits for pings."""


class Runtime:
    """One runner, from its start to the end of its drain.

    The components call its public methods `ledger_became` to `describe` when something concerns
    other components too (see `assembly.Coordinator`).
    """

    def __init__(
        self, settings: Settings, url: str, apps: AppRegistry, *, applied: bool, manual: bool
    ) -> None:
        self.settings = settings
        self.state: State = "starting"
        self.apps = apps
        self.lifespans = Lifespans(apps, self._functions_changed)
        self.expected = identity.ExpectedLedger(settings.schema_name)
        self.measuring = Measuring(settings.queues)
        self.access = Access.from_settings(settings, url, self.expected)
        self._components: Components | None = None
        self._applied = applied
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

    async def start(self, before: Callable[[], Awaitable[None]] | None) -> None:
        """See `Replica.start`. If it raises, nothing of the runner is left behind."""
        self._statements = Statements(self.settings.schema_name)
        self.pool = self.access.pool("cronledger", POOL_SIZE)
        built = False
        try:
            await self._open()
            self._components = Components(
                self.settings, self.access, self.pool, self._statements,
                apps=self.apps, lifespans=self.lifespans, measuring=self.measuring,
                coordinator=self, runner=self.runner_id, expected=self.expected,
            )  # fmt: skip
            built = True
            self.pool.moved = self.database_unreachable
            await self.components.supervisor.start()
            self.components.heartbeats.start()
            await self.check_in()
            if not self._applied:
                await self.components.lifecycle.apply_all()
            if before is not None:
                await before()
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
            host=socket.gethostname(),
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
        drive("check_in", self.check_in, observes_clock=True)
        drive("sweeper", parts.sweeper.step)
        drive("scopes", parts.scopes.step)
        drive("alerts", parts.alerts.step)
        drive("deliveries", parts.deliveries.step)
        drive("dispatcher", parts.dispatcher.step, observes_clock=True)
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
        try:
            self.components.deliveries.stop_claiming()
            await drain.stop_claiming()
            self.components.loops.wake("check_in")  # so that others see the runner drain
            await drain.wait_idle(began + patience - monotonic(), self._aborting)
            await drain.stop_running(self.diagnostics().executions)
            await self.components.deliveries.close(began + patience - monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self.components.finisher.wait_empty()
            await self.components.loops.halt()
            await self._sign_off()
            await self.components.pings.close(PING_SECONDS)
        finally:
            self._report = drain.report()
            async with (
                AsyncExitStack() as ending
            ):  # each step happens, even if one before it raises
                ending.callback(self._note_stopped, began)
                # Nothing of the ledger waits for the lifespans: no lease is extended any more.
                ending.push_async_callback(self._close_lifespans, began + patience)
                await self._close()
        return self._report

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

    # -- between the components -------------------------------------------------------------------

    def ledger_became(self, other: identity.OtherLedger) -> bool:
        """Return whether the runner's own ledger has become the `other` one.

        This happens when the runner waited in a refused copy, and the copy was accepted as a ledger
        of its own. The acceptance includes the runners that were waiting there.
        """
        if self.components.dispatcher.refused is None or other.copy_of != self.expected.id:
            return False
        self.expected.id = other.id
        return True

    def database_unreachable(self) -> None:
        """Handle a step that could not read the database's clock."""
        self.components.clock.distrust()
        self.components.loops.wake("check_in")  # which detects the recovery, and restores the trust

    def connection_lost(self) -> None:
        """Handle a lost connection: a check-in shows whether the database is unreachable."""
        self.components.loops.wake("check_in")

    def listening_stopped(self) -> None:
        """Handle the loss of LISTEN: the dispatcher must not sleep until a notification."""
        self.connection_lost()
        self.components.loops.wake("dispatcher")

    def notified(self, payload: str) -> None:
        """Handle a notification of the ledger, or the start of LISTEN (`connected`)."""
        if self.components.awaited.note(payload):
            return
        if payload == "alerts":
            self.components.loops.wake("deliveries")
            return
        self.components.loops.wake("dispatcher")
        if payload in ("jobs", "accepted", "connected"):
            # Jobs were edited, or may be those of a restored ledger.
            self.components.peers.reconsider()
            self.components.dispatcher.reconsider()
        if payload in ("accepted", "connected"):
            self.components.loops.wake("sweeper")  # which may have been refused here
        # Requests to cancel may have been missed while the runner did not listen.
        if payload in ("cancel", "connected"):
            self.components.heartbeats.renew_now()

    def written(self, ended: Sequence[Ended], *, may_start: bool) -> None:
        """Handle outcomes that are committed. `may_start`: others may start because of them."""
        if may_start or self.components.dispatcher.starved:
            self.components.loops.wake("dispatcher")
        self.components.manual.ended(ended)
        self.measuring.written(ended)
        if any(x.outcome.status is Status.FAILED for x in ended):
            self.components.alerts.failed()
        for x in ended:
            self.components.monitoring.ended(
                x.lease, x.outcome, release=x.release, duration_ms=x.duration_ms
            )
        if self.state in ("draining", "stopped"):
            self.components.drain.ended(ended)

    async def check_in(self) -> float:
        """Check in, and wake the loops that the reply concerns.

        Return the seconds until the next check-in. Raises psycopg.Error if the database is
        unreachable or contains another ledger.
        """
        parts, poll = self.components, self.components.poll()
        reply = await parts.check_ins.check_in(examine=parts.sweeper.examines(within=poll))
        if parts.loops.answered():
            parts.loops.wake("listener")
        if not parts.claimer.in_flight:
            targets = (x.lease.job.target for x in parts.executor.executions())
            self.apps.forget({x["python"] for x in targets if "python" in x})
        parts.dispatcher.steal_at = reply.stale
        moments = [x for x in (reply.stale, reply.resumes) if x is not None]
        due = min((parts.clock.until(x) for x in moments), default=None)
        stale = due is not None and due <= 0
        if parts.sweeper.note(reply, stale=stale):
            parts.loops.wake("sweeper")
        if reply.refused is None:
            parts.monitoring.ledger_is_alive()
        parts.alerts.note(watching=reply.alerts)
        parts.deliveries.note(watching=reply.alerts)
        if reply.refused is None and (deadline := parts.sweeper.deadline_wait()) is not None:
            parts.loops.wake_within("sweeper", deadline)
        self._wake_dispatcher(reply)
        if stale:
            return min(1.0, poll)
        return poll if due is None else min(poll, due + 0.05)

    def _wake_dispatcher(self, reply: CheckInReply) -> None:
        """Wake the dispatcher for what a check-in has found, perhaps without a notification."""
        parts = self.components
        if (reply.refused is None) != (parts.dispatcher.refused is None):
            parts.loops.wake("dispatcher")  # the database was replaced or accepted
        elif reply.refused is None:
            if reply.stale is not None and reply.stale <= reply.now:
                parts.loops.wake("dispatcher")
            # The clock is better known than when the dispatcher planned its next step.
            for instant in (reply.due, parts.dispatcher.next_at):
                if instant is not None:
                    parts.loops.wake_within("dispatcher", parts.clock.until(instant))

    def _functions_changed(self) -> None:
        """Publish that functions were withheld, so that other runners claim their executions."""
        if self.state == "running":
            self.components.loops.wake("check_in")

    def describe(self) -> dict[str, Any]:
        """Return the columns of the runner's row that change, and the jobs that it ignores."""
        return {
            "state": "draining" if self.state in ("draining", "stopped") else "running",
            "running": self.components.executor.running,
            "handlers": sorted(self.apps.claimable),
            "excluded_jobs": self.components.dispatcher.excluded_jobs(),
            "diagnostics": self.diagnostics().as_json(MOST_KEPT),
        }

    # -- requests of the host program -------------------------------------------------------------

    async def register(self, app: App, *, force: bool) -> Applied:
        """See `Replica.register`."""
        async with self._changing_apps:
            self._require_running("register")
            applied = await self.components.lifecycle.register(app, force=force)
        self._reconsider()
        return applied

    async def unregister(self, app: App) -> Retired:
        """See `Replica.unregister`."""
        async with self._changing_apps:
            self._require_running("unregister")
            done = await self.components.lifecycle.unregister(app)
        self.components.heartbeats.renew_now()
        self._reconsider()
        return done

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
        return self.components.inspector.diagnose(
            runner=self.runner_id,
            state=self.state,
            queues=self.settings.queues,
            apps=[app.name or "" for app in self.apps.apps],
        )

    def health(self) -> Health:
        """See `Replica.health`."""
        if self.state == "starting":
            age = round(monotonic() - self._created, 1)
            return Health(self.state, "ok", None, None, 0, self.settings.slots, age)
        return self.components.inspector.health(self.state)

    def observation(self) -> Observation:
        """Return the present state, from which the metrics are made. Any thread may call this."""
        counts = self.measuring.begin()
        if self._components is None:
            return Observation(counts, self.state, True, self.settings.slots)
        return self._components.inspector.observe(self.state, counts)

    def _require_running(self, what: str) -> None:
        if self.state != "running":
            raise RuntimeError(f"cannot {what}: the replica is {self.state}, not running")

    def _reconsider(self) -> None:
        """Reconsider parked and excluded jobs, because the functions have changed."""
        self.components.sweeper.full_round()
        self.components.dispatcher.reconsider()
        for loop in ("sweeper", "scopes", "dispatcher"):
            self.components.loops.wake(loop)
