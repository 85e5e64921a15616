"""F37: the clients for Python."""

import asyncio
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from pydantic import BaseModel

from cronledger.client import (
    AsyncClient,
    Client,
    Execution,
    LedgerError,
    NotFoundError,
    PayloadInvalidError,
    SkippedRange,
    SkipReason,
    Status,
    Trigger,
)
from cronledger.ledger import calls, senders
from cronledger.ledger.reports import Reports
from cronledger.rules.instants import iso
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from tests.db.support import rows
from tests.db.support.clients import KINDS, Ask, asked
from tests.db.support.rows import Db, value

GROUP = UUID(int=7)
MONDAY = datetime(2030, 1, 7, 9, tzinfo=UTC)


@pytest.fixture(params=["client", "async connection"])
async def ask(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Ask]:
    """A blocking client with connections of its own, and an async one on that of its caller."""
    async with asked(request.param, database_url) as found:
        yield found


@pytest.fixture
def work(db: Db) -> Db:
    """The jobs `work` without a schedule, `daily`, and `tenants` with the scope `acme`."""
    rows.job(db, "work", handler="external", schedule=None)
    rows.job(db, "daily", handler="external", schedule="30 9 * * *", timezone="Europe/Berlin")
    rows.job(db, "tenants", handler="external", schedule=None, scope_kind="tenant", scopes=["acme"])
    return db


class Order(BaseModel):
    number: int
    due: date


@dataclass
class Item:
    name: str


def payload(db: Db, execution: int) -> Any:
    return value(db, "SELECT payload FROM cronledger.executions WHERE id = %s", execution)


def count(db: Db) -> int:
    found: int = value(db, "SELECT count(*) FROM cronledger.executions")
    return found


async def test_enqueue_takes_what_pydantic_can_write(ask: Ask, work: Db) -> None:
    order = Order(number=7, due=date(2030, 1, 31))
    made = await ask("enqueue", "work", [order, Item("a"), {"at": MONDAY}], group_id=GROUP)
    found = await ask("execution", made)
    assert (found.status, found.trigger, found.group_id) == ("PENDING", "enqueue", GROUP)
    assert payload(work, made) == [
        {"number": 7, "due": "2030-01-31"}, {"name": "a"}, {"at": "2030-01-07T09:00:00Z"},
    ]  # fmt: skip
    first = await ask("enqueue", "work", 1, key="k")
    assert await ask("enqueue", "work", 2, key="k") == first
    assert payload(work, first) == 2
    assert (await ask("execution", await ask("enqueue", "tenants", scope="acme"))).scope == (
        "tenants", "tenant", "acme",
    )  # fmt: skip
    assert (await ask("execution", await ask("enqueue", "work", watermark=9))).watermark == 9
    later = await ask("enqueue", "work", 1, due_at=MONDAY)
    assert value(work, "SELECT due_at FROM cronledger.executions WHERE id = %s", later) == MONDAY


async def test_enqueue_many_enqueues_all_items_or_none_and_returns_the_ids_in_order(
    ask: Ask, work: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_ITEMS", 2)
    with pytest.raises(LedgerError, match="unsupported Unicode escape sequence"):
        await ask("enqueue_many", "work", ["a", "b", "a NUL: \0"])
    with pytest.raises(PayloadInvalidError, match=r"payloads\[2\] is not JSON: .*; use strings"):
        await ask("enqueue_many", "work", ["a", "b", object()])
    with pytest.raises(NotFoundError, match="job 'wrok' does not exist"):
        await ask("enqueue_many", "wrok", [])
    assert count(work) == 0
    made = await ask("enqueue_many", "work", range(10), group_id=GROUP)
    assert [payload(work, execution) for execution in made] == list(range(10))
    merged = await ask("enqueue_many", "work", range(5), keys=["a", "b", "a", None, "b"])
    assert (merged[0], merged[1]) == (merged[2], merged[4])
    assert [payload(work, execution) for execution in merged] == [2, 4, 2, 3, 4]
    await ask("enqueue_many", "tenants", [1, 2], scopes=["acme", "acme"])
    assert await ask("enqueue_many", "work", []) == []
    with pytest.raises(ValueError, match="keys has 1 elements, and payloads has 2; pass one for"):
        await ask("enqueue_many", "work", [1, 2], keys=["a"])


def test_a_payload_that_cannot_be_stored_is_refused_before_it_is_sent(
    work: Db, database_url: str
) -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with Client(database_url) as client:
        for wrong, said in (
            (object(), "the payload is not JSON: .*; use strings, numbers, booleans, lists"),
            ("x" * 70_000, "has 70002 bytes of JSON; the limit is 65536; store the data"),
            (10**400, "contains a number of 1.8e308 or more"),
            (cycle, "is not JSON"),
        ):
            for method in (client.enqueue, client.trigger):
                with pytest.raises(PayloadInvalidError, match=said):
                    method("work", wrong)
    assert count(work) == 0


async def test_operator_functions_return_what_they_did(ask: Ask, work: Db) -> None:
    assert await ask("pause", "work", "month end", until=rows.now(work) + timedelta(days=1))
    assert not await ask("pause", "work")
    with pytest.raises(LedgerError) as refused:
        await ask("trigger", "work")
    assert refused.value.message.startswith("job work: it has been paused since ")
    assert refused.value.detail == "No reason was given."
    assert str(refused.value.remedy).startswith("Resume it, or trigger it with force=True")
    assert str(refused.value).splitlines()[2].startswith("Hint: Resume it")
    assert refused.value.sqlstate == "55000"
    forced = await ask("trigger", "work", {"a": 1}, force=True)
    assert payload(work, forced) == {"a": 1}
    assert [await ask("resume", "work") for _ in range(2)] == [True, False]
    assert [await ask("cancel", forced) for _ in range(2)] == ["cancelled", "already_finished"]
    assert await ask("retry", forced) == "retried"
    assert (await ask("execution", forced)).status is Status.PENDING
    scoped = await ask("execution", await ask("trigger", "tenants", scope="acme"))
    assert (scoped.scope_kind, scoped.trigger) == ("tenant", Trigger.MANUAL)


async def test_a_pause_ends_after_a_length_of_the_ledgers_time(ask: Ask, work: Db) -> None:
    rows.travel(work, timedelta(days=400))
    lengths = {"2h": timedelta(hours=2), timedelta(days=1): timedelta(days=1)}
    for until, length in lengths.items():
        before = rows.now(work)
        assert await ask("pause", "work", until=until)
        ends = value(work, "SELECT paused_until FROM cronledger.jobs WHERE name = 'work'")
        assert before + length <= ends <= rows.now(work) + length
        await ask("resume", "work")
    with pytest.raises(ValueError, match="soon"):
        await ask("pause", "work", until="soon")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_audit_trail_has_the_actor_of_a_client(
    work: Db, database_url: str, kind: str
) -> None:
    """With what the ledger refuses, without payloads, and without input, which is no action."""
    async with asked(kind, database_url, actor="ann@example.com") as ask:
        made = await ask("trigger", "work", {"key": "secret"})
        await ask("cancel", made)
        await ask("retry", made)
        await ask("pause", "work")
        with pytest.raises(LedgerError, match="it has been paused since") as refused:
            await ask("trigger", "work", {"key": "secret"})
        with pytest.raises(LedgerError):
            await ask("enqueue", "gone")
        await ask("resume", "work")
    audit = work.execute("SELECT * FROM cronledger.audit WHERE verb <> 'add' ORDER BY id")
    rows = audit.fetchall()
    assert [(row["verb"], row["error"]) for row in rows] == [
        ("trigger", None), ("cancel", None), ("retry", None), ("pause", None),
        ("trigger", refused.value.message), ("resume", None),
    ]  # fmt: skip
    assert {row["requested_by"] for row in rows} == {"ann@example.com"}
    assert "secret" not in str(rows)


@pytest.mark.usefixtures("work")
async def test_a_name_that_does_not_exist_is_refused_with_a_remedy(ask: Ask) -> None:
    refused: list[tuple[str, tuple[Any, ...], dict[str, str], str]] = [
        ("enqueue", ("wrok",), {}, "job 'wrok' does not exist"),
        ("enqueue", ("work",), {"scope": "x"}, "job 'work' has no scope global/x"),
        ("retry", (99,), {}, "execution 99 does not exist"),
        ("execution", (99,), {}, "execution 99 does not exist"),
        ("why", ("wrok", MONDAY), {}, "job 'wrok' does not exist\nHint: did you mean 'work'"),
        ("why", ("work", MONDAY), {"scope": "x"}, "job 'work' has no scope 'x'"),
        ("next", ("wrok",), {}, "job 'wrok' does not exist"),
    ]
    for method, arguments, options, said in refused:
        with pytest.raises(NotFoundError, match=said) as caught:
            await ask(method, *arguments, **options)
        assert caught.value.remedy
        assert isinstance(caught.value, LookupError)
        shown = "".join(traceback.format_exception(caught.value))
        assert "cronledger_internal" not in shown


async def test_executions_are_typed_values_without_secrets(ask: Ask, work: Db) -> None:
    at = rows.now(work)
    rows.execution(work, "SUCCESS", "work", plan_time=at, result='{"a": 1}', revision=1)
    rows.execution(work, "FAILED", "daily", plan_time=at + timedelta(minutes=1))
    rows.execution(work, "RUNNING", "work", plan_time=at + timedelta(minutes=2))
    newest, failed, succeeded = await ask("executions")
    assert isinstance(newest, Execution)
    assert (newest.status, newest.ended) == (Status.RUNNING, False)
    assert (failed.status, failed.error_code, failed.ended) == (Status.FAILED, "boom", True)
    assert (succeeded.succeeded, succeeded.result, succeeded.plan_time) == (True, {"a": 1}, at)
    assert succeeded == await ask("execution", succeeded.id)
    assert succeeded.plan_time.tzinfo is UTC
    assert await ask("executions", "work", limit=1) == [newest]
    assert await ask("executions", statuses=[Status.FAILED, "SUCCESS"]) == [failed, succeeded]
    since, until = at + timedelta(minutes=1), at + timedelta(minutes=2)
    assert await ask("executions", since=since, until=until) == [failed]
    assert await ask("executions", "work", scope="acme") == []
    with pytest.raises(ValueError, match=r"statuses has 'FAIELD', which .*; did you mean `FAILED`"):
        await ask("executions", statuses=["FAIELD"])
    for kind in (Execution, SkippedRange):
        assert not {field.name for field in fields(kind)} & {"lease_token", "payload", "attempts"}


async def test_skips_are_typed_values(ask: Ask, work: Db) -> None:
    skipped = (("missed", "daily"), ("paused", "daily"), ("retired", "work"))
    for days, (reason, job) in enumerate(skipped):
        at = MONDAY + timedelta(days=days)
        rows.skip(work, at, at + timedelta(hours=1), 2, reason, job)
    retired, paused, missed = await ask("skips")
    assert isinstance(missed, SkippedRange)
    assert (missed.reason, missed.count, missed.from_plan_time) == (SkipReason.MISSED, 2, MONDAY)
    assert await ask("skips", "daily", limit=1) == [paused]
    inside = MONDAY + timedelta(minutes=30)
    assert await ask("skips", since=inside, until=MONDAY + timedelta(days=1)) == [missed]
    assert await ask("skips", scope="acme") == []
    assert retired.job == "work"


async def test_pauses_are_planned_changed_and_ended(ask: Ask, work: Db) -> None:
    soon = rows.now(work) + timedelta(days=1)
    selection = {"job": "daily", "labels": None, "begins": soon}
    pause = await ask("plan_pause", "freeze", until=soon + timedelta(days=1), **selection)
    assert await ask("change_pause", pause, until="infinity", reason="longer")
    batch = await ask("plan_pause", "batch", begins=soon, labels={"tier": "batch"})
    found = {one.id: one for one in await ask("pauses")}
    assert (found[pause].state, found[pause].job, found[pause].reason, found[pause].until_at) == (
        "planned", "daily", "longer", None,
    )  # fmt: skip
    assert (found[batch].labels, found[batch].jobs) == ({"tier": "batch"}, 0)
    assert [await ask("end_pause", pause) for _ in range(2)] == [True, False]
    assert [one.id for one in await ask("pauses")] == [batch]
    assert {one.state for one in await ask("pauses", over=True)} == {"planned", "withdrawn"}
    with pytest.raises(ValueError, match=r"begins=.* has no time zone"):
        await ask("plan_pause", "freeze", begins=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_an_adoption_states_what_it_does_F118(ask: Ask, work: Db) -> None:
    at = rows.now(work) + timedelta(days=3)
    with pytest.raises(LedgerError, match="job daily: it is not observed"):
        await ask("adopt", "daily", at)
    work.execute("UPDATE cronledger.jobs SET observed = true WHERE name = 'daily'")
    preview = await ask("adopt", "daily", at, preview=True)
    assert (preview.revision, preview.last < at <= preview.first) == (None, True)
    made = await ask("adopt", "daily", at)
    assert replace(preview, revision=made.revision) == made
    assert str(made).startswith(f"daily: replicas fire it from {iso(made.first)} on; the last")
    back = await ask("adopt", "daily", at, back=True)
    assert (back.withdrawn, back.revision) == ([made.at], made.revision + 1)
    assert str(back).endswith("is withdrawn, and the other scheduler keeps firing it")
    with pytest.raises(ValueError, match="it has no plan_time from"):
        await ask("adopt", "work", at)
    for outside in (
        datetime.min.replace(tzinfo=UTC),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
    ):
        with pytest.raises(ValueError, match="is outside the years 1000 to 9998"):
            await ask("adopt", "daily", outside)


async def test_why_and_next_are_those_of_the_commands(ask: Ask, work: Db) -> None:
    first, second = await ask("next", "daily", 2, after=datetime(2030, 3, 30, 12, tzinfo=UTC))
    assert first.plan_time == datetime(2030, 3, 31, 7, 30, tzinfo=UTC)  # the clocks went forward
    assert second.plan_time - first.plan_time == timedelta(days=1)
    assert len(await ask("next", "daily")) == 10
    assert await ask("next", "work") == []
    (answer,) = await ask("why", "daily", datetime(2019, 1, 1, tzinfo=UTC))
    assert (answer.verdict, answer.key.job_name) == ("before_its_time", "daily")
    (answer,) = await ask("why", "daily", MONDAY, until=MONDAY + timedelta(days=1), scope="global")
    assert answer.until - answer.since == timedelta(days=1)
    with pytest.raises(ValueError, match="is not after at="):
        await ask("why", "daily", MONDAY, until=MONDAY)


async def test_a_cancelled_why_reads_nothing_more(
    work: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on, ended = asyncio.Event(), asyncio.Event(), threading.Event()
    reads: list[Any] = []
    history = Reports.history

    def ending(reports: Reports, job: str) -> Any:
        try:
            return history(reports, job)
        finally:
            ended.set()

    monkeypatch.setattr(Reports, "history", ending)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        client = AsyncClient(connection=connection)
        send_all = client.sender.send_all

        async def slow(sent: Any) -> Any:
            reads.append(sent)
            began.set()
            await goes_on.wait()
            return await send_all(sent)

        monkeypatch.setattr(client.sender, "send_all", slow)
        asked = asyncio.create_task(client.why("daily", MONDAY))
        await began.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        goes_on.set()
        assert await asyncio.to_thread(ended.wait, 60)
        assert len(reads) == 1
        assert connection.info.transaction_status is TransactionStatus.IDLE


def test_an_instant_without_a_zone_is_refused(work: Db, database_url: str) -> None:
    naive = datetime(2030, 1, 1)  # noqa: DTZ001
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("pause", ("work",), {"until": naive}),
        ("executions", (), {"since": naive}),
        ("skips", (), {"until": naive}),
        ("why", ("work", naive), {}),
        ("next", ("daily",), {"after": naive}),
        ("enqueue", ("work",), {"due_at": naive}),
    ]
    with Client(database_url) as client:
        for method, arguments, options in calls:
            with pytest.raises(ValueError, match="add tzinfo=UTC"):
                getattr(client, method)(*arguments, **options)


def test_threads_share_a_client(work: Db, database_url: str) -> None:
    together = threading.Barrier(20)

    def enqueue(n: int) -> int | None:
        together.wait()
        return client.enqueue("work", n)

    with Client(database_url) as client, ThreadPoolExecutor(20) as pool:
        made = list(pool.map(enqueue, range(20)))
        assert len(set(made)) == 20
        assert [payload(work, one) for one in made if one is not None] == list(range(20))
        name = senders.APPLICATION_NAME
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname"
        assert 1 <= value(work, sessions + " = current_database()", name) <= 10


async def test_a_client_changes_no_setting_of_its_sessions(work: Db, database_url: str) -> None:
    """Behind PgBouncer in transaction mode, other programs get the same sessions."""
    url = make_conninfo(database_url, options="-c search_path=public -c datestyle=German")
    shown = "SELECT current_setting('search_path'), current_setting('datestyle')"
    async with AsyncClient(url) as client:
        await client.enqueue("work", 1)
        async with client.sender.transactions.lend() as connection:
            found = await connection.execute(shown)
            assert await found.fetchone() == ("public", "German, DMY")


FORK = """
import os, sys
from cronledger.client import Client

with Client(sys.argv[1]) as client:
    client.enqueue("work", "parent")
    if not (child := os.fork()):
        client.enqueue("work", "child")
        client.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.enqueue("work", "parent")
"""


@pytest.mark.long
def test_a_forked_process_opens_connections_of_its_own(work: Db, database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, database_url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert count(work) == 3


def test_event_loops_may_use_a_client_one_after_the_other(work: Db, database_url: str) -> None:
    async def enqueue_many_times() -> None:
        await asyncio.gather(*(client.enqueue("work", n) for n in range(20)))

    async def enqueue_in_another_loop() -> None:
        await client.enqueue("work")
        with pytest.raises(RuntimeError, match="in use by another event loop; make one client for"):
            await asyncio.to_thread(asyncio.run, enqueue_many_times())

    client = AsyncClient(database_url)
    asyncio.run(enqueue_many_times())
    asyncio.run(enqueue_many_times())
    asyncio.run(enqueue_in_another_loop())
    asyncio.run(client.close())
    assert count(work) == 41


@pytest.mark.parametrize("kind", ["client", "async client"])
async def test_a_connection_that_ended_is_replaced_until_the_client_is_closed(
    work: Db, database_url: str, kind: str
) -> None:
    end = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database()"
    )
    async with asked(kind, database_url) as ask:
        await ask("enqueue", "work", 1)
        assert value(work, end, senders.APPLICATION_NAME)
        await ask("enqueue", "work", 2)
        await ask("close")
        with pytest.raises(RuntimeError, match="the client is closed; make another one"):
            await ask("executions")
    assert count(work) == 2


def test_the_url_is_given_or_that_of_the_settings(
    work: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", database_url)
    with Client() as client:
        client.enqueue("work", 1)
    assert count(work) == 1
    with Client(settings=Settings(lock_timeout=timedelta(milliseconds=20))) as hasty:
        work.execute("BEGIN")
        work.execute("SELECT FROM cronledger.schedules WHERE job_name = 'work' FOR UPDATE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            hasty.enqueue("work", 2, key="k")
        work.execute("ROLLBACK")
    with pytest.raises(ConfigurationError, match="is not a PostgreSQL connection string"):
        Client("").executions()
    for kind in (Client, AsyncClient):
        with pytest.raises(TypeError, match="has a url and a connection; pass one of them"):
            kind(database_url, connection=work)  # type: ignore[arg-type]


async def test_settings_of_the_session_do_not_change_what_is_read(
    work: Db, database_url: str
) -> None:
    options = "-c datestyle=German -c timezone=Asia/Tokyo -c intervalstyle=iso_8601"
    at = rows.now(work)
    rows.execution(work, "SUCCESS", "work", plan_time=at, result="[1]")
    for kind in KINDS:
        async with asked(kind, make_conninfo(database_url, options=options)) as ask:
            (found,) = await ask("executions")
            assert (found.plan_time, found.result) == (at, [1])
            assert (await ask("why", "daily", MONDAY))[0].verdict


def test_the_settings_of_the_caller_stay_as_they_are(work: Db, database_url: str) -> None:
    names = ("lock_timeout", "search_path", "statement_timeout", "jit", "timezone")
    with psycopg.connect(database_url) as connection:
        connection.execute("SET LOCAL lock_timeout = '77s'; SET LOCAL search_path = public")
        client = Client(connection=connection)

        def settings() -> list[Any]:
            shown = "SELECT current_setting(%s)"
            return [connection.execute(shown, [name]).fetchone() for name in names]

        before = settings()
        client.enqueue("work", 1)
        client.why("daily", MONDAY)
        client.next("daily")
        client.close()
        assert settings() == before
        connection.rollback()
    assert count(work) == 0
