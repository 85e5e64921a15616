"""A process that had no CPU until the lease was over does not go on with its handlers.

The deadline passes while the loop is blocked; the stop of the heartbeat thread is not even queued.
"""

import asyncio
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from cronledger import Context
from cronledger.engine.commands.client import CommandEnd, Supervisor
from cronledger.engine.running.handlers.command import CommandHandlers
from cronledger.engine.running.handlers.http import HttpHandlers
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.replica import Replica
from tests.db.support.whole_replica import Whole
from tests.db.test_http_handler import Site, site
from tests.waiting import eventually

__all__ = ["site"]
AGAIN: dict[str, Any] = {"allow_stale_reentry": True}


def lapse(replica: Replica) -> None:
    """The deadline passes. A heartbeat that was sent before is not answered any more."""
    leases = replica._runtime.components.leases
    (lease,) = leases.all()
    leases.renew = lambda tokens, sent: {}  # type: ignore[method-assign]
    lease.deadline = monotonic() - 1


async def test_an_async_handler_does_not_go_on(whole: Whole) -> None:
    lines: dict[str, list[str]] = {"again": [], "once": []}

    async def helper(job: str) -> None:
        await asyncio.sleep(0)
        lines[job].append("helper went on")

    async def handler(ctx: Context) -> str:
        if lines[ctx.job]:
            return "second run"
        lines[ctx.job].append("began")
        async with asyncio.TaskGroup() as group:
            group.create_task(helper(ctx.job))
            lapse(replica)
            await asyncio.sleep(0)
            lines[ctx.job].append("went on")
        return "first run"

    handler.__qualname__ = "handler"
    whole.app.job(name="again", **AGAIN)(handler)
    whole.app.job(name="once")(handler)
    async with whole.replica() as replica:
        again = await whole.run("again")
        # The ledger has the end before the reply to it has reached the replica.
        leases = replica._runtime.components.leases
        await eventually("the replica has the reply", lambda: not leases.all())
        once = await whole.run("once")
    assert lines == {"again": ["began"], "once": ["began"]}
    assert (again["status"], again["result"], again["attempt"]) == ("SUCCESS", "second run", 2)
    assert (once["status"], once["error_code"]) == ("FAILED", "lease_lost")


async def test_a_sync_handler_does_not_begin(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def handler(ctx: Context) -> None:
        lines.append("began")

    job = whole.job(handler)
    async with whole.replica() as replica:
        call = replica._runtime.components.threads.call

        def late(function: Any) -> Any:
            lapse(replica)
            return call(function)

        monkeypatch.setattr(replica._runtime.components.threads, "call", late)
        row = await whole.run(job)
    assert (row["status"], row["error_code"], lines) == ("FAILED", "lease_lost", [])


async def test_a_sync_handler_learns_it_when_it_asks(whole: Whole) -> None:
    lines: list[str] = []
    ready, go_on = threading.Event(), threading.Event()

    def handler(ctx: Context) -> str:
        if lines:
            return "second run"
        lines.append("began")
        ready.set()
        assert go_on.wait(90)
        ctx.cancel_token.child().check()
        lines.append("went on")
        return "first run"

    job = whole.job(handler, **AGAIN)
    async with whole.replica() as replica:
        execution = await whole.trigger(job)
        await eventually("it began", ready.is_set)
        lapse(replica)
        go_on.set()
        row = await whole.end(execution)
    assert (row["status"], row["result"], lines) == ("SUCCESS", "second run", ["began"])


async def test_nothing_is_committed(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    whole.rows("CREATE TABLE public.effects (run int)")
    commit, runs = ExecutionTransaction.commit, iter([1, 2])

    async def handler(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO effects VALUES (%s)", [next(runs)])

    async def late(transaction: ExecutionTransaction, *given: Any) -> Any:
        monkeypatch.undo()
        lapse(replica)
        return await commit(transaction, *given)

    job = whole.job(handler, **AGAIN)
    async with whole.replica() as replica:
        monkeypatch.setattr(ExecutionTransaction, "commit", late)
        row = await whole.run(job)
    assert row["status"] == "SUCCESS"
    assert whole.rows("SELECT run FROM public.effects") == [{"run": 2}]


async def test_no_request_is_sent(
    whole: Whole, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HttpHandlers.run

    async def late(*given: Any) -> Any:
        monkeypatch.undo()
        lapse(replica)
        return await run(*given)

    site.answer("/effect")
    whole.declare("asks", "http", {"url": f"{site.url}/effect", "allow_private": True})
    async with whole.replica() as replica:
        monkeypatch.setattr(HttpHandlers, "run", late)
        row = await whole.run("asks")
    assert (row["status"], row["error_code"]) == ("FAILED", "lease_lost")
    assert site.asked == []


async def test_no_command_is_started(
    whole: Whole, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = CommandHandlers.run

    async def late(*given: Any) -> Any:
        monkeypatch.undo()
        lapse(replica)
        return await run(*given)

    declare_writes(whole, tmp_path, **AGAIN)
    async with whole.replica() as replica:
        monkeypatch.setattr(CommandHandlers, "run", late)
        row = await whole.run("writes")
    assert row["status"] == "SUCCESS"
    assert (tmp_path / "lines").read_text() == "2\n"  # released, and started once
    with psycopg.connect(whole.url) as c:
        said = c.execute("SELECT error_code FROM cronledger.attempts").fetchall()
    assert ("not_started",) not in said


async def test_a_command_is_started_if_its_lease_was_renewed_after_all(
    whole: Whole, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The heartbeat's answer arrives after the supervisor has refused to start the command."""
    run = Supervisor.run
    ends: list[CommandEnd] = []

    async def late(supervisor: Supervisor, key: str, **given: Any) -> CommandEnd:
        if not ends:  # not the lease's own deadline, which would end the lease
            given["deadline"] = monotonic() - 1
        ends.append(await run(supervisor, key, **given))
        (lease,) = replica._runtime.components.leases.all()
        lease.renew(monotonic())
        return ends[-1]

    declare_writes(whole, tmp_path)
    async with whole.replica() as replica:
        monkeypatch.setattr(Supervisor, "run", late)
        row = await whole.run("writes")
    assert [end.reason for end in ends] == ["too_late", "exited"]
    assert (row["status"], row["attempt"]) == ("SUCCESS", 1)
    assert (tmp_path / "lines").read_text() == "1\n"


def declare_writes(whole: Whole, directory: Path, **policies: Any) -> None:
    """Declare a command that writes the number of its attempt into a file."""
    command = f"echo $CRONLEDGER_ATTEMPT >> {directory}/lines"
    whole.declare("writes", "command", {"command": command}, **policies)
