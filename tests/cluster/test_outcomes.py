"""F12 and how else executions end, through one whole replica in this process."""

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import Context, Discard, Result
from cronledger.engine.lease import Stop
from cronledger.engine.running.executor import Executor, Running
from cronledger.replica import Replica
from cronledger.rules.model import Handler
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

SHOW_ENV = "import json, os; print(json.dumps(dict(os.environ)))"


class World(Whole):
    """An App with commands on a database."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.release = threading.Event()

    def command(self, name: str, argv: list[str] | None = None, **more: Any) -> None:
        target = {"command": more.pop("shell")} if argv is None else {"command": argv}
        target |= {key: more.pop(key) for key in ("env", "cwd") if key in more}
        self.declare(name, Handler.COMMAND, target, **more)

    @asynccontextmanager
    async def replica(self, **settings: Any) -> AsyncIterator[Replica]:
        async with super().replica(**settings) as replica:
            try:
                yield replica
            finally:
                self.release.set()  # a test that failed leaves no thread to the drain


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = World(database_url)
    yield made
    made.close()


def declare(world: World, function: Callable[..., Any], name: str, **policies: Any) -> None:
    """`function` as the handler of a job; functions of one place get names of their own."""
    function.__qualname__ = name
    world.app.job(name=name, **policies)(function)


def _raising(error: BaseException) -> tuple[Callable[[], object], ...]:
    def handler() -> None:
        raise error

    async def handler_async() -> None:
        raise error

    return handler, handler_async


@pytest.mark.long
async def test_what_handlers_return_and_raise(world: World) -> None:
    async def awaited(ctx: Context) -> int:
        await asyncio.sleep(0)
        return ctx.attempt

    def wrapper(ctx: Context) -> Any:
        return awaited(ctx)

    returned: dict[str, tuple[Any, Any, Any]] = {
        "value": ({"a": 1}, {"a": 1}, None), "rows": (Result([1], rows_affected=7), [1], None),
        "not_json": (object(), None, "result_invalid"),
    }  # fmt: skip
    for name, (value, _, _) in returned.items():
        declare(world, lambda value=value: value, name)
    raised: dict[str, tuple[BaseException, str]] = {
        "error": (ValueError("no"), "handler_error"),
        "discard": (Discard("bad_input", "row 7"), "bad_input"),
        "exit": (SystemExit(3), "handler_error"),
        "interrupt": (KeyboardInterrupt(), "handler_error"),
        "stop": (StopIteration(), "handler_error"),
        "cancelled": (asyncio.CancelledError(), "handler_error"),
    }
    for name, (error, _) in raised.items():
        for kind, function in zip(("sync", "async"), _raising(error), strict=True):
            declare(world, function, f"{kind}_{name}", max_attempts=1)
    declare(world, awaited, "awaited")
    declare(world, wrapper, "wrapped")
    async with world.replica(slots=30):
        names = [*returned, *(f"{k}_{n}" for k in ("sync", "async") for n in raised)]
        rows = await asyncio.gather(*map(world.run, [*names, "awaited", "wrapped"]))
    by_name = {row["job_name"]: row for row in rows}
    for name, (_, result, note) in returned.items():
        row = by_name[name]
        assert (row["status"], row["result"], row["error_code"]) == ("SUCCESS", result, note), name
    assert by_name["rows"]["rows_affected"] == 7
    for name, (_, code) in raised.items():
        for kind in ("sync", "async"):
            row = by_name[f"{kind}_{name}"]
            assert (row["status"], row["error_code"]) == ("FAILED", code), row["job_name"]
    assert by_name["awaited"]["result"] == by_name["wrapped"]["result"] == 1
    assert {row["attempt"] for row in rows} == {1}


# -- timeouts ------------------------------------------------------------------------------------


@pytest.mark.long
async def test_run_timeout_stops_what_can_be_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Executor, "GRACE", 0.1)
    monkeypatch.setattr(Executor, "REPEAT", 0.05)
    release, begun, stop = world.release, tmp_path / "begun", Executor.stop

    def stop_what_has_begun(self: Executor, running: Running, why: Stop) -> None:
        # A busy machine may take longer to start the command than its run_timeout.
        if running.lease.job.name == "command" and not begun.exists():
            asyncio.get_running_loop().call_later(0.05, self.stop, running, why)
        else:
            stop(self, running, why)

    monkeypatch.setattr(Executor, "stop", stop_what_has_begun)

    async def sleeps() -> None:
        await asyncio.sleep(60)

    async def swallows() -> str:
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return "ended on its own terms"

    def deaf() -> None:
        release.wait()

    declare(world, sleeps, "sleeps", run_timeout="200ms")
    declare(world, swallows, "swallows", run_timeout="200ms")
    declare(world, deaf, "deaf", run_timeout="200ms")
    declare(world, lambda: None, "beside")
    shell = f"echo begun; touch '{begun}'; exec sleep 60"
    world.command("command", shell=shell, run_timeout="200ms")
    with capture_logs() as logs:
        async with world.replica(slots=5) as replica:
            held = await world.trigger("deaf")
            others = ["sleeps", "swallows", "command"]
            for row in await asyncio.gather(*map(world.run, others)):
                assert (row["status"], row["error_code"]) == ("FAILED", "timeout")
                assert 200 <= row["duration_ms"] < 60_000
                assert row["output"] == ("begun\n" if row["job_name"] == "command" else None)
            # The thread keeps its slot and its lease until it returns.
            await eventually("it is reported", lambda: _named(logs, "handler_not_stopped", "deaf"))
            assert world.get(held)["status"] == "RUNNING"
            assert replica.health().running == 1
            await world.run("beside")
            release.set()
            row = await eventually("it returned", lambda: world.ended(held))
            assert (row["status"], row["error_code"]) == ("FAILED", "timeout")
            assert replica.health().running == 0
    assert len(_named(logs, "handler_not_stopped", "deaf")) == 1
    assert len(_named(logs, "handler_not_stopped", "swallows")) == 1
    assert not _named(logs, "handler_not_stopped", "sleeps")


def _named(logs: Any, event: str, job: str) -> list[Any]:
    return [x for x in logs if x["event"] == event and x.get("job") == job]


def _running(world: World) -> int:
    return len(world.rows("SELECT FROM cronledger.executions WHERE status = 'RUNNING'"))


# -- cancel --------------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_cancel_reaches_the_handler_within_a_moment(world: World) -> None:
    async def sleeps() -> None:
        await asyncio.sleep(60)

    def asks(ctx: Context) -> None:
        while not ctx.cancelled:
            time.sleep(0.005)

    declare(world, sleeps, "sleeps", max_attempts=5, stale_timeout="10m")
    declare(world, asks, "asks", max_attempts=5, stale_timeout="10m")
    world.command("command", shell="echo begun; exec sleep 60", stale_timeout="10m")
    async with world.replica() as replica:
        collector = replica.collector()
        ids = [await world.trigger(job) for job in ("sleeps", "asks", "command")]
        await eventually("they run", lambda: _running(world) == 3)
        for execution in ids:
            # It is refused while a heartbeat has the row locked.
            await eventually("it is requested", partial(_requested, world, execution))
        for execution in ids:
            row = await eventually("it has ended", partial(world.ended, execution))
            assert (row["status"], row["attempt"]) == ("CANCELLED", 1)
            assert row["cancel_requested_by"] == "me"
    counted = collector.read().measurements.attempts
    for handler, number in (("python", 2), ("command", 1)):
        assert counted["default", handler].outcomes["cancelled"] == number


def _requested(world: World, execution: int) -> bool:
    said = world.one("SELECT cronledger.cancel(%s, 'me')", execution)
    return bool(said == "requested")


# -- commands ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clean_environment")
async def test_commands_know_their_execution_and_no_secret(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("cronledger_listen_url", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    monkeypatch.setenv("HARMLESS", "yes")
    world.command("env", [sys.executable, "-c", SHOW_ENV], env={"MINE": "1"})
    async with world.replica(runner_id="me", database_url="postgresql://u:hunter2@h/d"):
        row = await world.run("env")
    environ = json.loads(row["output"])
    assert "hunter2" not in row["output"]
    assert (environ["HARMLESS"], environ["MINE"]) == ("yes", "1")
    own = re.compile("CRONLEDGER_(?!TEST_)")
    assert {key: value for key, value in environ.items() if own.match(key)} == {
        "CRONLEDGER_EXECUTION_ID": str(row["id"]), "CRONLEDGER_JOB": "env",
        "CRONLEDGER_SCOPE_KIND": "global", "CRONLEDGER_SCOPE_ID": "global",
        "CRONLEDGER_PLAN_TIME": row["plan_time"].isoformat(), "CRONLEDGER_TRIGGER": "manual",
        "CRONLEDGER_ATTEMPT": "1", "CRONLEDGER_LEASE_TOKEN": str(row["lease_token"]),
        "CRONLEDGER_RUNNER_ID": "me",
    }  # fmt: skip


@pytest.mark.long
async def test_a_command_gets_a_variable_of_its_replica_that_the_ledger_does_not_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://shop:s3cr3t-value@db/shop"
    monkeypatch.setenv("SHOP_DB", url)
    env = {"DB_URL": {"env": "SHOP_DB"}, "AUTH": {"env": "SHOP_DB", "prefix": "Bearer "}}
    proof = "echo ${#DB_URL}; echo $AUTH"
    world.command("uses", shell=proof, env=env)
    # The beginning of the stored tail lies within the secret.
    world.command("tail", shell='printf "%s%060d" "$DB_URL" 0', env=env)
    world.command("unset", shell="true", env={"A": {"env": "SHOP_UNSET"}, "B": "1"})
    async with world.replica(output_tail_bytes=64):
        uses, tail = await world.run("uses"), await world.run("tail")
        unset = await world.run("unset")
    assert uses["output"] == f"{len(url)}\nBearer ***\n"
    assert tail["output"].partition("left out]\n")[2].strip("0*") == ""
    assert (unset["error_code"], "SHOP_UNSET" in unset["error_msg"]) == ("not_started", True)
    stored = world.rows(
        "SELECT to_jsonb(e)::text AS text FROM cronledger.executions e"
        " UNION ALL SELECT to_jsonb(r)::text FROM cronledger.job_revisions r"
    )
    assert "SHOP_DB" in str(stored)
    assert "s3cr3t" not in str(stored)


@pytest.mark.long
async def test_how_commands_end(world: World) -> None:
    world.command("fails", shell="echo why; exit 7", max_attempts=2, retry_backoff=["0s"])
    world.command("killed", shell="kill -9 $$")
    world.command("missing", ["/no/such/program"])
    world.command("long", shell="for i in 1 2 3 4 5 6 7 8 9; do echo line $i; done")
    async with world.replica(output_tail_bytes=21):
        jobs = ["fails", "killed", "missing", "long"]
        rows = {row["job_name"]: row for row in await asyncio.gather(*map(world.run, jobs))}
    ends = {name: (row["status"], row["error_code"]) for name, row in rows.items()}
    assert ends == {
        "fails": ("FAILED", "exit_code"), "killed": ("FAILED", "signal"),
        "missing": ("FAILED", "not_started"), "long": ("SUCCESS", None),
    }  # fmt: skip
    assert (rows["fails"]["output"], rows["fails"]["attempt"]) == ("why\n", 2)
    assert rows["fails"]["error_msg"] == "exit status 7"
    assert rows["long"]["output"] == (
        "[cronledger: 42 bytes of the output are left out]\nline 7\nline 8\nline 9\n"
    )
