"""A process or its host is gone without a word, or hears nothing: nobody waits for it."""

import asyncio
import ipaddress
import random
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cronledger.declaring.app import App, Context
from cronledger.engine.maintenance.listener import Listener
from cronledger.ledger.access import Access
from cronledger.ledger.migrate import migrate
from cronledger.ledger.transactions import transaction
from cronledger.replica import Replica
from tests.cluster.support.servers import OwnServer, listen, stopping
from tests.waiting import until

pytestmark = pytest.mark.slow

GONE = "gone"


@pytest.fixture(scope="module")
def tcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DSN, over TCP, of a server of this module's own."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux answers on every address of 127.0.0.0/8")
    address = str(ipaddress.IPv4Address(random.randrange(0x7F010000, 0x7FFF0000)))
    server = OwnServer(tmp_path_factory.mktemp("tcp"), settings={"fsync": "off"})
    with stopping(server) as dsn:
        listen(server, dsn, address, "127.0.0.0/8")
        migrate(dsn)
        yield make_conninfo(dsn, host=address)


async def test_a_blocked_listener_does_not_block_its_server(tcp: str) -> None:
    """While the loop is blocked nobody reads what is notified, until the socket is full."""
    listening, lost = asyncio.Event(), asyncio.Event()
    access = Access(tcp, tcp_user_timeout=timedelta(seconds=0.5))
    listener = Listener(access, "cronledger")
    listener.notified.then(lambda payload: listening.set())
    listener.lost.then(lost.set)

    async def listen() -> None:
        while not lost.is_set():
            await listener.step()

    task = asyncio.create_task(listen())
    async with asyncio.timeout(90):
        await listening.wait()
    with psycopg.connect(tcp, autocommit=True) as c:  # which blocks the loop
        # A busy machine may look at it only after the server has given it up.
        until("it hangs in its write", lambda: _notify(c) in ("ClientWrite", GONE))
        until("the server has given it up", lambda: _waits(c) == GONE)
        assert c.execute("SELECT pg_notification_queue_usage()").fetchone() == (0.0,)
    await task
    assert listener.failing is not None
    assert not listener.listening
    await listener.close()


def _notify(c: psycopg.Connection) -> object:
    c.execute(
        "SELECT pg_notify('cronledger', n || repeat('x', 7000)) FROM generate_series(1, 99) n"
    )
    return _waits(c)


def _waits(c: psycopg.Connection) -> object:
    """What the listener's backend waits for, None if it works, GONE if it has ended."""
    row = c.execute(
        "SELECT wait_event FROM pg_stat_activity WHERE application_name = 'cronledger listen'"
    ).fetchone()
    return GONE if row is None else row[0]


async def test_the_server_looks_whether_the_host_of_a_transaction_is_there(tcp: str) -> None:
    """That of a handler, of a command and of a step."""
    app, shown = App("tests"), {}

    @app.job(None, run_timeout=timedelta(seconds=90))
    def looks(ctx: Context) -> None:  # on a connection that was told nothing when it was opened
        with ctx.transaction() as conn:
            cursor = conn.execute(
                "SELECT name, setting FROM pg_settings WHERE name ~ 'tcp_|idle_in|client_conn'"
            )
            shown.update({row[0]: row[1] for row in cursor.fetchall()})

    keepalives: LiteralString = "SHOW tcp_keepalives_idle"
    async with Replica(app, url=tcp, manual=True) as replica:
        access = replica._runtime.access
        with access.connect() as c, transaction(c):
            c.execute("SELECT cronledger.trigger('looks')")
            assert c.execute(keepalives).fetchone() == ("5",)
        async with replica._runtime.pool.connection() as in_pool:
            assert await (await in_pool.execute(keepalives)).fetchone() == ("5",)
        (ran,) = await replica.step()
    assert ran.status == "SUCCESS"
    assert shown == {
        "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
        "tcp_user_timeout": "0", "client_connection_check_interval": "2000",
        "idle_in_transaction_session_timeout": "90000",
    }  # fmt: skip
