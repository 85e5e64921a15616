"""Jobs of the cluster tests: every handler leaves marks outside the database."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from cronledger.channels import Function
from cronledger.declaring.app import App, Context
from cronledger.rules.model import Handler, Job
from tests.cluster.support.marks import mark

ALIVE = str(Path(__file__).with_name("marking_command.py"))
PYTHON = (sys.executable, "-S", "-E")
LEASE_VARIABLE = "CLUSTER_LEASE"
"""The variable with another LEASE, for jobs that run for a while before anything is lost."""
LEASE = os.environ.get(LEASE_VARIABLE, "3s")
GATE = "CLUSTER_GATE"
"""The variable with the file that ends what waits for it."""
RECEIVER = "CLUSTER_RECEIVER"
"""The variable with the directory of what the channel `ops` receives."""


def say(what: str, ctx: Context) -> None:
    plan_time = ctx.plan_time.isoformat()
    mark(what, ctx.job, ctx.scope_id, ctx.attempt, ctx.execution_id, plan_time)


def command(name: str, *arguments: str, **policies: object) -> Job:
    values = {"stale_timeout": LEASE, **policies}
    target = {"command": [*PYTHON, ALIVE, *arguments]}
    return Job.model_validate(
        {"name": name, "handler": Handler.COMMAND, "target": target, **values}
    )


def in_sql(name: str, statement: str, **policies: object) -> Job:
    values = {"stale_timeout": LEASE, "allow_stale_reentry": True, **policies}
    target = {"sql": statement}
    return Job.model_validate({"name": name, "handler": Handler.SQL, "target": target, **values})


async def live(ctx: Context, seconds: float) -> None:
    """Life signs, in the first attempt; others end at once."""
    say("start", ctx)
    end_at = time.monotonic() + (seconds if ctx.attempt == 1 else 0)
    while time.monotonic() < end_at:
        say("alive", ctx)
        await asyncio.sleep(0.02)
    say("end", ctx)


def live_in_thread(ctx: Context, seconds: float) -> None:
    """Life signs until it is asked to stop."""
    say("start", ctx)
    end_at = time.monotonic() + (seconds if ctx.attempt == 1 else 0)
    while time.monotonic() < end_at and not ctx.cancelled:
        say("alive", ctx)
        time.sleep(0.02)
    say("end", ctx)


AGAIN: dict[str, Any] = {"allow_stale_reentry": True}
ONCE: dict[str, Any] = {"max_attempts": 3, "retry_backoff": ["0s"]}
SECONDLY: dict[str, Any] = {"schedule": "@every 1s", "grace": "1h"}
THREE: dict[str, Any] = {"scope_kind": "shard", "scopes": ["a", "b", "c"]}

steady = App()
crash = App()
control = App()
failover = App()
alerting = App(channels={"ops": Function(python=f"{__name__}:receive")})


@steady.job(**SECONDLY, **THREE)
async def beat(ctx: Context) -> None:
    say("start", ctx)
    await asyncio.sleep(0.05)
    say("end", ctx)


@steady.job("* * * * * *", grace="1h")
def tick(ctx: Context) -> None:
    say("start", ctx)


@crash.job(name="async_again", stale_timeout=LEASE, **AGAIN)
@crash.job(name="async_once", stale_timeout=LEASE, **ONCE)
@alerting.job(name="occupying", stale_timeout="60s")
async def lives(ctx: Context) -> None:
    await live(ctx, 60)


@crash.job(name="thread_again", stale_timeout=LEASE, **AGAIN)
@crash.job(name="thread_once", stale_timeout=LEASE, **ONCE)
def lives_in_thread(ctx: Context) -> None:
    live_in_thread(ctx, 60)


@crash.job(name="probe")
@failover.job(name="triggered", overlap="allow")
async def starts(ctx: Context) -> None:
    say("start", ctx)


fence = App()
SCOPES = [f"s{number:02}" for number in range(50)]
FENCED: dict[str, Any] = {
    "stale_timeout": "10s", "allow_stale_reentry": True, "scope_kind": "shard", "scopes": SCOPES,
}  # fmt: skip


@fence.job(**FENCED)
async def fenced_async(ctx: Context) -> None:
    await live(ctx, 60)


async def receive(message: Mapping[str, Any]) -> None:
    """A channel that notes its message, waits while it is held, and fails while it refuses."""
    directory = Path(os.environ[RECEIVER])
    with (directory / "received").open("a") as file:
        file.write(json.dumps(dict(message), default=str) + "\n")
    while (directory / "held").exists():  # noqa: ASYNC110 - another process removes it
        await asyncio.sleep(0.01)
    if (directory / "refuses").exists():
        raise ValueError("refused")


@alerting.job(notify="ops")
def flipping(payload: bool) -> None:
    if not payload:
        raise ValueError("no disk")


away = App()


@away.job(stale_timeout="12s", **AGAIN)
async def outlives(ctx: Context) -> str:
    """Live for 3 s; with a gate, until that is open."""
    gate = os.environ.get(GATE)
    if gate is None:
        await live(ctx, 3)
        return "kept"
    say("start", ctx)
    while ctx.attempt == 1 and not Path(gate).exists():
        say("alive", ctx)
        await asyncio.sleep(0.02)
    say("end", ctx)
    return "kept"


@away.job(overlap="allow", **SECONDLY)
async def goes_on(ctx: Context) -> None:
    say("start", ctx)


@failover.job(**SECONDLY, **THREE)
async def through(ctx: Context) -> None:
    say("start", ctx)
    await asyncio.sleep(0.05)


@control.job()
async def told(ctx: Context) -> dict[str, object]:
    say("start", ctx)
    return {"trigger": str(ctx.trigger), "payload": ctx.payload}


rolling = App("rolling")


@rolling.job("* * * * * *", catch_up="all", grace="1h", overlap="allow")
async def brief(ctx: Context) -> None:
    say("start", ctx)


@rolling.job(catch_up="all", overlap="allow", **SECONDLY)
def lasting(ctx: Context) -> None:
    say("start", ctx)
    time.sleep(1.5)


lost = App()
"""What the first attempt holds when its host is lost; the second one ends at once."""
OWN_DSN = "CLUSTER_OWN_DSN"
SHORT = "8s"
FIRST = "current_setting('cronledger.attempt') = '1'"


@lost.job(stale_timeout=LEASE, **AGAIN)
async def writes(ctx: Context) -> None:
    async with ctx.transaction() as c:
        await c.execute("SELECT 1")
        await live(ctx, 90)


@lost.job(stale_timeout=LEASE, **AGAIN)
def writes_in_thread(ctx: Context) -> None:
    with ctx.transaction() as c:
        c.execute("SELECT 1")
        live_in_thread(ctx, 90)


@lost.job(stale_timeout=LEASE, **AGAIN)
async def asserts(ctx: Context) -> None:
    """A program of its own with a connection of its own."""
    async with await AsyncConnection.connect(os.environ[OWN_DSN], application_name="asserts") as c:
        await c.execute(
            "SELECT cronledger.assert_lease(%s, %s)", [ctx.execution_id, ctx.lease_token]
        )
        await live(ctx, 90)


@lost.job(stale_timeout=LEASE, run_timeout=SHORT, **AGAIN)
async def is_answered(ctx: Context) -> None:
    """An answer of the server is always under way."""
    say("start", ctx)
    async with ctx.transaction() as c:
        while ctx.attempt == 1:
            await c.execute("SELECT pg_sleep(0.2)")


@lost.job(stale_timeout=LEASE, scope_kind="shard", scopes=["a", "b"], **SECONDLY)
async def fires(ctx: Context) -> None:
    say("start", ctx)


COMMANDS = {
    "crash": (
        command("command_again", "60", "deaf", **AGAIN),
        command("command_once", "60", **ONCE),
    ),
    "fence": (command("fenced_command", "60", **FENCED),),
    "lost": (
        in_sql("sleeps", f"SELECT pg_sleep(300) WHERE {FIRST}"),
        in_sql(
            "tells",
            f"DO $$ BEGIN WHILE {FIRST} LOOP PERFORM pg_sleep(0.2);"
            " RAISE NOTICE 'so far'; END LOOP; END $$",
            run_timeout=SHORT,
        ),
    ),
}
"""Commands by the name of the App they are applied with."""
