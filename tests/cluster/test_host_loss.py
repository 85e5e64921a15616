"""A host is really lost: nothing that it sends arrives, and nobody hears of it."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cronledger.audit.verify import verify
from tests.cluster.support.harness import Cluster, Process, instant
from tests.cluster.support.hosts import Host, Network, impossible, reached, serving
from tests.cluster.support.jobs import LEASE_VARIABLE, OWN_DSN
from tests.cluster.support.marks import Mark
from tests.cluster.support.outside_record import assert_accounted_for
from tests.cluster.support.servers import OwnServer
from tests.database import Databases, fast_directory, scratch_directory
from tests.processes import alive
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


LEASE = 3.0
LONG_LEASE = 10.0
"""Of what runs for a while before its host is lost."""
SHORT = 8.0
"""The run_timeout of those to whom the server always has something to say."""
KEEPALIVES = 11.0
"""Of both sides; an answer that nobody takes ends a connection a second earlier."""
CONNECTS = 5.0
"""The connect_timeout: an attempt that began without a network ends, the next one succeeds."""
LOOKS = 2.0
"""Between two looks of the server for the client of a statement."""
SETTLES = 2.0
"""What was sent before a loss has happened by then."""
SLACK = 12.0
"""Of a machine that has other things to do."""
KINDS = ("async", "thread", "command")
AGAIN = tuple(f"{kind}_again" for kind in KINDS)
ONCE = tuple(f"{kind}_once" for kind in KINDS)


def _assert_within(seconds: float, took: float, what: str) -> None:
    print(f"{took:.2f} s: {what} (within {seconds:.0f} s)")
    assert took < seconds + SLACK


class Site(Cluster):
    """A ledger on the host `server`, and replicas on `a` and `b`. The test looks at the ledger
    through the server's unix socket, whatever is lost."""

    def __init__(
        self, own: OwnServer, hosts: tuple[Host, Host, Host], url: str, directory: Path
    ) -> None:
        super().__init__(url, directory)
        self.own = own
        self.server, self.a, self.b = self.hosts = hosts
        self._dsn = reached(url, self.server)

    def on(
        self, host: Host, app: str, name: str, *, lease: float = LEASE, **settings: Any
    ) -> Process:
        """A replica of that name, on that host; it has started."""
        environ = {OWN_DSN: self._dsn, LEASE_VARIABLE: f"{lease:.0f}s"}
        with host.inside():
            return self.start(app, url=self._dsn, runner_id=name, environ=environ, **settings)

    def reaches(self, host: Host) -> bool:
        try:
            with host.inside(), psycopg.connect(self._dsn):
                return True
        except psycopg.OperationalError:
            return False

    def now(self) -> float:
        """The database's clock."""
        (at,) = self.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(at)

    def starts(self, job: str, after: float = 0.0) -> list[Mark]:
        return [m for m in self.marks("start") if m.job == job and m.at > after]

    def fired(self, runner: str, after: float) -> list[Any]:
        """What `fires` started there after `after`, in database time."""
        rows = [
            r for r in self.executions() if (r["job_name"], r["runner_id"]) == ("fires", runner)
        ]
        return [r for r in rows if instant(r["started_at"]) > after]


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host, Host]]:
    why = impossible()
    if why is not None:
        pytest.skip(why)
    with Network() as network:
        yield network.host(), network.host(), network.host()


@pytest.fixture(scope="module")
def server(
    hosts: tuple[Host, Host, Host], testrun_uid: str
) -> Iterator[tuple[OwnServer, Databases]]:
    with ExitStack() as stack:
        directory = stack.enter_context(scratch_directory(fast_directory()))
        own = OwnServer(directory / "s", settings={"fsync": "off", "max_connections": "100"})
        dsn = stack.enter_context(serving(own, hosts[0]))
        yield own, stack.enter_context(Databases(dsn, testrun_uid))


@pytest.fixture
def site(
    hosts: tuple[Host, Host, Host], server: tuple[OwnServer, Databases], tmp_path: Path
) -> Iterator[Site]:
    """A fresh ledger, which is whole afterwards; every host is there again then."""
    own, databases = server
    name = databases.create(databases.template())
    made = Site(own, hosts, databases.url(name), tmp_path)
    try:
        for host in (made.a, made.b):
            until("it reaches the database", partial(made.reaches, host))
        yield made
        assert [str(x) for x in verify(made.url)] == []
    finally:
        for host in hosts:
            host.heal()
        made.close()
        databases.drop(name)
        print(made.report())


def test_what_ran_on_a_lost_host_is_over_before_others_have_it(site: Site) -> None:
    """I3, I6; back on the network, its replica goes on by itself, and nothing of that counts."""
    a = site.on(site.a, "crash", "a", lease=LONG_LEASE)
    site.trigger(*AGAIN, *ONCE)
    until("all run", lambda: len({m.job for m in site.marks("alive")}) == len((*AGAIN, *ONCE)))
    b = site.on(site.b, "crash", "b", lease=LONG_LEASE)
    seen = site.now()
    until("heartbeats", lambda: all(instant(r["heartbeat_at"]) > seen for r in site.executions()))
    lost, offset = site.now(), site.clock_offset()
    site.a.lose()
    until("all have ended", lambda: not site.executions("RUNNING"))
    last = {m.job: m.at - offset for m in site.marks() if m.attempt == 1}
    ended = site.executions()
    for row in ended:
        again = row["job_name"] in AGAIN
        over = instant(row["started_at" if again else "finished_at"])
        assert last[row["job_name"]] < over
        _assert_within(LONG_LEASE + 1, over - lost, f"{row['job_name']} is stolen or swept")
        assert (row["status"], row["runner_id"]) == (("SUCCESS", "b") if again else ("FAILED", "a"))
        assert row["error_code"] == (None if again else "stale_timeout")
    for pid in {m.pid for m in site.marks() if m.job.startswith("command")}:
        assert not alive(pid)
    b.popen.terminate()
    assert b.wait() == 0
    site.a.heal()
    until("it knows what it lost", lambda: len(a.events("lease_lost")) == len(ended))
    site.trigger("probe")
    until("it goes on", lambda: site.execution("probe")["status"] == "SUCCESS")
    assert site.execution("probe")["runner_id"] == "a"
    assert [r for r in site.executions() if r["job_name"] != "probe"] == ended


# -- in the middle of something --------------------------------------------------------------------


@pytest.mark.parametrize("under_way", [False, True], ids=["idle", "answer under way"])
def test_schedules_that_a_lost_host_had_locked_fire_elsewhere(site: Site, under_way: bool) -> None:
    """Keepalives tell nothing while the server waits for its answer to be acknowledged."""
    a = site.on(site.a, "lost", "a")
    until("it fires", lambda: len(site.starts("fires")) >= 2)
    with _in_the_middle_of_a_claim(site) as go_on:
        if not under_way:
            a.signal(signal.SIGSTOP)  # its host goes on, and acknowledges
            go_on()
            until("it was answered", partial(_waits_for_its_client, site))
        lost = site.now()
        site.a.lose(silently=under_way)
        if under_way:
            go_on()
    site.on(site.b, "lost", "b", apply=False)
    until("others fire", lambda: {r["scope_id"] for r in site.fired("b", lost)} == {"a", "b"})
    first = instant(site.fired("b", lost)[0]["started_at"])
    _assert_within(KEEPALIVES, first - lost, "schedules fire elsewhere")


@contextmanager
def _in_the_middle_of_a_claim(site: Site) -> Iterator[Callable[[], None]]:
    """A claim has its schedules, and waits to read an edit of their job until what is answered is
    called."""
    bounded = make_conninfo(site.url, options=f"-c lock_timeout={2 * PATIENCE:.0f}s")
    with psycopg.connect(site.url) as edits, psycopg.connect(bounded) as holds:
        edits.execute("UPDATE cronledger.jobs SET run_timeout = '59 min' WHERE name = 'fires'")
        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(holds.execute, "LOCK TABLE cronledger.job_revisions")
            until("it is the next to have it", partial(_waits, site))
            edits.commit()
            taken.result()
        until("a claim waits", partial(_waits, site))
        yield holds.rollback


def _waits(site: Site) -> bool:
    return bool(
        site.rows(
            "SELECT pid FROM pg_locks WHERE NOT granted"
            " AND relation = 'cronledger.job_revisions'::regclass"
        )
    )


def _waits_for_its_client(site: Site) -> bool:
    """The backend that had the claim's locks; whether or not it was told that a round trip ends."""
    return bool(
        site.rows(
            "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE mode = 'RowShareLock' AND relation = 'cronledger.schedules'::regclass"
            " AND (application_name, wait_event) = ('cronledger', 'ClientRead')"
        )
    )


def test_what_a_lost_host_held_for_its_handlers_is_free_in_time(site: Site) -> None:
    """Until its transaction is over nobody may have the row; where answers are always under way,
    run_timeout ends it."""
    idle = {"asserts": KEEPALIVES, "writes": KEEPALIVES, "writes_in_thread": KEEPALIVES,
            "sleeps": KEEPALIVES + LOOKS}  # fmt: skip
    within = {**idle, "is_answered": SHORT, "tells": SHORT + LOOKS}
    site.on(site.a, "lost", "a")
    site.trigger(*within)
    until("all run", lambda: len(_fenced(site)) == len(within))
    # So long after the last answer to them, its acknowledgement has left as well.
    signs = 20
    quiet = {"asserts", "writes", "writes_in_thread"}
    until("they say nothing", lambda: all(_signs(site)[job] > signs for job in quiet))
    lost = site.now()
    site.a.lose()
    site.on(site.b, "lost", "b")
    until("all are done", lambda: all(site.execution(j)["status"] == "SUCCESS" for j in within))
    for job, seconds in within.items():
        row = site.execution(job)
        assert (row["runner_id"], row["attempt"]) == ("b", 2)
        _assert_within(seconds, instant(row["started_at"]) - lost, f"{job} is stolen")
    site.a.heal()
    back = site.now()
    until("it goes on", lambda: site.fired("a", back))


def _signs(site: Site) -> Counter[str]:
    return Counter(m.job for m in site.marks("alive"))


def _fenced(site: Site) -> list[Any]:
    """Backends in a transaction that holds the lease of an execution."""
    return site.rows(
        "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE mode = 'RowShareLock' AND relation = 'cronledger.executions'::regclass"
        " AND application_name IN ('cronledger transaction', 'asserts')"
    )


# -- who reaches the database ----------------------------------------------------------------------


def test_whoever_reaches_the_database_fires(site: Site) -> None:
    """One of two, then the other, then neither, then both: each plan_time ran once at most."""
    site.on(site.a, "lost", "a")
    site.on(site.b, "lost", "b")
    until("both fire", lambda: site.fired("a", 0) and site.fired("b", 0))
    site.b.lose()
    for lost, name, there, away in ((site.a, "b", site.b, "a"), (site.b, "a", site.a, "b")):
        there.heal()
        lost.lose()
        _fires_alone(site, name, away)
    site.a.lose(silently=True)
    neither = site.now()
    until("nothing fires", lambda: site.now() > neither + 2 * SETTLES)
    assert not [r for r in site.executions() if instant(r["started_at"]) > neither + SETTLES]
    for host in (site.a, site.b):
        host.heal()
    both = site.now()
    until("both fire", lambda: site.fired("a", both) and site.fired("b", both))
    for name in "ab":
        _assert_within(
            CONNECTS, instant(site.fired(name, both)[0]["started_at"]) - both, f"{name} fires"
        )
    site.drain()
    assert_accounted_for(site)
    ran = Counter((m.scope, m.plan_time) for m in site.starts("fires"))
    assert set(ran.values()) == {1}


def _fires_alone(site: Site, name: str, away: str) -> None:
    """The replica `name` fires, and the one that is away fires nothing any more.

    The host that is away may have been lost in the middle of a claim or of an execution: its locks
    are free after KEEPALIVES at the latest, its executions are swept after LEASE.
    """
    since = site.now()
    until(f"{name} fires", lambda: len(site.fired(name, since)) > 5)
    first = instant(site.fired(name, since)[0]["started_at"])
    _assert_within(max(CONNECTS, KEEPALIVES, LEASE), first - since, f"{name} fires")
    assert not site.fired(away, since + SETTLES)


@pytest.mark.parametrize("power", [False, True], ids=["unplugged", "power cut"])
def test_the_database_host_is_lost_and_comes_back(site: Site, power: bool) -> None:
    """What is triggered afterwards does not wait for a poll: LISTEN is there again."""
    a = site.on(site.a, "control", "a", poll_interval="10m")
    _assert_within(0, _starts_after(site, site.now()), "what is triggered starts")
    until("it is written", lambda: not site.executions("RUNNING"))
    lost = time.monotonic()
    site.server.lose(silently=not power)
    if power:
        site.own.stop("kill")
    a.event("database_unreachable")
    _assert_within(KEEPALIVES, time.monotonic() - lost, "the replica knows")
    if power:
        with site.server.inside():
            site.own.start()
        site.reconnect()
    else:
        until("the server has noticed", lambda: not _listeners(site))
    site.server.heal()
    _assert_within(CONNECTS, _starts_after(site, site.now()), "what is triggered at once starts")
    a.event("database_recovered")
    until("it listens", lambda: _listeners(site))
    until("it is written", lambda: not site.executions("RUNNING"))
    _assert_within(0, _starts_after(site, site.now()), "what is triggered later starts")


def _starts_after(site: Site, now: float) -> float:
    """Seconds until what is triggered now has started."""
    before = len(site.starts("told"))
    site.trigger("told")
    until("it starts", lambda: len(site.starts("told")) > before)
    return instant(site.executions()[-1]["started_at"]) - now


def _listeners(site: Site) -> list[Any]:
    return site.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'cronledger listen'"
    )
