"""One replica as a process: it prepares the ledger, runs, drains on a signal, and always exits.

The first SIGTERM or SIGINT drains, the second stops running work, the third ends the process. A
SIGTERM that only repeats another signal does not count (`Signals`).
SIGUSR1 logs the state of the process.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from cronledger.declaring.app import App
from cronledger.engine.log_throttle import LogThrottle, reason
from cronledger.extras import require_http
from cronledger.ledger import identity
from cronledger.ledger import migrate as migrations
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import is_unreachable, refused_connection_remedy
from cronledger.ledger.reports import Reports
from cronledger.logs.loggers import get_logger
from cronledger.logs.output import configure
from cronledger.process.metrics import ProcessMetrics, require_usable
from cronledger.process.service_manager import ServiceManager
from cronledger.process.signals import ABORT_SECONDS, Signals, Watchdog
from cronledger.process.stacks import Reporter
from cronledger.process.state_reporter import StateReporter
from cronledger.replica import Health, Replica
from cronledger.rules.problems import ConfigurationError, Exit, Problem
from cronledger.settings import EMBEDDED, PREFIX, Settings
from cronledger.sources.apply import ApplyRequest
from cronledger.tracing.interface import require_extra

if TYPE_CHECKING:
    from cronledger.embedded.server import Embedded
    from cronledger.process.health import HealthServer
    from cronledger.process.summary import Summary

log = get_logger(__name__)

T = TypeVar("T")
DRAIN_MARGIN_SECONDS = 30.0
EXIT_SECONDS = 3.0
COLLECT_AFTER = 2_000
"""The number of unfreed objects that starts a garbage collection. Python's default is 700."""


def tune_gc() -> None:
    """Collect garbage less often, and exclude the objects that exist now.

    Otherwise the collector's walks through modules and waiting executions take a third of the time
    of a busy replica.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """The options of a process.

    `request`: the source that is applied at the start; None: nothing is applied. `patience`: the
    time to wait for an unreachable database at the start.
    """

    settings: Settings
    request: ApplyRequest | None = None
    warnings: Sequence[Problem] = ()
    apps: Sequence[App] = ()
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    migrate: bool = True
    summary: bool = False
    patience: timedelta = timedelta(seconds=60)

    def run(self) -> Exit:
        """Run in the main thread until a signal.

        Return FINE after a drain, and FAILED after an aborted drain. Raises ConfigurationError,
        LifespanError, EmbeddedError, MigrationError, SchemaNewerError, OtherDatabaseError or
        psycopg.Error if the replica cannot start. Afterwards the process exits within seconds, even
        if its threads hang.
        """
        configure(self.settings.log_format, self.settings.log_level)
        self.settings.require_database()
        require_extra(self.settings)
        require_usable(self.settings)
        if self.settings.health_port is not None:
            require_http(PREFIX + "HEALTH_PORT")
        watchdog = Watchdog()
        code = Exit.FAILED
        try:
            code = asyncio.run(self._serve(watchdog))
        finally:
            # Handlers that continue in threads must not keep the process alive.
            watchdog.end_within(EXIT_SECONDS, code)
        return code

    async def _serve(self, watchdog: Watchdog) -> Exit:
        for problem in self.settings.warnings():
            log.warning("setting_unknown", problem=str(problem))
        for problem in self.warnings:
            log.warning("declaration_warning", problem=str(problem))
        async with AsyncExitStack() as stack:
            patience = self.settings.drain_timeout.total_seconds() + DRAIN_MARGIN_SECONDS
            work = Daemon(self, ServiceManager.from_environment())
            reporter = Reporter(asyncio.get_running_loop(), work.diagnose)
            stack.callback(reporter.close)
            signals = stack.enter_context(Signals(watchdog, patience, reporter.request))
            stack.push_async_callback(work.close)
            reporting = asyncio.ensure_future(work.report(signals.first))
            stack.callback(reporting.cancel)
            await work.listen()
            if await work.prepare(signals.first):
                await work.run(signals)
            code = Exit.FAILED if signals.second.is_set() else Exit.FINE
            watchdog.end_within(ABORT_SECONDS, code)
        # asyncio.run waits for threads that may hang.
        watchdog.end_within(EXIT_SECONDS, code)
        return code


class Daemon:
    """The resources of a daemon while it runs. `close` releases them."""

    def __init__(self, daemon: DaemonOptions, manager: ServiceManager | None = None) -> None:
        self._daemon = daemon
        self._settings = daemon.settings
        stop_seconds = daemon.settings.drain_timeout.total_seconds() + DRAIN_MARGIN_SECONDS
        self._reporter = StateReporter(
            manager or ServiceManager(None), self._read_health, stop_seconds + EXIT_SECONDS
        )
        self._health: HealthServer | None = None
        self._metrics: ProcessMetrics | None = None
        self._embedded: Embedded | None = None
        self._embedding: asyncio.Future[str] | None = None
        self._replica: Replica | None = None
        self._unreachable: str | None = None  # why the start waits for the database
        self._url = ""
        self._summary: Summary | None = None

    async def listen(self) -> None:
        """Start the HTTP endpoints, if a port is set."""
        host, port = self._settings.health_host, self._settings.health_port
        if port is None:
            return
        from cronledger.process.health import HealthServer  # noqa: PLC0415 - aiohttp

        if self._settings.metrics:
            self._metrics = ProcessMetrics(self._settings, lambda: self._unreachable is None)
        render = None if self._metrics is None else self._metrics.render
        self._health = HealthServer(host, port, self._read_health, self.diagnose, render)
        try:
            port = await self._health.start()
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror}"
            remedy = f"free it, or set another {PREFIX}HEALTH_PORT (0: any)"
            raise ConfigurationError(
                [Problem(None, None, PREFIX + "HEALTH_PORT", str(port), message, remedy)]
            ) from None
        log.info("health_listening", host=host, port=port)

    async def report(self, stop: asyncio.Event) -> None:
        """Report the state to the service manager until this task is cancelled."""
        await self._reporter.run(stop)

    def _read_health(self) -> Health:
        if self._replica is not None:
            return self._replica.health()
        why, slots = self._unreachable, self._settings.slots
        if why is None:
            return Health("starting", "ok", None, None, 0, slots, 0.0)
        return Health("starting", "away", None, None, 0, slots, 0.0, {"start": why})

    def diagnose(self) -> dict[str, Any]:
        """Return the state of the replica as plain values. Thread-safe.

        Before the replica has started, the result is only its health.
        """
        replica = self._replica
        if replica is None or replica.state == "starting":
            return asdict(self._read_health())
        return replica.diagnostics().as_json()

    async def prepare(self, stop: asyncio.Event) -> bool:
        """Prepare the start of the replica. Return False if `stop` was set in the meantime."""
        task = asyncio.ensure_future(self._prepare(stop))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            await task
            return True
        task.cancel()
        return False

    async def _prepare(self, stop: asyncio.Event) -> None:
        self._url = self._settings.require_database()
        if self._url == EMBEDDED:
            from cronledger.embedded.server import Embedded  # noqa: PLC0415 - subprocess, ctypes

            self._embedded = Embedded(self._settings.embedded_dir, self._settings.embedded_binaries)
            self._embedding = asyncio.ensure_future(asyncio.to_thread(self._embedded.start))
            self._url = await asyncio.shield(self._embedding)
            log.info("embedded_started", url=self._url)
        await self._when_reachable(self._ready, stop)

    async def _ready(self) -> None:
        await asyncio.to_thread(self._migrate)
        await asyncio.to_thread(self._require_own_database)
        if self._daemon.summary:
            from cronledger.process.summary import Summary  # noqa: PLC0415 - wcwidth

            self._summary = await asyncio.to_thread(self._report, Summary.begin)

    async def _when_reachable(
        self, work: Callable[[], Awaitable[None]], stop: asyncio.Event
    ) -> bool:
        """Call `work`, and retry it while the database is unreachable.

        Return False if `stop` was set in the meantime. Raises psycopg.Error if the database is
        unreachable for longer than `patience`, and at once if the server refuses the connection.
        """
        deadline, lines = None, LogThrottle()
        while not stop.is_set():
            try:
                await work()
            except psycopg.Error as error:
                if not is_unreachable(error) or refused_connection_remedy(error) is not None:
                    raise
                deadline = deadline or monotonic() + self._daemon.patience.total_seconds()
                left = deadline - monotonic()
                if left <= 0:
                    raise
                self._unreachable = reason(error)
                if lines.due(self._unreachable):
                    log.warning("database_awaited", error=self._unreachable, timeout_s=round(left))
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(1.0, left)):
                        await stop.wait()
            else:
                if self._unreachable is not None:
                    log.info("database_reached")
                    self._unreachable = None
                return True
        return False

    def _connect(self, name: str) -> psycopg.Connection:
        return Access.from_settings(self._settings, self._url).connect(name)

    def _migrate(self) -> None:
        """Apply pending migrations, or check them. Raises MigrationError, SchemaNewerError."""
        schema = self._settings.schema_name
        if self._daemon.migrate:
            for name in migrations.migrate(self._url, schema, phases=("pre", "repeated")):
                log.info("migration_applied", name=name)
        state = migrations.check(self._url, schema)
        migrations.require_current(state, schema)
        for found in state.pending:
            log.info("migration_pending", name=found.name)

    def _require_own_database(self) -> None:
        """Raise OtherDatabaseError before anything is applied to a copy of the ledger."""
        with self._connect("cronledger start") as connection:
            identity.require_own(connection, self._settings.schema_name)

    async def run(self, signals: Signals) -> None:
        """Run until the first signal, then drain. The second signal aborts."""
        if not await self._start(signals.first):
            return
        replica = self._replica
        assert replica is not None
        self._reporter.report()
        await signals.first.wait()
        log.info("drain_requested")
        drain = asyncio.ensure_future(replica.drain())
        again = asyncio.ensure_future(signals.second.wait())
        await asyncio.wait([drain, again], return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not drain.done():
            log.warning("abort_requested")
            await replica.abort()
        await drain
        await self._summarize()

    async def _start(self, stop: asyncio.Event) -> bool:
        """Start the replica. Return False if `stop` was set before it had started."""
        start = asyncio.ensure_future(self._when_reachable(self._start_replica, stop))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not start.done():
            start.cancel()  # a lifespan may take any time to begin
            await asyncio.wait([start])
        return not start.cancelled() and start.result()

    async def _start_replica(self) -> None:
        self._replica = None
        request = self._daemon.request
        replica = Replica(
            *self._daemon.apps,
            url=self._url,
            # --deploy and the file take precedence over the setting.
            settings=self._settings.model_copy(
                update={"deploy": None if request is None else request.deploy}
            ),
            functions=self._daemon.functions,
            applied=True,
            request=request,
        )
        if self._metrics is not None:
            self._metrics.show(replica)
        await replica.start()
        self._replica = replica
        tune_gc()

    async def _summarize(self) -> None:
        if self._summary is None:
            return
        try:
            text = await asyncio.to_thread(self._report, self._summary.text)
        except psycopg.OperationalError as error:
            if not is_unreachable(error):
                raise
            log.warning("database_unreachable", error=reason(error))
            return
        sys.stdout.write(text)
        sys.stdout.flush()

    def _report(self, read: Callable[[Reports], T]) -> T:
        with self._connect("cronledger summary") as connection:
            return read(Reports.over(connection, self._settings.schema_name))

    async def close(self) -> None:
        """Stop the HTTP endpoints, and release the embedded server."""
        if self._health is not None:
            await self._health.close()
        if self._embedded is not None and self._embedding is not None:
            # Its start may still be in progress in a thread.
            await asyncio.wait([self._embedding])
            self._embedding.exception()
            await asyncio.to_thread(self._embedded.close)
