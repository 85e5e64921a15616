"""Jobs of the cluster tests: every handler leaves marks outside the database."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from psycopg import AsyncConnection

from cronledger.channels import FromEnvironment, Webhook
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


steady = App()


@steady.job("@every 1s", grace="1h", scope_kind="shard", scopes=["a", "b", "c"])
async def beat(ctx: Context) -> None:
    say("start", ctx)
    await asyncio.sleep(0.05)
    say("end", ctx)


@steady.job("* * * * * *", grace="1h")
def tick(ctx: Context) -> None:
    say("start", ctx)


crash = App()


@crash.job(stale_timeout=LEASE, allow_stale_reentry=True)
async def async_again(ctx: Context) -> None:
    await live(ctx, 60)


@crash.job(stale_timeout=LEASE, max_attempts=3, retry_backoff=["0s"])
async def async_once(ctx: Context) -> None:
    await live(ctx, 60)


@crash.job(stale_timeout=LEASE, allow_stale_reentry=True)
def thread_again(ctx: Context) -> None:
    live_in_thread(ctx, 60)


@crash.job(stale_timeout=LEASE, max_attempts=3, retry_backoff=["0s"])
def thread_once(ctx: Context) -> None:
    live_in_thread(ctx, 60)


@crash.job()
async def probe(ctx: Context) -> None:
    say("start", ctx)


fence = App()
SCOPES = [f"s{number:02}" for number in range(50)]


@fence.job(stale_timeout="10s", allow_stale_reentry=True, scope_kind="shard", scopes=SCOPES)
async def fenced_async(ctx: Context) -> None:
    await live(ctx, 60)


blocking = App()
THREE = ["a", "b", "c"]


@blocking.job(stale_timeout=LEASE, allow_stale_reentry=True)
async def blocks_the_loop(ctx: Context) -> None:
    say("start", ctx)
    time.sleep(9)
    say("end", ctx)


@blocking.job(
    stale_timeout=LEASE, allow_stale_reentry=True, scope_kind="shard", scopes=["a", "b", "c"]
)
async def beside_async(ctx: Context) -> None:
    await live(ctx, 4)


@blocking.job(
    stale_timeout=LEASE, allow_stale_reentry=True, scope_kind="shard", scopes=["a", "b", "c"]
)
def beside_thread(ctx: Context) -> None:
    live_in_thread(ctx, 4)


alerting = App(channels={"ops": Webhook(url=FromEnvironment(env="ALERT_URL"), allow_private=True)})


@alerting.job(notify="ops")
def flipping(payload: bool) -> None:
    if not payload:
        raise ValueError("no disk")


@alerting.job(stale_timeout="60s")
async def occupying(ctx: Context) -> None:
    await live(ctx, 60)


drained = App()


@drained.job(stale_timeout="60s")
async def short(ctx: Context) -> None:
    await live(ctx, 1)


@drained.job(stale_timeout="60s", allow_stale_reentry=True)
async def long_again(ctx: Context) -> None:
    await live(ctx, 60)


@drained.job(stale_timeout="60s", max_attempts=3, retry_backoff=["0s"])
async def long_once(ctx: Context) -> None:
    await live(ctx, 60)


@drained.job(stale_timeout="60s", max_attempts=3, retry_backoff=["0s"])
def deaf_thread(ctx: Context) -> None:
    say("start", ctx)
    while True:
        time.sleep(0.02)
        say("alive", ctx)


@drained.job(stale_timeout=LEASE, allow_stale_reentry=True)
def deaf_thread_again(ctx: Context) -> None:
    say("start", ctx)
    while ctx.attempt == 1:
        time.sleep(0.02)
        say("alive", ctx)


away = App()


@away.job(stale_timeout="12s", allow_stale_reentry=True)
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


@away.job("@every 1s", grace="1h", overlap="allow")
async def goes_on(ctx: Context) -> None:
    say("start", ctx)


effects = App()


@effects.job("@every 1s", grace="1h", overlap="allow", stale_timeout="12s")
async def counted(ctx: Context) -> None:
    """Its row in `effects` and its SUCCESS are one commit."""
    say("start", ctx)
    async with ctx.transaction() as c:
        await c.execute("INSERT INTO effects (id) VALUES (%s)", [ctx.execution_id])
        await asyncio.sleep(0.3)


@effects.job(stale_timeout=LEASE)
async def held(ctx: Context) -> None:
    await live(ctx, 60)


before, after = App(), App()
"""Two deploys of one source."""


@before.job("@every 1s", grace="1h", scope_kind="shard", scopes=["a", "b"], stale_timeout=LEASE)
@after.job("@every 1s", grace="1h", scope_kind="shard", scopes=["a", "b"], stale_timeout=LEASE)
async def stays(ctx: Context) -> None:
    say("start", ctx)


@before.job("@every 1s", grace="1h", stale_timeout=LEASE)
async def leaves(ctx: Context) -> None:
    say("start", ctx)


@after.job("@every 1s", grace="1h", stale_timeout=LEASE)
async def arrives(ctx: Context) -> None:
    say("start", ctx)


failover = App()


@failover.job("@every 1s", grace="1h", scope_kind="shard", scopes=["a", "b", "c"])
async def through(ctx: Context) -> None:
    say("start", ctx)
    await asyncio.sleep(0.05)


@failover.job(overlap="allow")
async def triggered(ctx: Context) -> None:
    say("start", ctx)


control = App()


@control.job()
async def told(ctx: Context) -> dict[str, object]:
    say("start", ctx)
    return {"trigger": str(ctx.trigger), "payload": ctx.payload}


@control.job(stale_timeout="60s")
async def long(ctx: Context) -> None:
    await live(ctx, 60)


@control.job(stale_timeout="15s")
async def renewed(ctx: Context) -> None:
    await live(ctx, 60)


statement = App()

lost = App()
"""What the first attempt holds when its host is lost; the second one ends at once."""
OWN_DSN = "CLUSTER_OWN_DSN"
SHORT = "8s"
FIRST = "current_setting('cronledger.attempt') = '1'"


@lost.job(stale_timeout=LEASE, allow_stale_reentry=True)
async def writes(ctx: Context) -> None:
    async with ctx.transaction() as c:
        await c.execute("SELECT 1")
        await live(ctx, 90)


@lost.job(stale_timeout=LEASE, allow_stale_reentry=True)
def writes_in_thread(ctx: Context) -> None:
    with ctx.transaction() as c:
        c.execute("SELECT 1")
        live_in_thread(ctx, 90)


@lost.job(stale_timeout=LEASE, allow_stale_reentry=True)
async def asserts(ctx: Context) -> None:
    """A program of its own with a connection of its own."""
    async with await AsyncConnection.connect(os.environ[OWN_DSN], application_name="asserts") as c:
        await c.execute(
            "SELECT cronledger.assert_lease(%s, %s)", [ctx.execution_id, ctx.lease_token]
        )
        await live(ctx, 90)


@lost.job(stale_timeout=LEASE, allow_stale_reentry=True, run_timeout=SHORT)
async def is_answered(ctx: Context) -> None:
    """An answer of the server is always under way."""
    say("start", ctx)
    async with ctx.transaction() as c:
        while ctx.attempt == 1:
            await c.execute("SELECT pg_sleep(0.2)")


@lost.job("@every 1s", grace="1h", stale_timeout=LEASE, scope_kind="shard", scopes=["a", "b"])
async def fires(ctx: Context) -> None:
    say("start", ctx)


TREE = f"""
python="{" ".join(PYTHON)} {ALIVE}"
$python 60 deaf &
setsid $python 60 deaf &
(setsid $python 60 deaf >/dev/null 2>&1 </dev/null &)
wait
"""
"""A command whose work is done by its child, by what left its session, and by a daemon."""

tree = App()

COMMANDS = {
    "tree": tuple(
        Job.model_validate(
            {
                "name": name,
                "handler": Handler.COMMAND,
                "target": {"command": TREE},
                "stale_timeout": LEASE,
                "allow_stale_reentry": name == "tree_again",
            }
        )
        for name in ("tree_again", "tree_once")
    ),
    "crash": (
        command("command_again", "60", "deaf", allow_stale_reentry=True),
        command("command_once", "60", max_attempts=3, retry_backoff=["0s"]),
    ),
    "fence": (
        command(
            "fenced_command",
            "60",
            stale_timeout="10s",
            allow_stale_reentry=True,
            scope_kind="shard",
            scopes=SCOPES,
        ),
    ),
    "statement": (
        Job.model_validate(
            {
                "name": "statement",
                "handler": Handler.SQL,
                "stale_timeout": LEASE,
                "target": {"sql": "SELECT pg_sleep(300)"},
            }
        ),
    ),
    "lost": (
        in_sql("sleeps", f"SELECT pg_sleep(300) WHERE {FIRST}"),
        in_sql(
            "tells",
            f"DO $$ BEGIN WHILE {FIRST} LOOP PERFORM pg_sleep(0.2);"
            " RAISE NOTICE 'so far'; END LOOP; END $$",
            run_timeout=SHORT,
        ),
    ),
    "blocking": (command("beside_command", "4", allow_stale_reentry=True),),
    "drained": (
        command("long_command", "60", "deaf", stale_timeout="60s", allow_stale_reentry=True),
        command("long_command_once", "60", stale_timeout="60s", max_attempts=3),
    ),
}
"""Commands by the name of the App they are applied with."""

starved = App()
FIVE = ["a", "b", "c", "d", "e"]


async def signs(ctx: Context) -> None:
    """A life sign every 0.2 s. It is always ready to run, so that it is first after a pause."""
    next_at = 0.0
    while True:
        await asyncio.sleep(0)
        if time.monotonic() >= next_at:
            say("alive", ctx)
            next_at = time.monotonic() + 0.2


@starved.job(stale_timeout="15s", allow_stale_reentry=True, scope_kind="shard", scopes=FIVE)
async def starved_async(ctx: Context) -> None:
    """Life signs of the handler and of a task that it started, in the first attempt."""
    say("start", ctx)
    if ctx.attempt == 1:
        async with asyncio.TaskGroup() as group:
            group.create_task(signs(ctx))
            await signs(ctx)


@asynccontextmanager
async def spans_in_the_log(app: App) -> AsyncIterator[None]:
    """Write each span, when it has ended, as an event of the log."""
    # Not at the top: the other replicas do without.
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    def as_event(span: ReadableSpan) -> str:
        return json.dumps({"event": "span", **json.loads(span.to_json())}) + "\n"

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=as_event)))
    trace.set_tracer_provider(provider)
    yield
    provider.shutdown()


traced = App(lifespan=spans_in_the_log)


@traced.job(stale_timeout=LEASE, allow_stale_reentry=True)
async def traced_async(ctx: Context) -> None:
    await live(ctx, 60)
