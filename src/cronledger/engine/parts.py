"""The parts of one runner, made and joined; `Replica` drives them."""

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cronledger.engine.choose import Abilities
from cronledger.engine.claim import Claimer
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.commands import Supervisor
from cronledger.engine.diagnostics import Seen
from cronledger.engine.dispatcher import Dispatcher
from cronledger.engine.draining import Draining
from cronledger.engine.executor import Executor
from cronledger.engine.finisher import Ended, Finisher
from cronledger.engine.handlers.command import CommandHandlers
from cronledger.engine.handlers.http import HttpHandlers
from cronledger.engine.handlers.python import PythonHandlers
from cronledger.engine.handlers.sql import SqlHandlers
from cronledger.engine.handlers.threads import Threads
from cronledger.engine.handlers.transaction import Connections
from cronledger.engine.leases import Heartbeats, Leases
from cronledger.engine.loops import Loops
from cronledger.engine.planners import Planners
from cronledger.engine.plugins import Plugins
from cronledger.engine.presence import Presence, fingerprint
from cronledger.engine.registry import Registry
from cronledger.engine.scopes import Scopes
from cronledger.engine.stepping import Stepping
from cronledger.engine.sweeper import Sweeper
from cronledger.engine.waker import Waker
from cronledger.ledger.database import Access, AsyncPool
from cronledger.ledger.identity import ExpectedLedger, OtherLedger
from cronledger.ledger.statements import Statements
from cronledger.settings import Settings

LISTENING_POLL = 15.0
SECRETS = ("CRONLEDGER_DATABASE_URL", "CRONLEDGER_LISTEN_URL", "PGPASSWORD")
"""Variables, in any case of letters, that commands do not inherit."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the parts tell the replica, and ask of it.

    `became`: a step was refused by another ledger; whether the replica's own has become that one.
    `went_away`: a step that reads the clock got no answer. `suspected`: some other connection got
    none. `not_listening`: LISTEN was lost.
    """

    became: Callable[[OtherLedger], bool]
    went_away: Callable[[], None]
    suspected: Callable[[], None]
    not_listening: Callable[[], None]
    written: Callable[[Sequence[Ended]], None]
    notified: Callable[[str], None]
    pulse: Callable[[], Awaitable[float]]
    described: Callable[[], dict[str, Any]]


def poll_seconds(s: Settings, *, listening: bool) -> float:
    """How often a runner looks for work though nothing wakes it."""
    poll = s.poll_interval.total_seconds()
    return max(poll, LISTENING_POLL) if listening and poll == 5.0 else poll


def ttl(s: Settings) -> timedelta:
    """A runner that has not been seen for so long is dead."""
    listens = s.listen_url is not None or not s.pgbouncer
    return timedelta(seconds=3 * poll_seconds(s, listening=listens) + 5)


class Parts:
    """Everything of one runner that has a name, built and not yet started."""

    def __init__(
        self,
        settings: Settings,
        access: Access,
        pool: AsyncPool,
        statements: Statements,
        *,
        plugins: Plugins,
        hooks: Hooks,
        runner: str,
        expected: ExpectedLedger,
    ) -> None:
        self._settings = s = settings
        self._access = access
        self._pool = pool
        self._statements = statements
        self._plugins = plugins
        self._runner = runner
        self.clock = DatabaseClock()
        self.loops = Loops(hooks.went_away, hooks.suspected, hooks.became)
        self.waker = self._listener(hooks)
        self.leases = Leases()
        self.planners = Planners(fingerprint())
        self.supervisor = Supervisor(
            {key: value for key, value in os.environ.items() if key.upper() not in SECRETS}
        )
        self.threads = Threads("handler")
        self.heartbeats = Heartbeats(
            self._access, self._statements, self.leases, self.supervisor.extend
        )
        self.finisher = Finisher(self._pool, self._statements, self.leases, hooks.written)
        self.executor = Executor(
            self.leases,
            self.finisher,
            PythonHandlers(self._plugins.callable, self.threads, s.max_result_bytes),
            CommandHandlers(self.supervisor, s.output_tail_bytes),
            sql=SqlHandlers(s.output_tail_bytes),
            http=HttpHandlers(s.output_tail_bytes),
            connections=Connections(self._access, self._statements, self.threads),
            runner=self._runner,
            slots=s.slots,
            freed=self.wake_dispatcher,
            added=self.heartbeats.wake,
        )
        self.claimer = Claimer(
            self._pool,
            self._statements,
            self.clock,
            Abilities(self._plugins.claimable, s.allow_sql_commands, planners=self.planners),
            runner=self._runner,
            queues=s.queues,
        )
        self.dispatcher = Dispatcher(
            self.claimer,
            self.clock,
            free=self.executor.free,
            start=self.executor.start,
            poll=self.poll,
        )
        self._housekeeping(hooks, expected)

    def _housekeeping(self, hooks: Hooks, expected: ExpectedLedger) -> None:
        s = self._settings
        self.sweeper = Sweeper(
            self._pool,
            self._statements,
            self.clock,
            retention=s.retention,
            width=s.partition_interval,
            rearmed=self.wake_dispatcher,
            stagger=random.random(),
        )
        self.presence = Presence(
            self._pool,
            self._statements,
            self.clock,
            self.planners,
            s,
            expected=expected,
            runner=self._runner,
            ttl=ttl(s),
            described=hooks.described,
        )
        self.seen = Seen(
            self.dispatcher, self.executor, self.finisher, self.leases, self.loops,
            self.heartbeats, self.waker,
        )  # fmt: skip
        self.draining = Draining(self._runner, self.executor, self.finisher)
        self.registry = Registry(
            self._plugins, self._access.url, expected, self._runner, hooks.pulse
        )
        self.scopes = Scopes(
            self._pool, self._statements, self._plugins.providers, runner=self._runner
        )
        self.stepping = Stepping(
            self.dispatcher, self.executor, self.finisher, self.sweeper, self.scopes,
            hooks.pulse, self.clock,
        )  # fmt: skip

    def _listener(self, hooks: Hooks) -> Waker | None:
        """None behind a pooler that was given no DSN to LISTEN on: polling suffices."""
        s = self._settings
        if s.listen_url is not None:
            access = Access(s.listen_url.get_secret_value())
        elif s.pgbouncer:
            return None
        else:
            access = self._access
        return Waker(access, s.schema_name, hooks.notified, hooks.not_listening)

    def poll(self) -> float:
        """How often the runner looks for work now: more often while it cannot LISTEN."""
        listening = self.waker is not None and self.waker.listening
        return poll_seconds(self._settings, listening=listening)

    def wake_dispatcher(self) -> None:
        """The dispatcher looks for work now."""
        self.dispatcher.wake.set()
