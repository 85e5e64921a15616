"""A host is really lost: nothing that it sends arrives, and nobody hears of it."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cronledger.audit.verify import verify
from tests.cluster.support.harness import Cluster, Process, instant
from tests.cluster.support.hosts import Host, Network, impossible, reached, serving
from tests.cluster.support.jobs import OWN_DSN
from tests.cluster.support.servers import OwnServer
from tests.database import Databases, fast_directory, scratch_directory
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


SHORT = 8.0
"""The run_timeout of those to whom the server always has something to say."""
KEEPALIVES = 11.0
"""Of both sides; an answer that nobody takes ends a connection a second earlier."""
CONNECTS = 5.0
"""The connect_timeout: an attempt that began without a network ends, the next one succeeds."""
LOOKS = 2.0
"""Between two looks of the server for the client of a statement."""
SLACK = 12.0
"""Of a machine that has other things to do."""


def _assert_within(seconds: float, took: float, what: str) -> None:
    print(f"{took:.2f} s: {what} (within {seconds:.0f} s)")
    assert took < seconds + SLACK


class Site(Cluster):
    """A ledger on the host `server`, and replicas on `a` and `b`. The test looks at the ledger
    through the server's unix socket, whatever is lost."""

    def __init__(self, hosts: tuple[Host, Host, Host], url: str, directory: Path) -> None:
        super().__init__(url, directory)
        self.server, self.a, self.b = hosts
        self._dsn = reached(url, self.server)

    def on(self, host: Host, app: str, name: str, **settings: Any) -> Process:
        """A replica of that name, on that host; it has started."""
        environ = {OWN_DSN: self._dsn}
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

    def fired(self, runner: str, after: float) -> list[Any]:
        """What `fires` started there after `after`, in database time."""
        return [
            row for row in self.executions()
            if (row["job_name"], row["runner_id"]) == ("fires", runner)
            and instant(row["started_at"]) > after
        ]  # fmt: skip


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host, Host]]:
    why = impossible()
    if why is not None:
        pytest.skip(why)
    with Network() as network:
        yield network.host(), network.host(), network.host()


@pytest.fixture(scope="module")
def there(hosts: tuple[Host, Host, Host], testrun_uid: str) -> Iterator[Databases]:
    """Databases on the host `server`."""
    with scratch_directory(fast_directory()) as directory:
        own = OwnServer(directory / "s", settings={"fsync": "off", "max_connections": "100"})
        with serving(own, hosts[0]) as dsn, Databases(dsn, testrun_uid) as made:
            yield made


@pytest.fixture
def site(hosts: tuple[Host, Host, Host], there: Databases, tmp_path: Path) -> Iterator[Site]:
    """A fresh ledger, which is whole afterwards; every host is there again then."""
    name = there.create(there.template())
    made = Site(hosts, there.url(name), tmp_path)
    try:
        for host in (made.a, made.b):
            until("it reaches the database", partial(made.reaches, host))
        yield made
        assert [str(x) for x in verify(made.url)] == []
    finally:
        for host in hosts:
            host.heal()
        made.close()
        there.drop(name)


@pytest.mark.parametrize("under_way", [False, True], ids=["idle", "answer under way"])
def test_schedules_that_a_lost_host_had_locked_fire_elsewhere(site: Site, under_way: bool) -> None:
    """Keepalives tell nothing while the server waits for its answer to be acknowledged."""
    a = site.on(site.a, "lost", "a")
    until("it fires", lambda: len(site.fired("a", 0)) >= 2)
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
    quiet = ("asserts", "writes", "writes_in_thread")
    until("they say nothing", lambda: min(map(_signs(site).count, quiet)) > 20)
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


def _signs(site: Site) -> list[str]:
    """The job of each life sign."""
    return [m.job for m in site.marks("alive")]


def _fenced(site: Site) -> list[Any]:
    """Backends in a transaction that holds the lease of an execution."""
    return site.rows(
        "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE mode = 'RowShareLock' AND relation = 'cronledger.executions'::regclass"
        " AND application_name IN ('cronledger transaction', 'asserts')"
    )


def test_the_database_host_is_lost_and_comes_back(site: Site) -> None:
    """What is triggered afterwards does not wait for a poll: LISTEN is there again."""
    a = site.on(site.a, "control", "a", poll_interval="10m")
    _assert_within(0, _starts_after(site, site.now()), "what is triggered starts")
    until("it is written", lambda: not site.executions("RUNNING"))
    lost = time.monotonic()
    site.server.lose(silently=True)
    a.event("database_unreachable")
    _assert_within(KEEPALIVES, time.monotonic() - lost, "the replica knows")
    until("the server has noticed", lambda: not _listeners(site))
    site.server.heal()
    _assert_within(CONNECTS, _starts_after(site, site.now()), "what is triggered at once starts")
    a.event("database_recovered")
    until("it listens", lambda: _listeners(site))
    until("it is written", lambda: not site.executions("RUNNING"))
    _assert_within(0, _starts_after(site, site.now()), "what is triggered later starts")


def _starts_after(site: Site, now: float) -> float:
    """Seconds until what is triggered now has started."""
    before = len(site.marks("start"))
    site.trigger("told")
    until("it starts", lambda: len(site.marks("start")) > before)
    return instant(site.executions()[-1]["started_at"]) - now


def _listeners(site: Site) -> list[Any]:
    return site.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'cronledger listen'"
    )
