"""Assembly: builds and connects the components of one runner, which `Runtime` drives."""

import os
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from cronledger.engine.alerting.deliveries import Deliveries
from cronledger.engine.apps import AppRegistry
from cronledger.engine.awaited import Awaited
from cronledger.engine.claiming.abilities import KINDS, Abilities
from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.claiming.dispatcher import Dispatcher
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.commands.client import Supervisor
from cronledger.engine.lease import Leases
from cronledger.engine.maintenance.alerts import Alerts
from cronledger.engine.maintenance.check_in import CheckIn, fingerprint
from cronledger.engine.maintenance.listener import Listener
from cronledger.engine.maintenance.scope_providers import ScopeProviders
from cronledger.engine.maintenance.sweeper import Sweeper
from cronledger.engine.monitoring.monitoring import Monitoring
from cronledger.engine.monitoring.pings import Pings
from cronledger.engine.monitoring.sentry import SentryCheckIns
from cronledger.engine.peers import NewerPeers
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.executor import Executor
from cronledger.engine.running.finisher import Finisher
from cronledger.engine.running.follow_up import FollowUp
from cronledger.engine.running.handlers.command import CommandHandlers
from cronledger.engine.running.handlers.http import HttpHandlers
from cronledger.engine.running.handlers.python import PythonHandlers
from cronledger.engine.running.handlers.sql import SqlHandlers
from cronledger.engine.running.handlers.transaction import Connections
from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.runtime.app_lifecycle import AppLifecycle
from cronledger.engine.runtime.diagnostics import Inspector
from cronledger.engine.runtime.drain import Drain
from cronledger.engine.runtime.lifespans import Lifespans
from cronledger.engine.runtime.loops import Loops
from cronledger.engine.runtime.manual import ManualSteps
from cronledger.engine.runtime.measuring import Measuring
from cronledger.engine.threads import Threads
from cronledger.ledger.access import Access
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.identity import ExpectedLedger, OtherLedger
from cronledger.ledger.statements import Statements
from cronledger.settings import Settings
from cronledger.tracing.interface import tracing_of

LONGEST_REST = 180.0
"""The time in seconds after which an idle runner claims although no poll found anything due, so
that a fault of its claims becomes visible."""
SECRETS = (
    "CRONLEDGER_DATABASE_URL", "CRONLEDGER_LISTEN_URL", "CRONLEDGER_WEB_READ_URL",
    "CRONLEDGER_WEB_ACT_URL", "CRONLEDGER_WEB_TOKENS", "PGPASSWORD",
)  # fmt: skip
"""Environment variables that commands do not inherit, in upper or lower case."""


class Coordinator(Protocol):
    """The methods that components call to affect other components. `Runtime` implements them."""

    def ledger_became(self, other: OtherLedger) -> bool: ...
    def database_unreachable(self) -> None: ...
    def connection_lost(self) -> None: ...
    def listening_stopped(self) -> None: ...
    def notified(self, payload: str) -> None: ...
    def written(self, ended: Sequence[Ended], *, may_start: bool) -> None: ...
    async def check_in(self) -> float: ...
    def describe(self) -> dict[str, Any]: ...


def ttl(s: Settings) -> timedelta:
    """Return the age of its last check-in at which a runner counts as dead."""
    listens = s.listen_url is not None or not s.pgbouncer
    return timedelta(seconds=3 * s.poll_seconds(listening=listens) + 5)


class Components:
    """The components of one runner, built and not yet started."""

    def __init__(
        self,
        settings: Settings,
        access: Access,
        pool: AsyncPool,
        statements: Statements,
        *,
        apps: AppRegistry,
        lifespans: Lifespans,
        measuring: Measuring,
        coordinator: Coordinator,
        runner: str,
        expected: ExpectedLedger,
    ) -> None:
        self._settings = s = settings
        self._access = access
        self._pool = pool
        self._statements = statements
        self._apps = apps
        self._lifespans = lifespans
        self._runner = runner
        self.clock = DatabaseClock()
        self.loops = Loops(
            coordinator.database_unreachable, coordinator.connection_lost, coordinator.ledger_became
        )
        self.listener = self._listener(coordinator)
        self.leases = Leases()
        self.awaited = Awaited()
        self.peers = NewerPeers(fingerprint())
        self.supervisor = Supervisor(
            {key: value for key, value in os.environ.items() if key.upper() not in SECRETS}
        )
        self.threads = Threads("handler")
        self.pings = Pings(allow_private=s.ping_allow_private)
        self.monitoring = Monitoring(
            self.pings, s.ping_url, SentryCheckIns() if s.sentry_check_ins else None
        )
        self.heartbeats = Heartbeats(
            self._access, self._statements, self.leases, self.supervisor.extend
        )
        self.finisher = Finisher(
            self._pool, self._statements, self.leases, coordinator.written,
            FollowUp(self._pool, self._statements, self.awaited), lost=measuring.lost,
        )  # fmt: skip
        self.executor = Executor(
            self.leases,
            self.finisher,
            PythonHandlers(self._apps.callable, self.threads, s.max_result_bytes),
            CommandHandlers(self.supervisor, s.output_tail_bytes),
            sql=SqlHandlers(s.output_tail_bytes),
            http=HttpHandlers(s.output_tail_bytes),
            connections=Connections(self._access, self._statements, self.threads),
            runner=self._runner,
            slots=s.slots,
            freed=self._slot_freed,
            added=self.heartbeats.added,
            begun=self.monitoring.started,
            lost=measuring.lost,
            tracing=tracing_of(s),
        )
        self.claimer = Claimer(
            self._pool,
            self._statements,
            self.clock,
            Abilities(self._apps.claimable, s.allow_sql_commands, peers=self.peers),
            runner=self._runner,
            queues=s.queues,
            traces=s.tracing,
        )
        self.dispatcher = Dispatcher(
            self.claimer,
            self.clock,
            free=self.executor.free,
            start=self.executor.start,
            rest=self._rest,
            claimed=measuring.claimed,
        )
        self._build_maintenance(coordinator, expected)
        self._build_control(coordinator, expected)

    def _build_maintenance(self, coordinator: Coordinator, expected: ExpectedLedger) -> None:
        """Build the sweeper, the alerts, the check-ins and the scope providers."""
        s = self._settings
        self.sweeper = Sweeper(
            self._pool,
            self._statements,
            self.clock,
            self.awaited,
            retention=s.retention,
            width=s.partition_interval,
            rearmed=partial(self.loops.wake, "dispatcher"),
            swept=self.monitoring.swept,
        )
        self.alerts = Alerts(
            self._pool,
            self._statements,
            wake=partial(self.loops.wake, "alerts"),
            deliver=partial(self.loops.wake, "deliveries"),
        )
        self.deliveries = Deliveries(
            self._pool, self._statements, self.clock, self.supervisor, runner=self._runner,
            slots=s.alert_slots, wake=partial(self.loops.wake, "deliveries"),
        )  # fmt: skip
        self.check_ins = CheckIn(
            self._pool,
            self._statements,
            self.clock,
            self.peers,
            s,
            expected=expected,
            runner=self._runner,
            ttl=ttl(s),
            kinds=KINDS,
            described=coordinator.describe,
        )
        self.scopes = ScopeProviders(
            self._pool, self._statements, self._apps.providers, runner=self._runner
        )

    def _build_control(self, coordinator: Coordinator, expected: ExpectedLedger) -> None:
        """Build the components that act on others: diagnostics, drain, Apps, manual steps."""
        self.inspector = Inspector(
            self.dispatcher, self.executor, self.finisher, self.leases, self.loops,
            self.heartbeats, self.listener, self._lifespans, self.clock,
        )  # fmt: skip
        self.drain = Drain(self._runner, self.claimer, self.executor, self.finisher, self.loops)
        self.lifecycle = AppLifecycle(
            self._apps, self._lifespans, self._access.url, expected, self._runner,
            coordinator.check_in, self._unused,
        )  # fmt: skip
        self.manual = ManualSteps(
            self.dispatcher, self.executor, self.finisher, self.sweeper, self.scopes,
            self.alerts, self.deliveries, coordinator.check_in, self.clock,
        )  # fmt: skip

    def _listener(self, coordinator: Coordinator) -> Listener | None:
        """Return None if the runner cannot LISTEN. It then polls."""
        access = self._access.for_listening(self._settings)
        if access is None:
            return None
        schema = self._settings.schema_name
        return Listener(access, schema, coordinator.notified, coordinator.listening_stopped)

    async def _unused(self, functions: Collection[str]) -> None:
        """Wait for the ends of the executions of these functions, which are not claimable."""
        await self.claimer.wait_idle()  # its claim may have begun when they were
        await self.executor.wait_ended(functions)

    def _slot_freed(self) -> None:
        if self.dispatcher.starved:
            self.loops.wake("dispatcher")

    def poll(self) -> float:
        """Return the seconds between two polls. They are fewer while the runner cannot LISTEN."""
        listening = self.listener is not None and self.listener.listening
        return self._settings.poll_seconds(listening=listening)

    def _rest(self) -> float:
        """Return the longest time in seconds between two claims."""
        return max(LONGEST_REST, self.poll())
