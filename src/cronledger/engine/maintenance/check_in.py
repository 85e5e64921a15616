"""Check-ins: a runner takes a name, updates its row in `runners`, and polls.

A check-in is one statement. It returns what the runner has to do and does not know from its own
claims and from notifications, so that an idle runner needs no other periodic statement.
"""

import asyncio
import math
import os
import platform
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import metadata
from time import monotonic
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from cronledger.engine.clock import DatabaseClock
from cronledger.engine.event import Event
from cronledger.engine.maintenance.boot import boot_of
from cronledger.engine.maintenance.sweeper import EXAMINE_SECONDS, SLACK_SECONDS, Sweeper
from cronledger.engine.peers import NewerPeers
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.identity import ExpectedLedger
from cronledger.ledger.rows import CheckInReply
from cronledger.ledger.statements import Statements
from cronledger.logs.loggers import get_logger
from cronledger.rules import cron
from cronledger.settings import Settings

log = get_logger(__name__)

State = Literal["starting", "running", "draining", "stopped"]

CHECK_IN_SECONDS = 3.0
FAILING_SECONDS = 5.0
"""The longest time between two check-ins while a loop fails, so that the row shows the end soon."""
MOST_EXAMINED = 10_000
"""The number of parked schedules, and of jobs with parked schedules, that a check-in examines."""
MOST_NAMES = 100
LONGEST_HOST = 150
VERSION = metadata.version("cronledger")  # read once: it parses a file


async def take_name(
    pool: AsyncPool,
    statements: Statements,
    settings: Settings,
    ttl: timedelta,
    ledger: UUID | None = None,
) -> str:
    """Return the name of this runner, and take over its row.

    A configured name is used as it is, so that a restarted process continues under it. The default
    is `host-pid`, or `host-pid-2` and so on while a live runner has that name, because containers
    may have the same host name and pid.
    """
    if settings.runner_id is not None:
        return settings.runner_id
    host, pid = settings.host, os.getpid()
    first = f"{host[:LONGEST_HOST]}-{pid}"
    async with pool.connection() as c:
        for number in range(1, MOST_NAMES):
            name = first if number == 1 else f"{first}-{number}"
            taken = await statements.take_name(
                c, runner=name, host=host, pid=pid, version=VERSION,
                queues=list(settings.queues), slots=settings.slots, ttl=ttl, ledger=ledger,
            )  # fmt: skip
            if await taken.fetchone() is not None:
                return name
    return f"{first}-{os.urandom(4).hex()}"


class CheckIn:
    """Updates the runner's row, and polls.

    `kinds`: the handler kinds that the runner claims. `described` returns what changes: the columns
    state, running, handlers, diagnostics and deploy; excluded_jobs, the jobs that it ignores for
    now; and due_from, the instant before which no schedule is due, as far as it knows. `poll`
    returns the seconds between two polls, and `failing` whether a loop fails.

    Event: `checked_in`, the reply of the ledger.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        clock: DatabaseClock,
        peers: NewerPeers,
        settings: Settings,
        *,
        sweeper: Sweeper,
        expected: ExpectedLedger,
        runner: str,
        ttl: timedelta,
        kinds: Sequence[str],
        described: Callable[[], dict[str, Any]],
        poll: Callable[[], float],
        failing: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._peers = peers
        self._sweeper = sweeper
        self._settings = settings
        self._expected = expected
        self._runner = runner
        self._ttl = ttl
        self._kinds = list(kinds)
        self._described = described
        self._poll = poll
        self._failing = failing
        self._one_at_a_time = asyncio.Lock()
        self._boot = boot_of(settings.boot_id)
        self._searched_at = -math.inf
        self._namesakes: set[str] | None = None
        self.checked_in = Event[[CheckInReply]]()

    async def step(self) -> float:
        """Check in. Return the seconds until the next check-in.

        Raises psycopg.Error if the database is unreachable or contains another ledger.
        """
        poll = self._poll()
        reply = await self._send(examine=self._sweeper.examines(within=poll))
        wait = None if reply.next_end is None else self._clock.until(reply.next_end)
        self.checked_in(reply)
        if self._failing():
            poll = min(poll, FAILING_SECONDS)
        return poll if wait is None else min(poll, wait + 0.05 if wait else 1.0)

    async def _send(self, *, examine: bool) -> CheckInReply:
        """Write the current state of the runner, and return the reply of the ledger.

        `examine`: the reply also contains what a crash left behind. Every 30 s all due schedules
        are searched, and otherwise those that are due from `due_from` on.
        """
        # One at a time, because an older state must not overwrite a newer one.
        async with self._one_at_a_time, self._pool.connection(CHECK_IN_SECONDS) as c:
            sent = monotonic()
            row = self._row()
            if examine or sent >= self._searched_at + EXAMINE_SECONDS - SLACK_SECONDS:
                row["due_from"] = None
            result = await self._statements.check_in(
                c, **row, most=MOST_EXAMINED if examine else None
            )
            reply = await result.fetchone()
            if row["due_from"] is None:
                self._searched_at = sent
        assert reply is not None
        if self._clock.observe(reply.now, sent):
            log.warning("database_clock_jumped", now=reply.now.isoformat())
        self._warn_of(reply.namesake)
        if self._peers.observe(reply.others):
            log.info("planning_delegated", **self._peers.described())
        return reply

    def _warn_of(self, namesake: str | None) -> None:
        """Warn once of each other process that checks in under the name of this runner.

        The first check-in may follow that of an earlier process, which has ended.
        """
        if self._namesakes is None:
            self._namesakes = set()
        elif namesake is not None and namesake not in self._namesakes:
            self._namesakes.add(namesake)
            log.warning("runner_id_shared", other=namesake)

    def _row(self) -> dict[str, Any]:
        described = self._described()
        return {
            "runner": self._runner,
            "ledger": self._expected.id,
            "host": self._settings.host,
            "pid": os.getpid(),
            "version": VERSION,
            "queues": list(self._settings.queues),
            "labels": self._settings.all_labels,
            "boot_id": self._boot and self._boot.id,
            "uptime": self._boot and self._boot.uptime,
            "slots": self._settings.slots,
            "ttl": self._ttl,
            "clock_skew": self._clock.skew() or timedelta(0),
            "kinds": self._kinds,
            "sql_commands": self._settings.allow_sql_commands,
            "fingerprint": {**self._peers.fingerprint},
            **described,
            "diagnostics": Jsonb(described["diagnostics"]),
        }


def fingerprint() -> dict[str, str]:
    """Return the versions of Python and of the libraries and data that interpret schedules."""
    return {"python": platform.python_version(), **cron.FINGERPRINT}
