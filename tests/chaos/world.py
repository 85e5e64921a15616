"""Everything a run consists of: server, pooler, proxies, clocks, fleet, load."""

import json
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg
from psycopg.conninfo import make_conninfo

from cronledger.ledger.migrate import migrate
from tests.chaos.fleet import Fleet, Member, trouble
from tests.chaos.load import COMMAND, SQL_JOBS, Load
from tests.chaos.onlookers import Onlookers
from tests.chaos.remote import Gate
from tests.chaos.watch import Watch
from tests.cluster.support.bouncer import Bouncer, program
from tests.cluster.support.clocks import FakeClock, forget, library
from tests.cluster.support.hosts import Host, Network, impossible
from tests.cluster.support.proxy import Proxy
from tests.cluster.support.servers import OwnServer, Pair, single
from tests.waiting import until

SETTINGS = {"fsync": "on", "max_connections": "120", "wal_keep_size": "256MB"}
ROLE: LiteralString = "chaos"
CLIENT: LiteralString = "chaos_client"
ALL_AT_ONCE = {False: ("ten", 10), True: ("four", 4)}


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without a database: how long, and how many lines each replica logged about it."""

    what: str
    at: float
    seconds: float
    lines: dict[str, int]


class World:
    """Made, started with `begin`; leaving the block leaves no process behind."""

    def __init__(
        self, directory: Path, binaries: Path | None, seed: int, *, short: bool = False
    ) -> None:
        self.directory = directory
        self.short = short
        self._began = time.monotonic()
        self.marks = directory / "marks"
        self.marks.touch()
        self.seed = seed
        self.happened: Counter[str] = Counter()
        self.outages: list[Outage] = []
        self.not_done: dict[str, str] = {}
        self.failures: list[str] = []
        self._stack = ExitStack()
        no_standby = Pair.missing(binaries)
        self.pair = None if no_standby else Pair(directory / "pg", binaries, SETTINGS)
        self._alone = OwnServer(directory / "pg" / "a", binaries, SETTINGS) if no_standby else None
        if no_standby:
            self.not_done["failover"] = no_standby
        if program() is None:
            self.not_done["pgbouncer"] = "there is no pgbouncer on this machine"
        if library() is None:
            self.not_done["clock jumps"] = "there is no libfaketime: pip install libfaketime"
        if why := impossible():
            self.not_done["hosts"] = why
        self.far: Host | None = None
        self.bouncer: Bouncer | None = None
        self.proxies: dict[str, Proxy] = {}
        self.starved: list[tuple[float, float]] = []
        self.clocks: dict[str, FakeClock] = {}
        self.fleet = Fleet(directory, self.marks, "3s" if short else "8s")
        self.onlookers: Onlookers | None = None
        self.watch = Watch(self._pids)
        self._keeping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    @property
    def server(self) -> OwnServer:
        """The primary."""
        server = self.pair.primary if self.pair is not None else self._alone
        assert server is not None
        return server

    def _keep(self) -> None:
        while not self._keeping.wait(0.2):
            self.fleet.keep()

    def _pids(self) -> dict[str, int]:
        members = self.fleet.members.values()
        return {x.name: x.popen.pid for x in members if x.popen is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keeping.set()
        if self.onlookers is not None:
            self.onlookers.kill()
        self.fleet.close()
        forget(pid for member in self.fleet.members.values() for pid in member.pids)
        if self.bouncer is not None:
            self.bouncer.kill()
        self._stack.close()
        if self.pair is not None:
            self.pair.close()
        else:
            self.server.stop("immediate")

    # -- the beginning ----------------------------------------------------------------------------

    def begin(self) -> None:
        """A crowd of replicas has made an empty database a ledger; the fleet and the load run."""
        self.dsn = self.pair.start() if self.pair is not None else self.server.start()
        self._start_all_at_once()
        self.sql(f"CREATE ROLE {ROLE} LOGIN IN ROLE cronledger_runner")
        self.sql(f"CREATE ROLE {CLIENT} LOGIN SUPERUSER")
        migrate(self.dsn)
        with psycopg.connect(self.dsn) as c:
            psycopg.ClientCursor(c).execute(SQL_JOBS, [json.dumps(COMMAND)])
        page, *metrics = free_ports(3)
        self._make_fleet(make_conninfo(self.dsn, user=ROLE), metrics)
        self.onlookers = Onlookers(
            self.directory, make_conninfo(self.dsn, user=ROLE), page, metrics
        )
        self.onlookers.start(self.seed)
        self.load = Load(make_conninfo(self.dsn, user=CLIENT), self.seed)
        self.load.start()
        self._keeper.start()
        self.watch.start()

    def _start_all_at_once(self) -> None:
        """On an empty database, each of them told to migrate it."""
        crowd = Fleet(self.directory, self.marks)
        word, many = ALL_AT_ONCE[self.short]
        try:
            for number in range(many):
                member = crowd.replica(f"crowd{number}", self.dsn)
                member.argv.remove("--no-migrate")
                crowd.start(member)
            for member in crowd.members.values():
                until(f"{member.name} has started", lambda m=member: _started(m), 120)  # type: ignore[misc]
            self.failures += crowd.end()
        finally:
            crowd.close()
        self.happened[f"{word} replicas on an empty database"] += 1

    def _make_fleet(self, dsn: str, metrics: list[int]) -> None:
        here = single(dsn, self.server.data)
        for name in ("far", "ahead"):
            proxy = self._gate(here) if name == "far" else Proxy(here)
            self.proxies[name] = self._stack.enter_context(proxy)
        if "clock jumps" not in self.not_done:
            for name, seconds in (("ahead", 3600), ("pooled", -3600)):
                self.clocks[name] = FakeClock(self.directory / f"{name}.clock", seconds)
        pooled = {"dsn": dsn}
        if "pgbouncer" not in self.not_done:
            self.bouncer = Bouncer(self.directory / "bouncer", self.server, (ROLE, "postgres"))
            pooled = {"dsn": self.bouncer.dsn(ROLE), "CRONLEDGER_PGBOUNCER": "1"}
            pooled["CRONLEDGER_LISTEN_URL"] = dsn
        self.listening = self._stack.enter_context(Proxy(here))
        members = [
            self.fleet.replica("lasting", dsn, **_metrics(metrics[0])),
            self.fleet.replica(
                "plain", dsn, CRONLEDGER_LISTEN_URL=self.listening.dsn, **_metrics(metrics[1])
            ),
            self.fleet.replica("far", self.proxies["far"].dsn),
            self.fleet.replica("ahead", self.proxies["ahead"].dsn, **self._clock("ahead")),
            self.fleet.replica("pooled", **pooled, **self._clock("pooled")),
            self.fleet.worker("worker", dsn, self.server.programs.directory),
        ]
        self.fleet.members["far"].host = self.far
        self.fleet.start(*members)
        for member in members[:-1]:
            until(f"{member.name} has started", lambda m=member: _started(m), 120)  # type: ignore[misc]

    def _gate(self, dsn: str) -> Proxy:
        """To a host of its own where that can be."""
        if "hosts" in self.not_done:
            return Proxy(dsn)
        network = self._stack.enter_context(Network())
        self.far = network.host()
        return Gate(dsn, network.host())

    def _clock(self, name: str) -> dict[str, str]:
        return self.clocks[name].environ if name in self.clocks else {}

    def note(self, what: str) -> None:
        """Print how far the run is."""
        print(f"{time.monotonic() - self._began:6.1f} s: {what}", flush=True)

    # -- what faults need -------------------------------------------------------------------------

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Asked of the primary, by the superuser."""
        return (self.pair or self.server).sql(statement, *values)

    def follow_primary(self) -> None:
        """Proxies and the pooler lead to whichever is the primary now."""
        for proxy in (*self.proxies.values(), self.listening):
            proxy.lead_to(single(self.dsn, self.server.data))
        if self.bouncer is not None:
            self.bouncer.lead_to(self.server)

    def replicas(self) -> list[Member]:
        """Those that may be killed; `lasting` lives to the end."""
        return [x for x in self.fleet.members.values() if x.name not in ("lasting", "worker")]

    def outage(self, what: str, seconds: float, since: float, places: dict[str, int]) -> None:
        """Write down an outage that is over; `places`: how long each log was before it."""
        lines = {
            name: len(trouble(self.fleet.members[name].lines(place)))
            for name, place in places.items()
        }
        self.outages.append(Outage(what, since, seconds, lines))

    def log_places(self) -> dict[str, int]:
        members = self.fleet.members.values()
        return {x.name: x.log.stat().st_size for x in members if x.name in ("lasting", "plain")}

    # -- the end ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """All that is due has run, what was killed is swept or stolen, everybody drained."""
        self.load.stop()
        # Who starts later applies its jobs anew, without this end, and does not heed SIGTERM yet.
        self._wait_for_starts()
        time.sleep(1)
        self.sql(
            "UPDATE cronledger.jobs SET ends_at = cronledger.db_now()"
            " WHERE schedule <> '' AND after IS NULL"
        )
        unsettled: LiteralString = """
            SELECT job_name, status FROM cronledger.executions
            WHERE status IN ('RUNNING', 'PENDING') OR next_attempt_at IS NOT NULL
            UNION ALL SELECT job_name, 'dirty' FROM cronledger.input_status WHERE is_dirty
            UNION ALL SELECT job_name, 'due' FROM cronledger.schedules
                      WHERE next_due_at <= cronledger.db_now() OR parked IN ('waiting', 'limit')
            UNION ALL SELECT channel, 'undelivered' FROM cronledger.alerts
                      WHERE delivered_at IS NULL"""
        self._wait_while_it_shrinks(unsettled)
        left = Counter(f"{job} {status}" for job, status in self.sql(unsettled))
        self.failures += [
            f"left, and no less for two minutes: {number} x {what}" for what, number in left.items()
        ]
        assert self.onlookers is not None
        self.onlookers.stop()
        self._keeping.set()
        self._keeper.join()
        self.watch.stop()
        self.failures += self.fleet.end()

    def _wait_while_it_shrinks(self, unsettled: LiteralString) -> None:
        """Return when nothing is unsettled, or when it has not become less for two minutes."""
        fewest = len(self._left(unsettled))
        shrank_at = time.monotonic()
        while fewest and time.monotonic() < shrank_at + 120:
            time.sleep(0.2)
            if (left := len(self._left(unsettled))) < fewest:
                fewest, shrank_at = left, time.monotonic()

    def _left(self, unsettled: LiteralString) -> list[tuple[Any, ...]]:
        """What has not settled. A short run has no time for the work that outlives every lease, and
        none for what the worker has before it: that ends by cancel."""
        if self.short:
            self.sql(
                "SELECT cronledger.cancel(id) FROM cronledger.executions"
                " WHERE (job_name, status) IN (('long', 'RUNNING'), ('foreign', 'PENDING'))"
            )
        return self.sql(unsettled)

    def _wait_for_starts(self) -> None:
        """Raise with the log of whoever has not started ten minutes after the last fault."""
        give_up_at = time.monotonic() + 600
        while waiting := self._not_started():
            assert time.monotonic() < give_up_at, "not started:" + "".join(
                f"\n{x.name}:\n{x.log.read_text()[-3000:]}" for x in waiting
            )
            time.sleep(0.2)

    def _not_started(self) -> list[Member]:
        known = {name for (name,) in self.sql("SELECT id FROM cronledger.runners")}
        return [
            x
            for x in self.fleet.members.values()
            if not x.has_started and x.environ.get("WORKER_NAME") not in known
        ]


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _metrics(port: int) -> dict[str, str]:
    return {"CRONLEDGER_METRICS": "1", "CRONLEDGER_HEALTH_PORT": str(port)}


def _started(member: Member) -> bool:
    assert member.process.poll() is None, f"{member.name} ended:\n{member.log.read_text()[-3000:]}"
    return member.has_started


def terminate_all(world: World) -> None:
    """Every connection of replicas, of the worker and of the client is ended."""
    world.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = ANY (%s)",
        [ROLE, CLIENT],
    )


def terminate(c: psycopg.Connection, kind: str) -> int:
    """How many connections of that application_name were ended."""
    # Not in WHERE, where it would come first and end every backend of the server.
    row = c.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = %s AND pid <> pg_backend_pid()", [kind],
    ).fetchone()  # fmt: skip
    assert row is not None
    return int(row[0])
