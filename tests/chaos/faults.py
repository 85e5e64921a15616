"""What is done to the servers and to the processes, one fault after the other, drawn by a seed."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cronledger.embedded.postmaster import server_pid
from tests.chaos.settings import hostile_settings
from tests.chaos.snapshot import restore_snapshot
from tests.chaos.world import ROLE, World, terminate
from tests.cluster.support.proxy import Proxy
from tests.cluster.support.servers import How, fill_disk, free_disk
from tests.waiting import until

KINDS = ("cronledger", "cronledger heartbeats", "cronledger listen", "cronledger transaction",
         "psql", "chaos load")  # fmt: skip
FLEETING = 3.0
"""Seconds to wait for a connection of a kind that comes and goes."""
BEYOND_LEASE = (7.0, 10.0)
Fault = Callable[[World, random.Random], None]


# -- servers ---------------------------------------------------------------------------------------


def _restart(how: How) -> Fault:
    def restart(world: World, draw: random.Random) -> None:
        world.server.stop(how)
        time.sleep(draw.uniform(0, 3))
        world.server.start()

    return restart


def outage(seconds: tuple[float, float]) -> Fault:
    """The server is away so long that everybody notices."""

    def away(world: World, draw: random.Random) -> None:
        places, since, length = world.log_places(), time.monotonic(), draw.uniform(*seconds)
        world.server.stop("fast")
        time.sleep(length)
        world.server.start()
        time.sleep(3)  # what is said about the return is said by then
        world.outage("outage", length, since, places)

    return away


def crash_backend(world: World, draw: random.Random) -> None:
    """kill -9 of one backend: the server ends all others and recovers."""
    rows = world.sql("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'cronledger%%'"
                     " ORDER BY pid")  # fmt: skip
    if rows:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(rows)[0], signal.SIGKILL)


def freeze_server(world: World, draw: random.Random) -> None:
    """Every process of the server stands still: nobody is answered, no connection ends."""
    pid = server_pid(world.server.data)
    assert pid is not None
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    frozen = [pid, *map(int, children)]
    for process in frozen:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
    time.sleep(draw.uniform(2, 9))
    for process in frozen:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def terminate_connections(world: World, draw: random.Random) -> None:
    with psycopg.connect(world.server.start(), autocommit=True) as c:
        for kind in draw.sample(KINDS, len(KINDS)):
            give_up_at = time.monotonic() + FLEETING  # psql lives for milliseconds
            while not (ended := terminate(c, kind)) and time.monotonic() < give_up_at:
                time.sleep(0.001)
            world.happened[f"  ended connections: {kind}"] += ended
            time.sleep(draw.uniform(0, 0.5))


def starve_connections(world: World, draw: random.Random) -> None:
    """Fewer connections than everybody needs."""
    world.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT {draw.randrange(0, 12)}")
    try:
        with psycopg.connect(world.server.start(), autocommit=True) as c:
            for kind in KINDS[:3]:
                terminate(c, kind)
        time.sleep(draw.uniform(3, 9))
    finally:
        world.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")


def full_disk(world: World, draw: random.Random) -> None:
    """Writes of the ledger fail with 53100."""
    with psycopg.connect(world.server.start(), autocommit=True) as c:
        fill_disk(c)
        try:
            time.sleep(draw.uniform(2, 8))
        finally:
            free_disk(c)


def read_only(world: World, draw: random.Random) -> None:
    """What hosts do to a server whose disk is full: every write fails with 25006."""
    world.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    world.sql("SELECT pg_reload_conf()")
    try:
        time.sleep(draw.uniform(2, 8))
    finally:
        world.sql("ALTER SYSTEM RESET default_transaction_read_only")
        world.sql("SELECT pg_reload_conf()")


def lock_tables(world: World, draw: random.Random) -> None:
    """Somebody's migration holds what everybody needs, for longer than anybody waits."""
    tables = ("executions", "schedules", "jobs", "runners")
    with (
        suppress(psycopg.errors.DeadlockDetected),
        psycopg.connect(world.server.start()) as c,
    ):
        table = draw.choice(tables)
        c.execute(f"LOCK TABLE cronledger.{table} IN ACCESS EXCLUSIVE MODE".encode())
        time.sleep(draw.uniform(1, 7))


def fail_over(world: World, draw: random.Random) -> None:
    assert world.pair is not None
    since, places = time.monotonic(), world.log_places()
    try:
        world.pair.fail_over()
    finally:  # the old primary is killed in any case
        world.follow_primary()
    seconds = time.monotonic() - since
    time.sleep(draw.uniform(2, 4))
    world.outage("failover", seconds, since, places)
    if not world.short:  # where each fault comes once, no standby is needed any more
        world.pair.rebuild()


# -- processes -------------------------------------------------------------------------------------


def kill(world: World, draw: random.Random) -> None:
    world.fleet.kill(draw.choice(world.replicas()))


def kill_worker(world: World, draw: random.Random) -> None:
    world.fleet.kill(world.fleet.members["worker"])


def stop(world: World, draw: random.Random) -> None:
    """SIGSTOP for longer than any lease lasts, then SIGCONT."""
    world.fleet.freeze(draw.choice(world.replicas()), draw.uniform(*BEYOND_LEASE))


def starve(world: World, draw: random.Random) -> None:
    """A replica gets the processor for a few hundredths of a second, again and again."""
    member, since = draw.choice(world.replicas()), time.monotonic()
    end_at = since + draw.uniform(6, 15)
    while time.monotonic() < end_at:
        world.fleet.freeze(member, draw.uniform(0.4, 2))
        time.sleep(draw.uniform(0.01, 0.05))
    world.starved.append((since, time.monotonic()))


def cut_listen(world: World, draw: random.Random) -> None:
    """Nothing can LISTEN by the DSN that `plain` has for it."""
    world.listening.cut()
    try:
        time.sleep(draw.uniform(4, 8) if world.short else draw.uniform(60, 150))
    finally:
        world.listening.heal()


def drain(world: World, draw: random.Random) -> None:
    world.fleet.drain(draw.choice([*world.replicas(), world.fleet.members["worker"]]))


def deploy(world: World, draw: random.Random) -> None:
    """One replica after the other is of the next deploy."""
    world.fleet.deploy += 1
    for member in world.replicas():
        world.fleet.drain(member)


def jump(world: World, draw: random.Random) -> None:
    """A replica's clock is wrong by something else."""
    draw.choice(list(world.clocks.values())).jump(draw.choice((-3600, -60, 0, 5, 60, 3600)))


def kill_bouncer(world: World, draw: random.Random) -> None:
    assert world.bouncer is not None
    world.bouncer.kill()
    time.sleep(draw.uniform(0, 3))
    world.bouncer.start()


def _spoil(how: Callable[[Proxy], None], seconds: tuple[float, float]) -> Fault:
    def spoil(world: World, draw: random.Random) -> None:
        proxy = draw.choice(list(world.proxies.values()))
        how(proxy)
        try:
            time.sleep(draw.uniform(*seconds))
        finally:
            proxy.delay(0)
            proxy.heal()

    return spoil


def lose_host(world: World, draw: random.Random) -> None:
    """What a replica's host sends vanishes, and what is sent to it; its replica lives on, or dies
    with nobody told."""
    assert world.far is not None
    silently, dies = draw.random() < 0.5, draw.random() < 0.5
    world.far.lose(silently=silently)
    try:
        if dies and not world.short:  # there others kill and drain it at the same time
            world.fleet.kill(world.fleet.members["far"])
        time.sleep(draw.uniform(1, 14))
    finally:
        world.far.heal()


SERVER_FAULTS: Mapping[str, Fault] = {
    "database restarted, fast": _restart("fast"),
    "database restarted, immediate": _restart("immediate"),
    "database killed -9": _restart("kill"),
    "database away 10 to 20 s": outage((10, 20)),
    "backend killed -9": crash_backend,
    "database frozen": freeze_server,
    "connections of every kind terminated": terminate_connections,
    "connections starved": starve_connections,
    "disk full (53100)": full_disk,
    "server read-only (25006)": read_only,
    "table locked": lock_tables,
    "failover": fail_over,
    "settings of roles": hostile_settings,
}
MEMBER_FAULTS: Mapping[str, Fault] = {
    "replica killed -9": kill,
    "worker killed -9": kill_worker,
    "replica stopped past its lease": stop,
    "replica starved of CPU": starve,
    "replica drained and replaced": drain,
    "rolling deploy": deploy,
}
NETWORK_FAULTS: Mapping[str, Fault] = {
    "clock jumped": jump,
    "pgbouncer killed -9": kill_bouncer,
    "network slow": _spoil(lambda x: x.delay(0.3), (2, 6)),
    "network cut": _spoil(Proxy.cut, (1, 14)),
    "network black hole": _spoil(Proxy.black_hole, (1, 14)),
    "network half open": _spoil(Proxy.half_open, (1, 14)),
    "host lost": lose_host,
}
PROCESS_FAULTS: Mapping[str, Fault] = {**MEMBER_FAULTS, **NETWORK_FAULTS}
LISTEN_FAULTS: Mapping[str, Fault] = {"LISTEN cut": cut_listen}
COPY_FAULTS: Mapping[str, Fault] = {"snapshot restored under live replicas": restore_snapshot}
NEEDS = {"failover": "failover", "clock jumped": "clock jumps", "pgbouncer killed -9": "pgbouncer",
         "host lost": "hosts"}  # fmt: skip


class Brief(random.Random):
    """Draws of lengths from the lowest quarter."""

    def uniform(self, a: float, b: float) -> float:
        return super().uniform(a, a + (b - a) / 4)


class Schedule:
    """Draws faults from a shuffled bag, so that each happens before any happens again. `draws`:
    from what each draws its own numbers."""

    def __init__(
        self,
        faults: Mapping[str, Fault],
        world: World,
        seed: str,
        draws: type[random.Random] = random.Random,
    ) -> None:
        missing = {name for name, need in NEEDS.items() if need in world.not_done}
        self._faults = {name: x for name, x in faults.items() if name not in missing}
        self._world = world
        self._draw = random.Random(seed)
        self._draws = draws
        self._bag: list[str] = []

    def __len__(self) -> int:
        """How many faults there are to draw."""
        return len(self._faults)

    def step(self, wait: tuple[float, float]) -> str:
        """One fault, and some peace after it; its name."""
        if not self._bag:
            self._bag = self._draw.sample(sorted(self._faults), len(self._faults))
        name = self._bag.pop()
        # Draws of their own: what one fault draws must not decide what the next one is.
        self._faults[name](self._world, self._draws(self._draw.random()))
        self._world.happened[name] += 1
        time.sleep(self._draw.uniform(*wait))
        return name


def minute_long(world: World, seconds: float) -> None:
    """The outage that item 11 asks for."""
    outage((seconds, seconds))(world, random.Random(0))
    world.happened[f"database away for {seconds:.0f} s"] += 1


def healthy(world: World) -> None:
    """Everything that could be out of order is in order, and everybody answers."""
    until("the primary answers", lambda: world.sql("SELECT 1"))
    with psycopg.connect(make_conninfo(world.dsn, user=ROLE), autocommit=True) as c:
        c.execute("SELECT 1")
