"""F39: `wait` returns the end of an execution, and misses none.

It LISTENs, and a notification of the end makes its next poll come at once. In most of the tests of
that, the pauses between polls never end by themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from cronledger import AsyncClient, Client, Context
from cronledger.client import Execution, NotFoundError, Status, waiting
from cronledger.client.waiting import Patience
from cronledger.ledger import ends
from cronledger.ledger.senders import Sender
from cronledger.settings import Settings
from tests.db.support import rows
from tests.db.support.clients import KINDS, asked
from tests.db.support.engine import MINUTE, Ledger, Runner
from tests.db.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.db.support.rows import Db
from tests.db.support.whole_replica import Whole
from tests.waiting import PATIENCE, eventually, until

MOST_WAITS = 12
Wait = Callable[[int], Coroutine[Any, Any, Execution]]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_execution_that_ended_is_returned_at_once_and_no_other(
    kind: str, database_url: str, db: Db
) -> None:
    rows.job(db, "job", schedule=None)
    at = rows.now(db)
    statuses = ("SUCCESS", "FAILED", "CANCELLED")
    ended = [
        rows.execution(db, status, plan_time=at - n * MINUTE)["id"]
        for n, status in enumerate(statuses, 1)
    ]
    pending = rows.execution(db, "PENDING", plan_time=at)["id"]
    retried = rows.execution(db, "FAILED", plan_time=at - 9 * MINUTE, next_attempt_at=at)["id"]
    said = f"execution {pending} of job 'job' has not ended within 0.05 s: it is PENDING; it is not"
    async with asked(kind, database_url) as ask:
        assert [(await ask("wait", one, timeout=0)).status for one in ended] == [*statuses]
        with pytest.raises(TimeoutError, match=said):
            await ask("wait", pending, timeout=0.05)
        with pytest.raises(TimeoutError, match="it is FAILED"):
            await ask("wait", retried, 0)
        with pytest.raises(NotFoundError, match="execution 99 does not exist\nHint: its partition"):
            await ask("wait", 99)


def test_pauses_grow_with_the_time_that_was_waited(
    db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.job(db, "job", schedule=None)
    made = rows.execution(db, "PENDING", plan_time=rows.now(db))["id"]
    with Client(database_url) as client:
        found = client.execution(made)
    at = [100.0]
    monkeypatch.setattr("cronledger.client.waiting.time.monotonic", lambda: at[0])
    patience = Patience(60.0)
    pauses = []
    for waited in (0.0, 0.05, 2.0, 30.0, 59.5):
        at[0] = 100.0 + waited
        pauses.append(round(patience.pause(found), 6))
    assert pauses == [0.01, 0.01, 0.2, 1.0, 0.5]
    assert Patience(None).pause(found) == 0.01
    at[0] = 160.0
    with pytest.raises(TimeoutError, match="within 60 s"):
        patience.pause(found)


async def test_inside_a_transaction_it_is_refused(database_url: str) -> None:
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(RuntimeError, match=r"inside a transaction, because what .*commit first"),
    ):
        Client(connection=connection).wait(1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as autocommit:
        client = AsyncClient(connection=autocommit)
        with pytest.raises(NotFoundError):
            await client.wait(1)
        async with autocommit.transaction():
            with pytest.raises(RuntimeError, match="inside a transaction"):
                await client.wait(1)


# -- notifications ---------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait LISTENs at once."""
    monkeypatch.setattr(ends, "LISTEN_AFTER_SECONDS", 0.0)


@pytest.fixture
def only_notified(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait LISTENs at once, and polls only when it is woken."""
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 2 * PATIENCE)
    monkeypatch.setattr(waiting, "LONGEST_SECONDS", 2 * PATIENCE)


@pytest.fixture(params=["threads", "tasks"])
async def wait(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Wait]:
    """`wait` of a client, which fails if it takes too long."""
    loop = asyncio.get_running_loop()
    async with AsyncClient(database_url) as client:
        with Client(database_url) as blocking, ThreadPoolExecutor(MOST_WAITS) as threads:

            async def waits(execution: int) -> Execution:
                async with asyncio.timeout(PATIENCE):
                    if request.param == "tasks":
                        return await client.wait(execution)
                    return await loop.run_in_executor(threads, blocking.wait, execution)

            yield waits


@contextmanager
def announcements(url: str) -> Iterator[Callable[[int], Awaitable[None]]]:
    """`announced(execution)` returns once a wait for it was announced to whoever LISTENs."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN cronledger")
        seen: set[str] = set()

        def is_announced(execution: int) -> bool:
            seen.update(note.payload for note in connection.notifies(timeout=0.01))
            return f"wait {execution}" in seen

        async def announced(execution: int) -> None:
            await eventually("the wait is announced", lambda: is_announced(execution))

        yield announced


async def announced_wait(url: str, wait: Wait, execution: int) -> "asyncio.Task[Execution]":
    """Begin to wait, and return once the wait was announced."""
    with announcements(url) as announced:
        waits = asyncio.create_task(wait(execution))
        await announced(execution)
    return waits


def listeners(db: Db) -> list[int]:
    """The server processes of the connections for waits."""
    found = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = %s",
        [ends.NAME],
    )
    return [row["pid"] for row in found]


def end(db: Db, execution: int, notify: bool = False) -> None:
    """The execution ends, and perhaps this is notified."""
    db.execute(
        "UPDATE cronledger.executions SET status = 'SUCCESS', finished_at = started_at,"
        " duration_ms = 1 WHERE id = %s",
        [execution],
    )
    if notify:
        db.execute("SELECT pg_notify('cronledger_ended', %s)", [str(execution)])


@pytest.fixture
def running(db: Db) -> int:
    """An execution that is RUNNING, held by nobody."""
    rows.job(db, "job", schedule=None)
    found: int = rows.execution(db, "RUNNING", plan_time=rows.now(db))["id"]
    return found


@pytest.mark.usefixtures("only_notified")
async def test_a_replica_notifies_of_the_end(whole: Whole, db: Db, wait: Wait) -> None:
    def work(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    whole.job(work, max_attempts=2, retry_backoff=["0s"], queue="slow")
    async with whole.replica(queues=["slow"]):
        await asyncio.to_thread(db.execute, "SELECT cronledger.pause_queue('slow')")
        made = await asyncio.to_thread(
            rows.value, db, "SELECT cronledger.trigger('work', force => true)"
        )
        waits = await announced_wait(whole.url, wait, made)
        # Replicas hear of the wait before they hear that they may start the execution.
        await asyncio.to_thread(db.execute, "SELECT cronledger.resume_queue('slow')")
        ended = await waits
    assert (ended.status, ended.result) == (Status.SUCCESS, 2)
    await eventually("the connection is closed", lambda: listeners(db) == [])


@pytest.mark.usefixtures("only_notified")
@pytest.mark.parametrize("wait", ["tasks"], indirect=True)
async def test_a_cancel_notifies_of_the_end(db: Db, database_url: str, wait: Wait) -> None:
    rows.job(db, "job", schedule=None)
    made = rows.execution(db, "PENDING", plan_time=rows.now(db))["id"]
    waits = await announced_wait(database_url, wait, made)
    assert rows.value(db, "SELECT cronledger.cancel(%s)", made) == "cancelled"
    assert (await waits).status == Status.CANCELLED


async def test_only_ends_that_are_awaited_are_notified(ledger: Ledger, one: Runner, db: Db) -> None:
    """One statement more for all of them, in the transaction that re-arms schedules."""
    ledger.job("job", schedule=None, overlap="allow")
    db.execute("LISTEN cronledger_ended")
    for _ in range(5):
        ledger.trigger("job")
    leases = await one.step()
    awaited = sorted(lease.claimed.id for lease in leases[1:3])
    for execution in (*awaited, 10**6):
        assert one.awaited.note(f"wait {execution}")
    names = one.record()
    for lease in leases:
        one.put(lease)
    await one.finisher.step()
    assert names == ["finish_executions", "rearm_unblocked", "has_waiting", "notify_ended"]
    ledger.values("SELECT pg_notify('cronledger_ended', 'all')")  # they arrive in order
    heard = takewhile("all".__ne__, (note.payload for note in db.notifies(timeout=PATIENCE)))
    assert sorted(map(int, heard)) == awaited


async def test_a_sweep_notifies_of_the_ends(ledger: Ledger, one: Runner, db: Db) -> None:
    ledger.job("job", schedule=None, allow_stale_reentry=False)
    db.execute("LISTEN cronledger_ended")
    made = ledger.trigger("job")
    (lease,) = await one.step()
    assert one.awaited.note(f"wait {lease.claimed.id}")
    ledger.travel(by="1h")
    await one.sweep()
    (note,) = db.notifies(timeout=PATIENCE, stop_after=1)
    assert note.payload == str(made)
    assert ledger.statuses() == ["FAILED"]


@pytest.mark.usefixtures("only_notified")
@pytest.mark.parametrize("after", ["show_execution", "call_announce_wait"])
async def test_an_end_before_the_notifications_arrive_is_read(
    running: int, db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """It ends after the first poll, before LISTEN, or after LISTEN, before the next poll."""
    sent = list[str]()

    def spy(sender: Sender, calls: Any) -> Any:
        found = real(sender, calls)
        sent.append(calls[0].name)
        if calls[0].name == after and sent.count(after) == 1:
            end(db, running)
        return found

    real = Sender.send_all
    monkeypatch.setattr(Sender, "send_all", spy)
    with Client(database_url) as client:
        ended = await asyncio.wait_for(asyncio.to_thread(client.wait, running), PATIENCE)
    assert ended.succeeded
    poll, announce = "show_execution", "call_announce_wait"
    expected = [poll, poll] if after == poll else [poll, poll, announce, poll]
    # The connection may LISTEN before the thread of the wait looks whether it does.
    assert sent in (expected, [poll, announce, poll])


@pytest.mark.usefixtures("only_notified")
async def test_a_new_connection_announces_again_and_an_end_without_one_is_read(
    running: int, db: Db, database_url: str, wait: Wait
) -> None:
    waits = await announced_wait(database_url, wait, running)
    with announcements(database_url) as announced:
        db.execute("SELECT pg_terminate_backend(%s)", listeners(db))
        await announced(running)
    end(db, running)
    for pid in listeners(db):
        db.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert (await waits).succeeded


async def test_a_wait_is_announced_again_before_replicas_forget_it(
    running: int, db: Db, database_url: str, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "ANNOUNCE_SECONDS", 0.1)
    waits = await announced_wait(database_url, wait, running)
    with announcements(database_url) as announced:
        await announced(running)
    end(db, running)
    assert (await waits).succeeded


@pytest.mark.usefixtures("only_notified")
async def test_the_waits_of_a_client_share_a_connection(
    db: Db, database_url: str, wait: Wait
) -> None:
    rows.job(db, "job", schedule=None)
    made = [rows.execution(db, "RUNNING")["id"] for _ in range(MOST_WAITS // 2)]
    with announcements(database_url) as announced:
        waits = [asyncio.create_task(wait(one)) for one in (*made, *made)]
        for one in made:
            await announced(one)
    await eventually("all have a connection", lambda: len(listeners(db)) == 1)
    for one in made:
        end(db, one, notify=True)
    assert [ended.id for ended in await asyncio.gather(*waits)] == [*made, *made]
    await eventually("the connection is closed", lambda: listeners(db) == [])


@pytest.mark.parametrize("after", [0.0, 2 * PATIENCE])
async def test_a_timeout_closes_the_connection_and_a_short_wait_opens_none(
    running: int, db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    monkeypatch.setattr(ends, "LISTEN_AFTER_SECONDS", after)
    said = f"execution {running} "
    with Client(database_url) as client, pytest.raises(TimeoutError, match=said):
        client.wait(running, 0.3)
    async with AsyncClient(database_url) as async_client:
        with pytest.raises(TimeoutError, match=said):
            await async_client.wait(running, 0.3)
    if after:
        assert listeners(db) == []
    until("the connections are closed", lambda: listeners(db) == [])


@pytest.mark.usefixtures("only_notified")
async def test_a_cancelled_wait_leaves_nothing(running: int, db: Db, database_url: str) -> None:
    async with AsyncClient(database_url) as client:
        for has_begun in (True, False):
            with announcements(database_url) as announced:
                waits = asyncio.create_task(client.wait(running))
                await (announced(running) if has_begun else asyncio.sleep(0))
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({ends.NAME})
            await eventually("the connection is closed", lambda: listeners(db) == [])


@pytest.mark.usefixtures("at_once")
async def test_the_session_of_a_caller_does_not_listen(
    running: int, db: Db, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(TimeoutError):
            Client(connection=connection).wait(running, 0.1)
        channels = connection.execute("SELECT pg_listening_channels()").fetchall()
    assert (channels, listeners(db)) == ([], [])


@pytest.mark.usefixtures("at_once")
async def test_without_listen_it_polls(
    running: int, db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection can LISTEN, and that is logged."""
    logged: list[str] = []
    monkeypatch.setattr(ends.log, "warning", lambda event, **_: logged.append(event))
    nowhere = Settings(listen_url=SecretStr("postgresql://127.0.0.1:1/nowhere"))
    async with AsyncClient(database_url, settings=nowhere) as async_client:
        with Client(database_url, settings=nowhere) as client:
            waits = [
                asyncio.create_task(asyncio.to_thread(client.wait, running)),
                asyncio.create_task(async_client.wait(running)),
            ]
            await eventually("both have tried", lambda: len(logged) == 2)
            end(db, running)
            assert all(ended.succeeded for ended in await asyncio.gather(*waits))
    assert logged == ["wait_cannot_listen"] * 2


@needs_pgbouncer
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("listens", [False, True])
async def test_behind_pgbouncer_it_polls_or_listens_elsewhere(
    running: int, db: Db, database_url: str, tmp_path: Path, listens: bool
) -> None:
    direct = SecretStr(database_url) if listens else None
    settings = Settings(pgbouncer=True, listen_url=direct)
    with (
        pgbouncer(database_url, tmp_path) as url,
        announcements(database_url) as announced,
        Client(url, settings=settings) as client,
    ):
        waits = asyncio.create_task(asyncio.to_thread(client.wait, running))
        if listens:
            await announced(running)
            assert len(listeners(db)) == 1
        end(db, running)
        assert (await waits).succeeded
    if not listens:
        assert listeners(db) == []
