"""Assembly: builds the components of one runner, which `reactions` connects."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from cronledger.engine.alerting.deliveries import Deliveries
from cronledger.engine.apps import AppRegistry
from cronledger.engine.awaited import Awaited
from cronledger.engine.claiming.abilities import KINDS, Abilities
from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.claiming.dispatcher import Dispatcher
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.commands.client import Supervisor
from cronledger.engine.late import Late
from cronledger.engine.lease import Leases
from cronledger.engine.maintenance.alerts import Alerts
from cronledger.engine.maintenance.check_in import CheckIn, State, fingerprint
from cronledger.engine.maintenance.gates import Gates
from cronledger.engine.maintenance.listener import Listener
from cronledger.engine.maintenance.scope_providers import ScopeProviders
from cronledger.engine.maintenance.sweeper import Sweeper
from cronledger.engine.monitoring.monitoring import Monitoring
from cronledger.engine.monitoring.pings import Pings
from cronledger.engine.monitoring.sentry import SentryCheckIns
from cronledger.engine.peers import NewerPeers
from cronledger.engine.running.executor import Executor
from cronledger.engine.running.finisher import Finisher
from cronledger.engine.running.follow_up import FollowUp
from cronledger.engine.running.handlers.command import CommandHandlers
from cronledger.engine.running.handlers.python import PythonHandlers
from cronledger.engine.running.handlers.sql import SqlHandlers
from cronledger.engine.running.handlers.transaction import Connections
from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.running.output import LiveOutput
from cronledger.engine.running.upstreams import Upstreams
from cronledger.engine.runtime.app_lifecycle import AppLifecycle
from cronledger.engine.runtime.diagnostics import Inspector
from cronledger.engine.runtime.drain import Drain
from cronledger.engine.runtime.lifespans import Lifespans
from cronledger.engine.runtime.loops import Loops
from cronledger.engine.runtime.manual import ManualSteps
from cronledger.engine.runtime.measuring import Measuring
from cronledger.engine.threads import Threads
from cronledger.extras import require_http
from cronledger.ledger.access import Access
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.identity import ExpectedLedger, OtherLedger
from cronledger.ledger.statements import Statements
from cronledger.settings import Settings
from cronledger.sources.apply import ApplyRequest
from cronledger.tracing.interface import tracing_of

if TYPE_CHECKING:
    from cronledger.engine.running.handlers.http import HttpHandlers

LONGEST_REST = 180.0
"""The time in seconds after which an idle runner claims although no poll found anything due, so
that a fault of its claims becomes visible."""
SECRETS = (
    "CRONLEDGER_DATABASE_URL", "CRONLEDGER_LISTEN_URL", "CRONLEDGER_WEB_READ_URL",
    "CRONLEDGER_WEB_ACT_URL", "CRONLEDGER_WEB_TOKENS", "PGPASSWORD",
)  # fmt: skip
"""Environment variables that commands do not inherit, in upper or lower case."""


def ttl(s: Settings) -> timedelta:
    """Return the age of its last check-in at which a runner counts as dead."""
    listens = s.listen_url is not None or not s.pgbouncer
    return timedelta(seconds=3 * s.poll_seconds(listening=listens) + 5)


class Components:
    """The components of one runner, built, and neither connected nor started.

    `state` returns the state of the runner.
    """

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
        state: Callable[[], State],
        runner: str,
        expected: ExpectedLedger,
        applied: bool,
        request: ApplyRequest | None,
    ) -> None:
        self._settings = s = settings
        self._access = access
        self._statements = statements
        self._runner = runner
        self._expected = expected
        self.apps = apps
        self.pool = pool
        self.lifespans = lifespans
        self.measuring = measuring
        self.clock = DatabaseClock()
        self.loops = Loops(self._became)
        listens_with = access.for_listening(s)
        self.listener = None if listens_with is None else Listener(listens_with, s.schema_name)
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
        self._build_running()
        self._build_claiming()
        self._build_maintenance(state)
        self.drain = Drain(self._runner, self.claimer, self.executor, self.finisher, self.loops)
        self.lifecycle = AppLifecycle(
            apps, lifespans, access.url, expected, runner, self.check_ins, self.claimer,
            self.executor, applied, request,
        )  # fmt: skip
        self.manual = ManualSteps(
            self.dispatcher, self.executor, self.finisher, self.gates, self.sweeper, self.scopes,
            self.alerts, self.deliveries, self.check_ins, self.clock,
        )  # fmt: skip

    def _build_running(self) -> None:
        """Build what runs executions: the heartbeats, the finisher, the executor."""
        s = self._settings
        self.heartbeats = Heartbeats(self._access, self._statements, self.leases)
        self.finisher = Finisher(
            self.pool, self._statements, self.leases,
            FollowUp(self.pool, self._statements, self.awaited),
        )  # fmt: skip
        self.output = LiveOutput(self.pool, self._statements, s.output_tail_bytes)
        self.executor = Executor(
            self.leases,
            self.finisher,
            PythonHandlers(self.apps.callable, self.threads, s.max_result_bytes),
            CommandHandlers(self.supervisor, s.output_tail_bytes),
            sql=SqlHandlers(s.output_tail_bytes),
            http=Late(self._make_http),
            connections=Connections(self._access, self._statements, self.threads),
            upstreams=Upstreams(self.pool, self._statements),
            output=self.output,
            runner=self._runner,
            slots=s.slots,
            tracing=tracing_of(s),
        )

    def _make_http(self) -> "HttpHandlers":
        require_http("handler http")
        from cronledger.engine.running.handlers.http import HttpHandlers  # noqa: PLC0415 - aiohttp

        return HttpHandlers(self._settings.output_tail_bytes)

    def _build_claiming(self) -> None:
        """Build what claims executions and scopes: the claimer, the dispatcher, the providers."""
        s = self._settings
        self.claimer = Claimer(
            self.pool,
            self._statements,
            self.clock,
            Abilities(
                self.apps.claimable,
                s.allow_sql_commands,
                s.all_labels,
                peers=self.peers,
            ),
            runner=self._runner,
            queues=s.queues,
            traces=s.tracing,
        )
        self.dispatcher = Dispatcher(
            self.claimer, self.clock, free=self.executor.free, rest=self._rest
        )
        self.scopes = ScopeProviders(
            self.pool, self._statements, self.apps.providers, runner=self._runner
        )

    def _build_maintenance(self, state: Callable[[], State]) -> None:
        """Build the sweeper, the alerts, the diagnostics and the check-ins."""
        s = self._settings
        self.sweeper = Sweeper(
            self.pool,
            self._statements,
            self.clock,
            self.awaited,
            width=s.partition_interval,
            hosts_retire_after=s.hosts_retire_after,
        )
        self.gates = Gates(self.pool, self._statements, self.clock)
        self.alerts = Alerts(self.pool, self._statements)
        self.deliveries = Deliveries(
            self.pool, self._statements, self.supervisor, runner=self._runner, slots=s.alert_slots
        )
        self.inspector = Inspector(
            self._runner, s, state, self.apps, self.dispatcher, self.executor, self.finisher,
            self.leases, self.loops, self.heartbeats, self.listener, self.lifespans, self.clock,
        )  # fmt: skip
        self.check_ins = CheckIn(
            self.pool,
            self._statements,
            self.clock,
            self.peers,
            s,
            sweeper=self.sweeper,
            expected=self._expected,
            runner=self._runner,
            ttl=ttl(s),
            kinds=KINDS,
            described=self.inspector.described,
            poll=self.poll,
            failing=self.loops.any_failing,
        )

    def _became(self, other: OtherLedger) -> bool:
        """Return whether the runner's own ledger has become the `other` one.

        This happens when the runner waited in a refused copy, and the copy was accepted as a ledger
        of its own. The acceptance includes the runners that were waiting there.
        """
        if self.dispatcher.refused is None or other.copy_of != self._expected.id:
            return False
        self._expected.id = other.id
        return True

    def poll(self) -> float:
        """Return the seconds between two polls. They are fewer while the runner cannot LISTEN."""
        return self._settings.poll_seconds(listening=self.inspector.listening)

    def _rest(self) -> float:
        """Return the longest time in seconds between two claims."""
        return max(LONGEST_REST, self.poll())
