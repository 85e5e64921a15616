"""Everybody but replicas who writes to the ledger: operators, programs that push, editors."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.json import Jsonb

from cronledger.rules.model import ScopeKey
from tests.simulation.support.calendars import CALENDAR
from tests.simulation.support.jobs import CROWD, NARROW, SCOPES, is_provided, make_edit
from tests.simulation.support.loop import Process
from tests.simulation.support.network import Connection

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

Action = Callable[[], Awaitable[object]]
REFUSED = (
    psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.NoDataFound,
    psycopg.errors.NoData, psycopg.errors.InvalidParameterValue, psycopg.errors.LockNotAvailable,
    psycopg.errors.CheckViolation,
)  # fmt: skip


_PAUSE = {"queue": "pause_queue", "job": "pause"}
_RESUME = {"queue": "resume_queue", "job": "resume"}


class Client:
    """One of them: does one random thing after the other."""

    def __init__(self, cluster: "Cluster", random: Random, number: int) -> None:
        self._cluster = cluster
        self._random = random
        self.process = Process(f"client{number}", f"client{number}")
        self._connection: Connection | None = None
        self._watermark = 0

    async def setup(self, jobs: list[dict[str, Any]]) -> None:
        """The jobs and queues of this simulation."""
        await self._execute("INSERT INTO cronledger.queues (name, max_running) VALUES (%s, %s)",
                            "narrow", NARROW)  # fmt: skip
        for columns in [*jobs, *self._cluster.observed]:
            names = ", ".join(f'"{name}"' for name in columns)
            marks = ", ".join(["%s"] * len(columns))
            await self._execute(
                f"INSERT INTO cronledger.jobs ({names}) VALUES ({marks})",
                *(_adapted(key, value) for key, value in columns.items()),
            )

    async def live(self, actions: int, until: float) -> None:
        """So many things, spread over the time until then."""
        each = (until - self._cluster.loop.time()) / max(1, actions)
        for _ in range(actions):
            await asyncio.sleep(self._random.uniform(0.2, 1.8) * each)
            await self.act(self._random.choice(self._choices()))

    def _choices(self) -> list[Action]:
        return [
            self._edit, self._edit, self._pause, self._plan_pause, self._resume, self._trigger,
            self._trigger_when_due, self._trigger_when_due, self._enqueue, self._enqueue,
            self._cancel, self._cancel, self._cancel, self._retry, self._skip, self._skip,
            self._unskip, self._queue, self._retire,
            self._leap,
        ]  # fmt: skip

    async def act(self, action: Action) -> None:
        """What the ledger refuses is refused; a lost connection is a new one next time."""
        try:
            await action()
        except REFUSED:
            return
        except psycopg.OperationalError:
            await self.hang_up()

    async def hang_up(self) -> None:
        """The next statement opens a connection."""
        if self._connection is not None:
            await self._connection.close()
        self._connection = None

    async def execute(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement of another program."""
        return await self._execute(statement, *values)

    async def _execute(self, statement: str, *values: Any) -> list[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._cluster.connect(self.process, "client")
        cursor = await self._connection.execute(statement, values or None)
        return await cursor.fetchall()

    async def _slowly(self, *statements: tuple[str, tuple[Any, ...]]) -> list[Any]:
        """In one transaction, with pauses in which its locks are held. What the last one says."""
        rows: list[Any] = []
        await self._execute("SELECT 1")
        assert self._connection is not None
        async with self._connection.transaction():
            for statement, values in statements:
                rows = await self._execute(statement, *values)
                await asyncio.sleep(self._random.choice((0.0, 0.01, 0.5, 3.0)))
        return rows

    def _job(self) -> dict[str, Any]:
        return self._random.choice(self._cluster.jobs)

    def _scope(self, columns: dict[str, Any]) -> ScopeKey:
        if is_provided(columns):
            return ScopeKey(columns["name"], "shard", self._random.choice(SCOPES))
        if "scopes" not in columns:
            return ScopeKey(columns["name"], "global", "global")
        return ScopeKey(columns["name"], "shard", self._random.choice(columns["scopes"]))

    async def set_scopes(self, name: str, scopes: list[str]) -> None:
        """Edit the scopes of the job. Sometimes the edit takes back another one."""
        edit = "UPDATE cronledger.jobs SET scopes = %s WHERE name = %s"
        first = [] if self._random.random() < 0.3 else scopes
        statements = [(edit, (first, name)), (edit, (scopes, name))]
        await self.act(partial(self._slowly, *statements[first == scopes :]))

    async def set_calendar(self, dates: dict[str, str], first: date, through: date) -> None:
        """Set the calendar that jobs use."""
        await self._execute(
            "SELECT cronledger.set_calendar(%s, %s, first => %s, through => %s)",
            CALENDAR, Jsonb(dates), first, through,
        )  # fmt: skip

    async def hold(self, what: str, name: str) -> None:
        """Pause the queue or the job."""
        await self.act(partial(self._execute, f"SELECT cronledger.{_PAUSE[what]}(%s)", name))

    async def let_go(self, what: str, name: str) -> None:
        await self.act(partial(self._execute, f"SELECT cronledger.{_RESUME[what]}(%s)", name))

    # -- what they do ---------------------------------------------------------------------------

    async def _edit(self) -> None:
        columns = self._job()
        edit = make_edit(self._random, columns)
        columns.update(edit)
        sets = ", ".join(f"{column} = %s" for column in edit)
        statement = f"UPDATE cronledger.jobs SET {sets} WHERE name = %s"
        values = (*(_adapted(key, value) for key, value in edit.items()), columns["name"])
        if self._random.random() < 0.5:
            await self._slowly((statement, values))
        else:
            await self._execute(statement, *values)

    async def _plan_pause(self) -> None:
        """A pause of a job, a queue or everything begins later; now and then one ends early."""
        begins = self._cluster.now() + timedelta(seconds=self._random.uniform(0, 4))
        until = begins + timedelta(seconds=self._random.uniform(0.5, 8))
        job, queue = self._random.choice(
            ((self._job()["name"], None), (None, "default"), (None, "narrow"), (None, None))
        )
        (pause,) = await self._execute(
            "SELECT cronledger.plan_pause('sim', %s, %s, job => %s, queue => %s)",
            begins, until, job, queue,
        )  # fmt: skip
        if self._random.random() < 0.3:
            await asyncio.sleep(self._random.uniform(0, 8))
            await self._execute("SELECT cronledger.end_pause(%s)", *pause)

    async def _pause(self) -> None:
        until = None
        if self._random.random() < 0.6:
            until = self._cluster.now() + timedelta(seconds=self._random.uniform(0.5, 12))
        await self._execute(
            "SELECT cronledger.pause(%s, %s, %s)", self._job()["name"], "sim", until
        )

    async def _resume(self) -> None:
        await self._execute("SELECT cronledger.resume(%s)", self._job()["name"])

    async def _skip(self) -> None:
        columns = self._job()
        scope = self._scope(columns) if self._random.random() < 0.5 else None
        first, length = self._random.randint(0, 9), self._random.choice((0, 0, 3, 20))
        statement = (
            "SELECT cronledger.skip(%s, date_trunc('second', db_clock()) + %s, 'sim',"
            " date_trunc('second', db_clock()) + %s, %s, %s)"
        ).replace("db_clock", "cronledger.db_clock")
        await self._slowly((
            statement,
            (
                columns["name"], timedelta(seconds=first), timedelta(seconds=first + length),
                scope and scope.scope_kind, scope and scope.scope_id,
            ),
        ))  # fmt: skip

    async def _unskip(self) -> None:
        await self._execute(
            "SELECT cronledger.unskip(p.id) FROM cronledger.planned_skips p"
            " WHERE p.withdrawn_at IS NULL ORDER BY p.id DESC LIMIT 1"
        )

    async def _trigger(self) -> None:
        scope, forced = self._scope(self._job()), self._random.random() < 0.3
        statement = "SELECT cronledger.trigger(%s, %s, %s, force => %s)"
        if self._random.random() < 0.3:
            await self._slowly((statement, (*scope, forced)))
        else:
            await self._execute(statement, *scope, forced)

    async def _trigger_when_due(self) -> None:
        """At the instant at which schedules are due, and replicas wake."""
        for _ in range(3):
            to_come = 1 - self._cluster.now().microsecond / 1e6
            await asyncio.sleep(to_come - self._random.uniform(-0.003, 0.004))
            scope = self._scope(self._job())
            await self._execute("SELECT cronledger.trigger(%s, %s, %s)", *scope)

    async def press(self, scope: str, until: float) -> None:
        """Triggers the job of the crowd before each full second."""
        while self._cluster.loop.time() < until:
            to_come = 1 - self._cluster.now().microsecond / 1e6
            await asyncio.sleep(max(0.0, to_come + self._random.uniform(-0.1, 0.0)))
            await self.act(partial(self._trigger_crowd, scope))
            await asyncio.sleep(0.3)

    async def _trigger_crowd(self, scope: str) -> None:
        await self._execute("SELECT cronledger.trigger(%s, 'shard', %s)", CROWD, scope)

    async def _enqueue(self) -> None:
        scope = self._scope(self._job())
        kind = self._random.choice(("message", "keyed", "signal"))
        key = "k" if kind == "keyed" else None
        payload = None if kind == "signal" else Jsonb({"n": self._random.randrange(100)})
        self._cluster.providers.pushed[scope.job_name].add(scope.scope_id)
        self._watermark += 1
        watermark = self._watermark if kind != "message" else None
        await self._execute(
            "SELECT cronledger.enqueue(%s, %s, %s, %s, %s, %s)",
            scope.job_name, scope.scope_id, watermark, payload, key, scope.scope_kind,
        )  # fmt: skip

    async def _some(self, condition: str) -> int | None:
        rows = await self._execute(
            f"SELECT e.id FROM cronledger.executions e WHERE {condition}"
            " ORDER BY e.job_name, e.scope_id, e.plan_time"
        )
        return self._random.choice(rows)[0] if rows else None

    async def _cancel(self) -> None:
        found = await self._some("status = 'RUNNING' OR next_attempt_at IS NOT NULL")
        if found is None:
            return
        statement, since = "SELECT cronledger.cancel(%s)", self._cluster.loop.time()
        if self._random.random() < 0.4:
            (answer,) = await self._slowly((statement, (found,)))
        else:
            (answer,) = await self._execute(statement, found)
        if answer[0] in ("cancelled", "requested"):
            self._cluster.handlers.cancelled(found, since)

    async def _retry(self) -> None:
        found = await self._some("status IN ('FAILED', 'CANCELLED')")
        if found is not None:
            self._cluster.handlers.retried(found)
            await self._execute("SELECT cronledger.retry(%s)", found)

    async def _queue(self) -> None:
        what = self._random.choice(("pause_queue", "resume_queue", "resume_queue"))
        await self._execute(
            f"SELECT cronledger.{what}(%s)", self._random.choice(("narrow", "default"))
        )

    async def _retire(self) -> None:
        """A job retires and comes back."""
        name = self._job()["name"]
        await self._execute("SELECT cronledger.retire(%s)", name)
        await asyncio.sleep(self._random.uniform(0.01, 8))
        await self._execute("UPDATE cronledger.jobs SET retired_at = NULL WHERE name = %s", name)

    async def _leap(self) -> None:
        """The database's clock is set."""
        faults = self._cluster.faults
        if faults.on and faults.enabled("leap"):
            seconds = self._random.choice((1.5, 5.0, 30.0, 3600.0)) * self._random.uniform(0.8, 1.2)
            self._cluster.leap(timedelta(seconds=seconds))
        elif faults.on and faults.enabled("leap_back"):
            self._cluster.leap(timedelta(seconds=-self._random.choice((0.05, 0.9, 4.0))))

    async def accept(self, *, skip_missed: bool) -> bool:
        """The database is the ledger's own from now on; false: it has to be tried again."""
        statement = "SELECT why FROM cronledger.accept_database(%s, 'sim')"
        try:
            await self._execute(statement, skip_missed)
        except (psycopg.OperationalError, *REFUSED):
            if self._connection is not None and self._connection.closed:
                self._connection = None
            return False
        return True

    async def settle(self) -> None:
        """Nothing new comes, and nothing is held up any more. Job by job: an UPDATE of all takes
        them as they lie in their table."""
        await self._execute(
            "UPDATE cronledger.queues SET paused_at = NULL, paused_by = NULL, paused_reason = NULL"
        )
        await self._execute(
            "SELECT cronledger.end_pause(p.id) FROM cronledger.pause_status p"
            " WHERE p.state IN ('planned', 'in force') ORDER BY p.id"
        )
        # Those that require others first, because what they require loses its plan_times.
        for columns in reversed([*self._cluster.jobs, *self._cluster.observed]):
            await self._execute(
                "UPDATE cronledger.jobs SET retired_at = NULL, paused_at = NULL, schedule = NULL,"
                " requires = NULL"
                " WHERE name = %s",
                columns["name"],
            )


def _adapted(key: str, value: Any) -> Any:
    return Jsonb(value) if key in ("target", "payload", "requires") and value is not None else value
