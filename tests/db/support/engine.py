"""A hand-driven engine: runners of one process whose single steps a test takes one by one."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from cronledger import testing
from cronledger.audit.verify import verify
from cronledger.engine.awaited import Awaited
from cronledger.engine.claiming.abilities import KINDS, Abilities
from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.claiming.dispatcher import Dispatcher
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.lease import Lease, Leases
from cronledger.engine.maintenance.gates import Gates
from cronledger.engine.maintenance.sweeper import Sweeper
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.finisher import Finisher, Settled
from cronledger.engine.running.follow_up import FollowUp
from cronledger.explain.findings import DoctorContext, Finding
from cronledger.ledger.access import Access
from cronledger.ledger.rows import CheckInReply
from cronledger.ledger.statements import Statements
from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome
from cronledger.settings import Settings
from tests.db.support import rows
from tests.db.support.rows import TARGETS, Db

FUNCTION = "tests:work"
JSON_COLUMNS = ("target", "payload", "requires", "after")
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3_600, 86_400))
FAILURE = outcome.failure(ValueError("no"))
TICK = timedelta(milliseconds=1)
_PARTITIONS = """
SELECT cronledger_internal.create_partitions(
    cronledger.db_now() - '1 day'::interval, cronledger.db_now() + '28 days'::interval, 604800)
"""


class Ledger(testing.Ledger):
    """What users have in their tests, and short ways to write and to read rows."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.db: Db = self._connection
        self.db.execute("SET search_path = cronledger")

    def values(self, statement: str, *values: object) -> list[Any]:
        """Return rows as tuples, and a row of one column as its value."""
        with self.db.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(statement.encode(), values or None)
            found = cursor.fetchall() if cursor.description is not None else []
        return [row[0] if len(row) == 1 else row for row in found]

    def one(self, statement: str, *values: object) -> Any:
        (row,) = self.values(statement, *values)
        return row

    def job(self, name: str = "job", **columns: Any) -> None:
        """INSERT a python job; intervals as text, everything else as its column wants it."""
        handler = columns.get("handler", "python")
        values = {"name": name, "handler": handler, "target": json.loads(TARGETS[handler])}
        rows.write(self.db, "jobs", **_adapted(values | columns))

    def runner(self, name: str = "r1", **columns: Any) -> None:
        """INSERT a runner that lives for a day; a dict as JSON."""
        alive = {"stale_after": self.now() + timedelta(days=1)}
        rows.runner(self.db, name, **_adapted(alive | columns))

    def channel(self, name: str = "ops", **settings: Any) -> None:
        """INSERT a channel of alerts, by default one that runs a command."""
        rows.channel(self.db, name, **settings)

    def deliver(self, *, accepted: bool) -> None:
        """End all deliveries that wait or run, as the last attempt of a replica does."""
        self.values(
            "UPDATE deliveries SET status = %s, due_at = NULL, lease_token = NULL,"
            " finished_at = db_clock(), error_code = %s, error_msg = %s WHERE due_at IS NOT NULL",
            *(("SUCCESS", None, None) if accepted else ("FAILED", "delivery_failed", "no route")),
        )  # fmt: skip

    def raise_alerts(self) -> list[tuple[str, str]]:
        """Take steps of the alerts until nothing is left. Return event and kind of all alerts."""
        while self.one("SELECT cronledger_internal.raise_alerts(1000)"):
            pass
        return self.values("SELECT event, kind FROM alerts ORDER BY id")

    def ended(
        self, plan_times: Sequence[datetime], statuses: str | Sequence[str] = "SUCCESS", *,
        late: timedelta | Sequence[timedelta] = timedelta(0), finished: datetime | None = None,
        **columns: Any,
    ) -> None:  # fmt: skip
        """INSERT ended executions, with the partitions of the first and the last one.

        Each started `late` after it was due, and ended then or at `finished`.
        """
        count = len(plan_times)
        statuses = [statuses] * count if isinstance(statuses, str) else statuses
        late = [late] * count if isinstance(late, timedelta) else late
        values = {"job_name": "job", "trigger": "schedule", "revision": 1, "duration_ms": 1,
                  "attempt": 1, "max_attempts": 1}  # fmt: skip
        values |= columns
        self.values(
            "SELECT cronledger_internal.create_missing_partitions(%s::timestamptz[])",
            [min(plan_times), max(plan_times)],
        )
        self.values(
            f"INSERT INTO executions ({', '.join(values)}, scope_kind, scope_id, plan_time, due_at,"
            " status, queue, lease_token, started_at, finished_at,"
            f" error_code, changed_xact) SELECT {', '.join(['%s'] * len(values))}, 'global',"
            " 'global', t.at, t.at, t.status, 'default', gen_random_uuid(), t.started,"
            " coalesce(%s::timestamptz, t.started), CASE t.status WHEN 'FAILED' THEN 'boom' END,"
            " pg_current_xact_id()"
            " FROM unnest(%s::timestamptz[], %s::text[], %s::timestamptz[]) t(at, status, started)",
            *values.values(), finished, list(plan_times), list(statuses),
            [at + after for at, after in zip(plan_times, late, strict=True)],
        )  # fmt: skip

    def edit(self, name: str = "job", **columns: Any) -> None:
        sets = ", ".join(f"{column} = %s" for column in columns)
        self.values(f"UPDATE jobs SET {sets} WHERE name = %s", *_adapted(columns).values(), name)

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Rows of `jobs` as an earlier version stored them, without today's checks."""
        self.values("ALTER TABLE jobs DISABLE TRIGGER check_values")
        yield
        self.values("ALTER TABLE jobs ENABLE TRIGGER check_values")

    def stop_clock(self, at: datetime) -> None:
        """The clock of the ledger stands still at this instant until `pass_time`."""
        self.values("UPDATE time_travel SET ahead = '0'")
        ahead = "(SELECT t.ahead FROM cronledger.time_travel t)"
        for clock in ("db_now", "db_clock"):
            self.show(f"'{at.isoformat()}'::timestamptz + {ahead}", clock)
        self.make_partitions()

    def show(self, instant: str, clock: str = "db_clock") -> None:
        """Let this clock show another instant from now on, which is an expression of SQL."""
        self.values(
            f"CREATE OR REPLACE FUNCTION cronledger.{clock}() RETURNS timestamptz LANGUAGE sql"
            f" {'STABLE' if clock == 'db_now' else 'VOLATILE'} AS $$ SELECT {instant} $$"
        )

    def make_partitions(self) -> None:
        """The partitions of the present, as `maintain_partitions()` makes them.

        None is dropped, so that the tests after this one can use the same database.
        """
        self.values(_PARTITIONS)

    def pass_time(self, by: timedelta) -> None:
        """Move a stopped clock."""
        self.values("UPDATE time_travel SET ahead = ahead + %s", by)

    def violations(self) -> list[str]:
        """What `verify` finds wrong."""
        return [str(violation) for violation in verify(self.url)]

    def trigger(self, job: str = "job", scope: str = "global", **arguments: Any) -> int:
        """Request an execution in a scope, and return its id."""
        if scope != "global":
            arguments = {"scope_kind": "shard", "scope_id": scope} | arguments
        return super().trigger(job, **arguments)

    def findings(self, check: Callable[[DoctorContext], Iterable[Finding]]) -> list[Finding]:
        """What a check of `doctor` finds."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return [*check(DoctorContext(connection, Settings(), self.url))]

    def parked(self, name: str = "job", scope: str = "global") -> str | None:
        found: str | None = self.one(
            "SELECT parked FROM schedules WHERE job_name = %s AND scope_id = %s", name, scope
        )
        return found

    def statuses(self, name: str = "job") -> list[str]:
        return self.values("SELECT status FROM executions WHERE job_name = %s ORDER BY 1", name)

    def skipped(self, name: str = "job") -> list[tuple[str, int]]:
        return self.values(
            "SELECT reason, count FROM skips WHERE job_name = %s ORDER BY from_plan_time", name
        )

    def expire(self, name: str = "job") -> None:
        """Every lease of the job has run out."""
        self.values(
            "UPDATE executions SET stale_after = db_now() - interval '1 s'"
            " WHERE job_name = %s AND status = 'RUNNING'", name,
        )  # fmt: skip

    def accounted(self, name: str = "job") -> int:
        """Plan_times of the schedule that have a row or lie in a skip; none may be in both."""
        assert not self.values(
            "SELECT e.id FROM executions e JOIN skips k USING (job_name, scope_kind, scope_id)"
            " WHERE e.trigger = 'schedule' AND e.job_name = %s"
            " AND e.plan_time BETWEEN k.from_plan_time AND k.through_plan_time", name,
        )  # fmt: skip
        count: int = self.one(
            "SELECT (SELECT count(*) FROM executions WHERE job_name = %(n)s AND trigger = "
            "'schedule') + (SELECT coalesce(sum(count), 0)::int FROM skips WHERE job_name = %(n)s)"
            .replace("%(n)s", "%s"), name, name,
        )  # fmt: skip
        return count


def _adapted(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the values as psycopg sends them: what is JSON in the ledger as JSON."""
    return {
        name: Jsonb(value)
        if (name in JSON_COLUMNS and (value is not None or name == "payload"))
        or isinstance(value, dict)
        else value
        for name, value in columns.items()
    }


@dataclass(eq=False)
class Runner:
    """One runner without loops and handlers: what it claims waits in `held` for `finish`."""

    url: str
    name: str
    functions: frozenset[str] = frozenset({FUNCTION})
    queues: Sequence[str] = ("default",)
    slots: int = 100
    allow_sql_commands: bool = False
    labels: Sequence[str] = ()
    boot_id: str | None = None
    uptime: timedelta = timedelta(seconds=10)
    traces: bool = False
    notified: bool = True
    held: list[Lease] = field(default_factory=list)
    written: list[Ended] = field(default_factory=list)
    lost: list[Ended] = field(default_factory=list)
    wakes: int = 0

    async def open(self) -> None:
        self.statements = Statements()
        self.pool = Access(self.url).pool(f"test {self.name}", 1)
        await self.pool.open()
        await self.pool.wait()
        self.clock, self.leases, self.awaited = DatabaseClock(), Leases(), Awaited()
        self.claimer = Claimer(
            self.pool, self.statements, self.clock,
            Abilities(self.functions, self.allow_sql_commands, self.labels), runner=self.name,
            queues=self.queues, traces=self.traces,
        )  # fmt: skip
        self.finisher = Finisher(
            self.pool, self.statements, self.leases,
            FollowUp(self.pool, self.statements, self.awaited), gather=0,
        )  # fmt: skip
        self.finisher.written.then(self.written.extend)
        self.finisher.lost.then(self.lost.extend)
        self.sweeper = Sweeper(
            self.pool, self.statements, self.clock, self.awaited, width=timedelta(days=7)
        )
        self.gates = Gates(self.pool, self.statements, self.clock)
        for unblocked in (self.finisher.unblocked, self.sweeper.rearmed):
            unblocked.then(self._woken)
        self.dispatcher = Dispatcher(self.claimer, self.clock, free=self._free, rest=lambda: 5.0)
        self.dispatcher.leased.then(self._start)
        await self.check_in()

    async def close(self) -> None:
        await self.pool.close()

    def _free(self) -> tuple[int, int]:
        return self.slots - len(self.held), self.slots

    def _start(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease.stop = lambda why: None
        self.leases.add(leases)
        self.held.extend(leases)

    def _woken(self) -> None:
        self.wakes += 1

    # -- steps ----------------------------------------------------------------------------------

    async def poll(self, most: int | None = 1000) -> CheckInReply:
        """What a check-in answers, and nothing is done about it."""
        async with self.pool.connection() as c:
            answer = await self.statements.check_in(
                c, runner=self.name, host=self._host(), pid=1, version="0", state="running",
                queues=list(self.queues), labels=list(self.labels), slots=self.slots,
                running=len(self.held), boot_id=self.boot_id, uptime=self.uptime,
                ttl=timedelta(seconds=20), clock_skew=timedelta(0), fingerprint={},
                handlers=sorted(self.functions), diagnostics=Jsonb({}), deploy=None, ledger=None,
                kinds=list(KINDS), sql_commands=self.allow_sql_commands,
                excluded_jobs=self.dispatcher.excluded_jobs(), most=most, due_from=None,
            )  # fmt: skip
            reply = await answer.fetchone()
        assert reply is not None
        return reply

    def _host(self) -> str:
        hosts = [label[5:] for label in self.labels if label.startswith("host=")]
        return hosts[0] if hosts else "here"

    async def check_in(self) -> None:
        """Registered and seen; learns the clock and when the next lease is stale."""
        seen = await self.poll(most=None)
        now = asyncio.get_running_loop().time()
        self.clock.observe(seen.now, now, now)
        self.dispatcher.steal_at = seen.stale

    def trust(self) -> None:
        """As if connected, with an unbroken view of the clock, since long ago."""
        self.clock.trusted_since = LONG_AGO

    async def live_through(self) -> None:
        """The time that was travelled has passed here as well: that was no leap."""
        trusted = self.clock.trusted_since
        await self.check_in()
        self.clock.trusted_since = trusted

    async def step(self) -> list[Lease]:
        """One step of the dispatcher, as if notified of everything; what it started."""
        before = len(self.held)
        if self.notified:
            self.dispatcher.search_all()
        self.delay = await self.dispatcher.step()
        return self.held[before:]

    async def settle(self, most: int = 50) -> list[Lease]:
        """Steps until one answers that it may sleep; all that they started."""
        before = len(self.held)
        for _ in range(most):
            await self.step()
            if self.delay != 0:
                return self.held[before:]
        raise AssertionError(f"the dispatcher does not come to rest in {most} steps")

    async def steal(self) -> list[Lease]:
        """A step that looks for stale leases, with a trusted clock."""
        await self.check_in()
        self.trust()
        self.dispatcher.steal_at = LONG_AGO
        return await self.step()

    async def sweep(self) -> None:
        await self.check_in()
        self.trust()
        await self.sweeper.sweep()

    async def repair(self) -> None:
        """A full round of the sweeper."""
        await self.check_in()
        self.trust()
        self.sweeper.full_round()
        await self.sweeper.step()

    async def finish(self, start: Lease, ended: Outcome | None = None, **more: Any) -> None:
        """The handler has ended so; written, and what waited for it re-armed."""
        self.put(start, ended, **more)
        await self.finisher.step()

    async def finish_all(self) -> None:
        """The handlers of all held leases have succeeded, which one statement writes."""
        for start in list(self.held):
            self.put(start)
        while await self.finisher.step() == 0:
            pass

    async def check_gates(self) -> bool:
        """Check the gates that are due; whether one has opened."""
        return await self.gates.check_all()

    async def run_due(self) -> int:
        """Start and finish executions until nothing is due. Return how many started."""
        count = 0
        while started := await self.settle():
            count += len(started)
            await self.finish_all()
        return count

    async def only_write(self) -> None:
        """The outcomes that were put are written, and nothing is re-armed: a crash in between."""

        async def crashed(*_: object) -> bool:
            return False

        with mock.patch.object(self.finisher._follow_up, "rearm", crashed):
            await self.finisher._write(self.finisher._waiting, Settled())

    def put(
        self, start: Lease, ended: Outcome | None = None, release: bool = False,
        *, has_chunks: bool = False,
    ) -> None:  # fmt: skip
        ended = ended or outcome.success(None)
        claimed = start.claimed
        decided = outcome.decide(ended, start.job, claimed.attempt, claimed.max_attempts, 0.0)
        self.held.remove(start)
        lease = next((x for x in self.leases.all() if x.token == claimed.token), None)
        if lease is not None:
            self.finisher.put(Ended(lease, decided, 5, release, has_chunks=has_chunks))

    def before_sending(self, act: Callable[[str], Awaitable[object]]) -> None:
        """Let `act` run with the name of each statement before it is sent, from now on."""
        real = self.statements._send

        async def send(c: Any, name: str, *rest: Any) -> Any:
            await act(name)
            return await real(c, name, *rest)

        self.statements._send = send  # type: ignore[method-assign,assignment]

    def record(self, **first: Callable[[], object]) -> list[str]:
        """Return a list that grows by the name of each statement that is sent from now on.

        `first` has what happens before a statement of a name is sent for the first time.
        """
        names: list[str] = []

        async def note(name: str) -> None:
            names.append(name)
            if name in first:
                first.pop(name)()

        self.before_sending(note)
        return names

    def crash(self) -> None:
        """Everything in memory is gone."""
        self.held.clear()
        for token in self.leases.tokens():
            self.leases.remove(token)


@asynccontextmanager
async def runners(url: str, *specs: dict[str, Any]) -> AsyncIterator[list[Runner]]:
    """Runners r1, r2, … as described, open; closed afterwards."""
    made = [Runner(url, **{"name": f"r{n}", **spec}) for n, spec in enumerate(specs, 1)]
    try:
        for runner in made:
            await runner.open()
        yield made
    finally:
        for runner in made:
            await runner.close()


def waiting(ledger: Ledger) -> bool:
    """Somebody waits for a lock in this database."""
    found: int = ledger.one(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return found > 0
