"""Progress of executions: handlers and workers report it, and heartbeats store it."""

import asyncio
import os
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cronledger.declaring.app import Context, Discard, LeaseLost, Retry
from cronledger.engine.lease import PROGRESS_SECONDS
from cronledger.rules.progress import checked
from tests.db.support.engine import Ledger
from tests.db.support.whole_replica import Whole
from tests.db.test_leases import held as held_leases
from tests.db.test_leases import lease
from tests.db.test_missed_deadlines import lapse
from tests.waiting import eventually

FOUND = (
    "SELECT progress_done AS done, progress_total AS total, progress_text AS text"
    " FROM cronledger.execution_status WHERE id = %s"
)


async def reported(whole: Whole, execution: int, done: int) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        (row,) = whole.rows(FOUND, execution)
        return row if row["done"] == done else None

    row: dict[str, Any] = await eventually("its progress is stored", found)
    return row


def test_reports_bring_the_next_heartbeat_forward_and_not_too_often_F86() -> None:
    one, _ = lease(sent=100.0, length=60.0)
    leases = held_leases(one)
    first, second = checked(1, 3), checked(2, 3)
    assert leases.report(one, first)
    assert one.next_beat == 0.0
    assert not leases.report(one, second), "a heartbeat comes anyway"
    leases.postpone([one.token], 150.0)
    assert not leases.report(one, second)
    assert one.next_beat == 150.0, "another transaction holds the row"
    leases.renew([one.token], 200.0, {one.token: first})
    assert one.unstored is second, "reported after the heartbeat was sent"
    assert one.next_beat == 200.0 + PROGRESS_SECONDS
    leases.renew([one.token], 203.0, {one.token: second})
    assert one.stored is second
    assert one.next_beat == 223.0
    assert leases.report(one, checked(3, 3))
    assert one.next_beat == 203.0 + PROGRESS_SECONDS


@pytest.mark.long
async def test_async_handlers_and_threads_report_progress_F86(whole: Whole) -> None:
    go, threaded = asyncio.Event(), threading.Event()

    async def coroutine(ctx: Context) -> None:
        for done in range(1000):
            ctx.progress(done, 2000, "rows")
        ctx.progress(1000, 2000, "password=secret")
        await go.wait()
        raise Discard("no more")

    def thread(ctx: Context) -> None:
        ctx.progress(7)
        threaded.wait()

    names = whole.job(coroutine), whole.job(thread)
    async with whole.replica():
        one, two = [await whole.trigger(name) for name in names]
        found = await reported(whole, one, 1000)
        assert found == {"done": 1000, "total": 2000, "text": "password=***"}
        assert await reported(whole, two, 7) == {"done": 7, "total": None, "text": None}
        go.set()
        threaded.set()
        await whole.end(one)
        await whole.end(two)
    assert whole.rows(FOUND, one) == [found], "a failed execution shows how far it came"
    assert whole.rows(FOUND, two) == [{"done": None, "total": None, "text": None}]


@pytest.mark.long
async def test_a_retry_starts_without_progress_F86(whole: Whole) -> None:
    second = asyncio.Event()
    shown: list[dict[str, Any]] = []

    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.progress(5, 10)
            await reported(whole, ctx.execution_id, 5)
            raise Retry(timedelta(0))
        shown.extend(whole.rows(FOUND, ctx.execution_id))
        ctx.progress(1, 4)
        await reported(whole, ctx.execution_id, 1)
        second.set()

    name = whole.job(work, max_attempts=2)
    async with whole.replica():
        assert (await whole.run(name))["status"] == "SUCCESS"
    assert second.is_set()
    assert [row["done"] for row in shown] == [None]


@pytest.mark.long
async def test_a_command_reports_progress_by_lines_and_by_the_command_F86(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_RUNNER", "hunter2")
    program = Path(sys.executable).with_name("cronledger")
    script = (
        'echo begin; echo "::cronledger progress 40/100 with $SECRET"; read go < "$FIFO";'
        f' "{program}" progress 50 100 "two  words"; read go < "$FIFO"; exit 3'
    )
    with tempfile.TemporaryDirectory() as place:
        fifo = f"{place}/fifo"
        os.mkfifo(fifo)
        env = {"SECRET": {"env": "OF_THE_RUNNER"}, "FIFO": fifo}
        whole.declare(
            "job", "command", {"command": script, "env": env, "cwd": place}, schedule=None
        )
        async with whole.replica():
            execution = await whole.trigger("job")
            assert (await reported(whole, execution, 40))["text"] == "with ***"
            await asyncio.to_thread(_write, fifo)
            assert (await reported(whole, execution, 50))["text"] == "two words"
            await asyncio.to_thread(_write, fifo)
            ended = await whole.end(execution)
    assert ended["output"] == "begin\n"


def _write(fifo: str) -> None:
    Path(fifo).write_text("go\n")


# --- workers ----------------------------------------------------------------------------------


@pytest.fixture
def claimed(ledger: Ledger) -> tuple[int, Any]:
    ledger.job(handler="external", target={}, schedule=None)
    ledger.trigger()
    ((execution, token),) = ledger.values(
        "SELECT id, lease_token FROM claim_next('default', 'w1', 1)"
    )
    return execution, token


def test_workers_report_progress_under_their_lease_F86(
    ledger: Ledger, claimed: tuple[int, Any]
) -> None:
    execution, token = claimed
    call = "SELECT progress(%s, %s, %s, %s, %s)"
    secret = "postgresql://me:hunter2@host/"
    assert ledger.one(call, execution, token, 120, 100, secret + "x" * 300) == "ok"
    ((done, total, text),) = ledger.values(FOUND, execution)
    assert (done, total) == (100, 100)
    assert text.startswith("postgresql://me:***@host/x") and len(text) == 200
    ledger.one("SELECT cancel(%s)", execution)
    assert ledger.one(call, execution, token, 1, None, None) == "cancel_requested"
    assert ledger.values(FOUND, execution) == [(1, None, None)]
    assert ledger.one(call, execution, uuid4(), 2, None, None) == "lost"
    assert ledger.one("SELECT fail(%s, %s, 'no_good', 'it broke')", execution, token) == "ok"
    assert ledger.one(call, execution, token, 3, None, None) == "lost"
    assert ledger.values(FOUND, execution) == [(1, None, None)]
    with pytest.raises(psycopg.errors.NoDataFound):
        ledger.one(call, 999, token, 1, None, None)


def test_progress_is_removed_with_the_data_and_after_a_week_F86(
    ledger: Ledger, claimed: tuple[int, Any]
) -> None:
    execution, token = claimed
    ledger.one("SELECT progress(%s, %s, 1)", execution, token)
    ledger.values(
        "INSERT INTO execution_progress (execution_id, lease_token, done, reported_at)"
        " VALUES (998, gen_random_uuid(), 1, db_now() - interval '7 days 1 s'),"
        " (999, gen_random_uuid(), 1, db_now() - interval '6 days')"
    )
    ledger.values("SELECT * FROM maintain_partitions()")
    kept = "SELECT execution_id FROM execution_progress ORDER BY 1"
    assert set(ledger.values(kept)) == {execution, 999}
    ledger.one("SELECT fail(%s, %s, 'no_good', 'it broke')", execution, token)
    ledger.one("SELECT redact(%s)", execution)
    assert ledger.values(kept) == [999]


async def test_progress_after_the_lease_is_refused_F86(whole: Whole) -> None:
    refused: list[bool] = []

    def work(ctx: Context) -> None:
        lapse(replica)
        try:
            ctx.progress(1)
        except LeaseLost:
            refused.append(True)

    name = whole.job(work, allow_stale_reentry=True)
    async with whole.replica() as replica:
        await whole.trigger(name)
        await eventually("it was refused", lambda: refused)
    assert refused
