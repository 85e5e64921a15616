"""One simulated cluster: production replicas in virtual time on a real database, under one seed."""

import asyncio
import hashlib
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from cronledger.audit.compare import Violation
from cronledger.audit.verify import verify
from cronledger.engine.claiming.claim import MUST_NOT_START
from cronledger.engine.running.handlers.transaction import LEASE_IS_LOST
from cronledger.replica import Replica
from tests.simulation.support.access import Listener
from tests.simulation.support.adoption import MOVED, Mover
from tests.simulation.support.backend import Database
from tests.simulation.support.boots import Boots
from tests.simulation.support.calendars import (
    covered,
    draw_dates,
    edit_calendar,
    make_calendars,
)
from tests.simulation.support.calm import Calm
from tests.simulation.support.clients import Client
from tests.simulation.support.effects import Effects
from tests.simulation.support.faults import Chance, Faults, Profile
from tests.simulation.support.flapping import flap, make_flapping
from tests.simulation.support.handlers import Handlers
from tests.simulation.support.jobs import (
    CROWDED,
    NARROW,
    STARTS,
    make_crowd,
    make_deadlines,
    make_external,
    make_filtered,
    make_gated,
    make_hosts,
    make_jobs,
    make_provided,
    make_windows,
)
from tests.simulation.support.lock_queues import Turns
from tests.simulation.support.loop import Process, SimLoop
from tests.simulation.support.network import Connection
from tests.simulation.support.other_databases import REFUSED, Elsewhere
from tests.simulation.support.providers import Providers
from tests.simulation.support.record import Record, Rules
from tests.simulation.support.replica import SimReplica, settings_of
from tests.simulation.support.reports import OtherScheduler, judge_reports, make_observed
from tests.simulation.support.request import Request
from tests.simulation.support.scene import Scene
from tests.simulation.support.session import Session
from tests.simulation.support.workers import Workers

SETTLE_SECONDS = 400.0
LOOK_SECONDS = 5.0
EXPECTED = ("55P03", "57014", "25P02", LEASE_IS_LOST, MUST_NOT_START)
Tell = Callable[[str], None]
"""Takes a line of the trace."""
LOGGED = "  log"
"""In lines that tell more than the digest counts."""
TIMELESS = ("doubled", "attempts", "unknown_end")
"""What verify finds without comparing instants, which means nothing once the clock went back: ends
lie before starts, and an edit takes effect below the cursor. The record judges overlap then."""


@dataclass(eq=False)
class Sim:
    """A running replica and the process it lives in."""

    process: Process
    replica: Replica
    steps: Counter[str] = field(default_factory=Counter)


class Leap(NamedTuple):
    """A forward leap: when, on the clock of the loop, and what the database's clock said."""

    at: float
    before: datetime
    after: datetime


class Cluster:
    """Everything of one seed. `run` drives it to its end; `record` then says what was wrong."""

    def __init__(  # noqa: PLR0915
        self, seed: int, database: Database, loop: SimLoop, tell: Tell | None
    ) -> None:
        self.seed = seed
        self.database = database
        self.loop = loop
        self.random = Random(f"simulation {seed}")
        self.chance = Chance(self.random, seed)
        self.faults = Faults(self, self.random, Profile.draw(self.random))
        self.record = Record()
        self.calm = Calm(self)
        self.scene = Scene.draw(seed)
        self.handlers = Handlers(self)
        self.workers = Workers(self)
        self.effects = Effects(self)
        self.elsewhere = Elsewhere(self)
        self.boots = Boots(self)
        self.leaps: list[Leap] = []
        self.start_name = self.random.choice(sorted(STARTS))
        self._base: datetime = STARTS[self.start_name]
        self.listeners: list[Listener] = []
        self.processes: list[Process] = []
        self.replicas: list[Sim] = []
        self.steps: Counter[str] = Counter()
        self.statements: Counter[str] = Counter()
        self.waits = 0
        self._sessions: list[Session] = []
        self.turns = Turns(self)
        self._away_until = 0.0
        self._generation: Counter[str] = Counter()
        self._socket = socket.socket()
        self._hash = hashlib.sha256()
        self._tell = tell
        self.settling = False
        self.jobs = make_jobs(self.random)
        if self.scene.workers:
            make_external(Random(f"external {seed}"), self.jobs)
        make_filtered(Random(f"filters {seed}"), self.jobs)
        make_deadlines(Random(f"deadlines {seed}"), self.jobs)
        make_windows(Random(f"windows {seed}"), self.jobs)
        if self.scene.providers:
            make_provided(Random(f"provided {seed}"), self.jobs)
        if self.scene.gated:
            make_gated(Random(f"gated {seed}"), self.jobs)
        if self.scene.crowd:
            make_crowd(Random(f"crowd {seed}"), self.jobs)
            self.chance.rag()
        if self.scene.flapping:
            make_flapping(Random(f"flapping {seed}"), self.jobs)
        if self.scene.calendars:
            make_calendars(Random(f"calendars {seed}"), self.jobs)
        if self.scene.hosts:
            make_hosts(Random(f"hosts {seed}"), self.jobs)
        self.observed: list[dict[str, Any]] = []
        if self.scene.observed:
            self.observed = make_observed(Random(f"observed {seed}"))
        self.others: list[OtherScheduler] = []
        self.mover: Mover | None = None
        self.providers = Providers(self, self.jobs)
        for columns in [*self.jobs, *self.observed]:
            self.record.rules[columns["name"]] = Rules(
                columns.get("allow_stale_reentry", False), columns.get("overlap") != "allow",
                columns.get("max_running"),
            )  # fmt: skip
        self.record.queue_limits["narrow"] = NARROW

    # -- time and trace -------------------------------------------------------------------------

    def now(self) -> datetime:
        """What the database's clock says."""
        return self._base + timedelta(microseconds=round(self.loop.time() * 1e6))

    def leap(self, by: timedelta) -> None:
        self.faults.struck("leap" if by > timedelta(0) else "leap_back", str(by))
        before = self.now()
        self._base += by
        if by < timedelta(0):
            self.record.backwards -= by
        else:
            self.leaps.append(Leap(self.loop.time(), before, self.now()))

    def trace(self, *what: object) -> None:
        line = " ".join((f"{self.loop.time():.6f}", *map(str, what)))
        self._hash.update(line.encode() + b"\n")
        if self._tell is not None:
            self._tell(line)

    def wrong(self, text: str) -> None:
        """Something that must never be is so now."""
        self.record.wrong(text, self.loop.time())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    # -- statements -----------------------------------------------------------------------------

    def connect(self, process: Process, name: str) -> Connection:
        connection = Connection(self, process, name)
        self.keep(connection)
        return connection

    def keep(self, connection: Connection) -> None:
        """A connection is open: what happens to the server happens to its session."""
        self._sessions.append(connection.session)

    def pids_of(self, process: Process) -> set[int | None]:
        """Of the backends in which it is in a transaction."""
        return {x.pid for x in self._sessions if x.of(process)} - {None}

    def fileno(self) -> int:
        """Of a socket for whoever shuts one down."""
        return self._socket.fileno()

    async def reachable(self, patience: float) -> bool:
        """Opening a connection takes a while, and fails while the database is away."""
        away = self._away_until - self.loop.time()
        await asyncio.sleep(min(patience, max(0.0, away)) + self.chance.way())
        return away <= patience

    def noted(self, process: Process, request: Request, notes: list[str]) -> None:
        """A statement has ended."""
        error = request.error
        state = "" if error is None else f" {type(error).__name__}"
        self.statements[request.label] += 1
        # Partitions outlive a seed; what is left to maintain is not of this one.
        count = "" if request.label == "maintain_partitions" else request.rowcount
        self.trace(process.name, f"{request.label}{state} {count}")
        if self._tell is not None and count:
            for row in request.rows:
                self._tell(f"{self.loop.time():.6f}     {row}")
        if error is not None:
            self._judge_error(process, request)
        self._notify(notes)

    def noted_late(self, process: Process, notes: list[str]) -> None:
        self.trace(process.name, "COMMIT late")
        self._notify(notes)

    def _judge_error(self, process: Process, request: Request) -> None:
        error = request.error
        assert error is not None
        state = error.sqlstate or ""
        if self._tell is not None:
            line = f"{self.loop.time():.6f} {LOGGED} {type(error).__name__} {error}"
            self._tell(line.replace("\n", " | "))
        if state.startswith("SIM"):
            self.wrong(str(error).partition("\n")[0])
        elif state == "40P01":
            self.wrong(f"deadlock: {process.name} {request.label}")
        elif state in REFUSED and self.elsewhere.began:
            return
        elif not process.name.startswith("client") and state not in EXPECTED:
            self.wrong(f"{process.name} {request.label}: {error}")

    def _notify(self, notes: list[str]) -> None:
        for payload in notes:
            for listener in self.listeners:
                if self.random.random() < 0.9:
                    self.loop.after(self.chance.way(), listener.notify, payload)

    # -- processes ------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """kill -9: the server notices now or later, and another process may take its place."""
        if not process.alive:
            return
        process.kill(self.loop.time())
        self.calm.disturb(None, 0.5)
        self.record.killed(process, self.loop.time())
        self.listeners = [x for x in self.listeners if x.process is not process]
        for session in self._sessions:
            if session.of(process):
                self.loop.after(self.chance.notice(), session.end)
        self.replicas = [x for x in self.replicas if x.process is not process]
        again = self.start_worker if process.runner.startswith("w") else self.start_replica
        self.loop.after(self.chance.pause(0.05, 9.0), again, process.runner)

    def resume(self, process: Process) -> None:
        if process.alive:
            self.trace("resume", process.name)
            process.resume(self.loop.time())

    def _new_process(self, runner: str) -> Process:
        """Of that runner, or of a new one."""
        if self.random.random() < 0.3:
            runner = f"{runner}x"
        self._generation[runner] += 1
        process = Process(f"{runner}.{self._generation[runner]}", runner, self.loop.time())
        self.processes.append(process)
        self.trace("start", process.name)
        return process

    def start_replica(self, runner: str) -> None:
        process = self._new_process(runner)
        process.is_replica = True
        self.loop.spawn(process.main, self._live(process), f"replica {process.name}")

    def start_worker(self, runner: str) -> None:
        self.workers.start(self._new_process(runner))

    async def _live(self, process: Process) -> None:
        boot = self.boots.of(process) if self.scene.hosts else None
        settings = settings_of(process.runner, self.random, boot)
        while True:
            replica = SimReplica(self, process, settings)
            try:
                await replica.start()
                break
            except Exception as error:  # noqa: BLE001 - a supervisor would start it again
                self.trace("no start", process.name, type(error).__name__)
                await asyncio.sleep(1.0)
        self.replicas.append(Sim(process, replica))

    async def _drain(self, sim: Sim) -> None:
        """SIGTERM: it drains, its process ends, and another takes its place."""
        self.faults.struck("drain", sim.process.name)
        self.calm.disturb(sim.process, 60.0)
        self.replicas.remove(sim)
        await sim.replica.drain(self.random.choice((0.0, 0.5, 5.0)))
        self.trace("drained", sim.process.name)
        self.kill(sim.process)

    # -- the course of it -----------------------------------------------------------------------

    async def run(self) -> None:
        """The whole of it: busy time with faults, then peace until everything is settled."""
        client = Client(self, self.random, 0)
        start = self.now()
        if self.scene.calendars:
            dates = Random(f"dates {self.seed}")
            await client.set_calendar(draw_dates(dates, start), *covered(start))
        await client.setup(self.jobs)
        for number in range(self.random.choice((2, 2, 3))):
            self.loop.after(self.chance.pause(0, 0.5), self.start_replica, f"r{number}")
        for number in range(2 if self.scene.workers else 0):
            self.loop.after(self.chance.pause(0, 2.0), self.start_worker, f"w{number}")
        self.faults.on = True
        until = self.loop.time() + self.random.uniform(12, 26)
        clients = [client, Client(self, self.random, 1)]
        tasks = [
            self.loop.spawn(x.process.main, x.live(self.random.randrange(2, 8), until), "client")
            for x in clients
        ]
        tasks.append(self.loop.spawn(None, self._mischief(until), "mischief"))
        watch = self.loop.spawn(None, self.calm.watch(), "watch")
        if self.scene.moves:
            other = Client(self, self.random, 2)
            work = self.elsewhere.happen(other, until)
            tasks.append(self.loop.spawn(other.process.main, work, "elsewhere"))
        for number, scope in enumerate(CROWDED if self.scene.crowd else ()):
            crowd = Client(self, Random(f"press {self.seed} {scope}"), 3 + number)
            tasks.append(self.loop.spawn(crowd.process.main, crowd.press(scope, until), "crowd"))
        if self.scene.flapping:
            editor = Client(self, Random(f"editor {self.seed}"), 9)
            work = flap(editor, Random(f"flaps {self.seed}"), until)
            tasks.append(self.loop.spawn(editor.process.main, work, "flapping"))
        if self.scene.calendars:
            office = Client(self, Random(f"office {self.seed}"), 8)
            work = edit_calendar(office, dates, start, until)
            tasks.append(self.loop.spawn(office.process.main, work, "calendar"))
        for number, columns in enumerate(self.observed):
            program = Client(self, Random(f"program {self.seed}"), 20 + number)
            self.others.append(OtherScheduler(self, program, columns))
            work = self.others[-1].live(until)
            tasks.append(self.loop.spawn(program.process.main, work, "other scheduler"))
            if columns["name"] == MOVED:
                operator = Client(self, Random(f"operator {self.seed}"), 19)
                self.mover = Mover(self, operator, columns)
                work = self.mover.live(until)
                tasks.append(self.loop.spawn(operator.process.main, work, "mover"))
        await asyncio.sleep(until - self.loop.time())
        await asyncio.wait(tasks)
        await self._settle(client)
        watch.cancel()

    async def _mischief(self, until: float) -> None:
        """What does not strike at statements."""
        while self.loop.time() < until:
            await asyncio.sleep(self.random.uniform(2, 15))
            if self.faults.enabled("outage") and self.random.random() < 0.3:
                self._outage(self.random.choice((0.5, 3.0, 8.0)))
            if self.faults.enabled("drain") and self.random.random() < 0.4 and self.replicas:
                sim = self.random.choice(self.replicas)
                if not sim.process.frozen and not sim.process.main.stopped:
                    self.loop.spawn(sim.process.main, self._drain(sim), "drain")

    def _outage(self, seconds: float) -> None:
        self.faults.struck("outage", f"{seconds} s")
        self.calm.disturb(None, seconds + 1.0)
        self._away_until = self.loop.time() + seconds
        self.break_connections("the server is gone")

    def break_connections(self, why: str) -> None:
        """Of replicas and workers, all of them; what they had not committed is rolled back."""
        for session in self._sessions:
            if not session.of_client:
                session.break_off(why)
                session.end()
        for listener in self.listeners:
            listener.break_off()
        self.listeners = []

    async def _settle(self, client: Client) -> None:
        """No more faults; at least one replica runs; all that is due gets done."""
        self.faults.on, self.settling = False, True
        self.trace("settle")
        for process in self.processes:
            self.resume(process)
        while True:  # a connection that broke before is replaced now
            try:
                await client.settle()
                break
            except Exception as error:  # noqa: BLE001 - whatever an operator would try again
                self.trace("settle again", type(error).__name__)
                await asyncio.sleep(0.5)
        give_up_at = self.loop.time() + SETTLE_SECONDS
        left = self._unsettled()
        while left and self.loop.time() < give_up_at:
            await asyncio.sleep(LOOK_SECONDS)
            left = self._unsettled()
        for text in left:
            self.wrong(f"not settled after {SETTLE_SECONDS:.0f} s: {text}")
        rows = self.database.eye.execute(
            "SELECT job_name, scope_kind, scope_id, plan_time, status, attempt, max_attempts,"
            " due_at, lease_token, window_start FROM executions"
            " WHERE runner_id IS DISTINCT FROM 'observed' ORDER BY plan_time"
        )
        names = [column.name for column in rows.description or ()]
        ledger = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
        self.record.hold_against(ledger, self.loop.time())
        self.calm.judge()
        self.workers.judge_all()
        self.effects.judge()
        judge_reports(self, [run for other in self.others for run in other.runs])
        if self.mover is not None:
            self.mover.judge(self.others[-1])
        self.boots.judge()
        for violation in verify(self.database.judge(self.now())):
            if self.record.backwards and violation.kind not in TIMELESS:
                continue
            if not self._ended_beside_a_leap(violation):
                self.wrong(f"verify: {violation}")

    def _ended_beside_a_leap(self, violation: Violation) -> bool:
        """Tell whether a skip `upstream` is excused: docs/reliability.md, Known limits.

        A success was not committed when the gate was checked, and the minute that `verify` allows
        for its commit contains a forward leap.
        """
        if violation.kind != "untrue_skip" or not self.leaps:
            return False
        found = self.database.eye.execute(
            "SELECT FROM skips k JOIN unnest(%s::timestamptz[], %s::timestamptz[]) AS leap (f, t)"
            " ON k.created_at BETWEEN t AND t + interval '1 minute'"
            " JOIN executions e ON e.status = 'SUCCESS' AND e.finished_at <= f"
            " AND (k.created_at - t) + (f - e.finished_at) <= interval '1 minute'"
            " AND starts_with(k.detail, e.job_name || ' ')"
            " WHERE (k.job_name, k.scope_kind, k.scope_id) = (%s, %s, %s)"
            " AND %s BETWEEN k.from_plan_time AND k.through_plan_time"
            " AND k.reason = 'upstream' AND k.detail LIKE '%% is RUNNING'",
            ([leap.before for leap in self.leaps], [leap.after for leap in self.leaps],
             violation.job_name, violation.scope_kind, violation.scope_id, violation.plan_time),
        )  # fmt: skip
        return found.fetchone() is not None

    def _unsettled(self) -> list[str]:
        rows = self.database.eye.execute(
            "SELECT format('%%s/%%s %%s is %%s', job_name, scope_id, plan_time, status)"
            " FROM executions WHERE status = 'RUNNING' OR next_attempt_at IS NOT NULL"
            " UNION ALL SELECT format('%%s/%%s is due since %%s', job_name, scope_id, next_due_at)"
            " FROM schedules WHERE next_due_at <= %s"
            " UNION ALL SELECT format('%%s/%%s is parked %%s', job_name, scope_id, parked)"
            " FROM schedules s WHERE parked IN ('waiting', 'limit', 'no_runner') OR parked ="
            " 'spec_error' AND NOT EXISTS (SELECT FROM jobs j WHERE j.name = s.job_name AND"
            " j.spec_error LIKE 'requires:%%')"
            " UNION ALL SELECT format('%%s/%%s %%s is to check', job_name, scope_id, plan_time)"
            " FROM gates WHERE check_at <= %s",
            (self.now(), self.now()),
        ).fetchall()
        return [row[0] for row in rows] + self.providers.unsettled()

    def bury(self) -> None:
        """After the end: nothing of this cluster is left on the loop or in a backend."""
        self.faults.on = False
        self._tell = None
        for session in self._sessions:
            session.break_off("it is all over", notice_after=0.0)
            session.end()
        for listener in self.listeners:
            listener.break_off()
        self._away_until = float("inf")
        self.loop.bury(self.processes)
        self._socket.close()
        self.elsewhere.restore()
