"""The jobs of the chaos run: every policy, and life signs outside the database for its verdict.

Two deploys of one source: `first` has `leaving`, `second` has `arriving` and another schedule for
`changing`; all else is the same.
"""

import asyncio
import inspect
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from cronledger import App, Context, Retry
from cronledger.channels import Function
from cronledger.rules.model import Overlap
from tests.cluster.support.jobs import say

SIGN = 0.05
SCOPES = [f"s{number}" for number in range(6)]
LEASE = "6s"
F = TypeVar("F", bound=Callable[..., Any])

CHANNELS = {"lines": Function(python="tests.chaos.jobs:receive")}
DIRECTORY = "CHAOS_DIRECTORY"
"""The variable that names the directory of the files ALERTS and SPANS."""
ALERTS, SPANS = "alerts", "spans"
first, second = App("chaos", channels=CHANNELS), App("chaos", channels=CHANNELS)


def append(file: str, lines: Sequence[str]) -> None:
    """Append lines to one of the two files with one write, because many processes do so."""
    with (Path(os.environ[DIRECTORY]) / file).open("ab", buffering=0) as opened:
        opened.write("".join(f"{line}\n" for line in lines).encode())


def receive(message: dict[str, Any]) -> None:
    """Be the receiver of the channel."""
    append(ALERTS, [str(alert["id"]) for alert in message["alerts"]])


class SpanLines(SpanExporter):
    """Appends a line to SPANS for each attempt that has ended."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        found = [dict(span.attributes or {}) for span in spans]
        append(SPANS, [
            f"{x['cronledger.execution_id']} {x['cronledger.attempt']}" for x in found
            if "cronledger.attempt" in x
        ])  # fmt: skip
        return SpanExportResult.SUCCESS


if DIRECTORY in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SpanLines()))
    trace.set_tracer_provider(provider)


async def live(ctx: Context, seconds: float) -> None:
    """Life signs, and a last one however it ends."""
    say("start", ctx)
    end_at = time.monotonic() + seconds
    try:
        while time.monotonic() < end_at:
            await asyncio.sleep(SIGN)
            say("alive", ctx)
    finally:
        say("end", ctx)


def live_in_thread(ctx: Context, seconds: float) -> None:
    """The same until it is asked to stop."""
    say("start", ctx)
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at and not ctx.cancelled:
        time.sleep(SIGN)
        say("alive", ctx)
    say("end", ctx)


def both(schedule: str | None = None, **policies: Any) -> Callable[[F], F]:
    """In either deploy."""

    def declare(function: F) -> F:
        for app in (first, second):
            app.job(schedule, stale_timeout=LEASE, **policies)(function)
        return function

    return declare


@both("* * * * * *", scope_kind="shard", scopes=SCOPES, allow_stale_reentry=True)
async def steady(ctx: Context) -> int:
    await live(ctx, random.uniform(0, 0.5))
    return ctx.attempt


@both(
    "*/2 * * * * *", overlap="wait", max_attempts=2, retry_backoff=["1s"], notify="lines",
)  # fmt: skip
async def waits(ctx: Context) -> None:
    await live(ctx, random.uniform(0.5, 3))
    if random.random() < 0.4:
        raise Retry(message="four in ten")


@both("*/3 * * * * *", overlap="replace", allow_stale_reentry=True)
async def replaced(ctx: Context) -> None:
    await live(ctx, random.uniform(1, 6))


@both(
    "* * * * * *", scope_kind="shard", scopes=SCOPES, max_running=3, overlap="wait",
    catch_up="latest",
)  # fmt: skip
def limited(ctx: Context) -> None:
    live_in_thread(ctx, random.uniform(0, 0.6))


@both("*/2 * * * * *", overlap="allow", allow_stale_reentry=True, catch_up="all", catch_up_limit=20)
def allowed(ctx: Context) -> None:
    live_in_thread(ctx, random.uniform(0, 5))


@both("*/5 * * * * *", schedule_delay="1s", jitter="2s", max_attempts=2, retry_backoff=["0s"])
async def jittered(ctx: Context) -> None:
    await live(ctx, random.uniform(0, 1))


@both("*/7 * * * * *", scope_kind="shard", scopes=SCOPES, overlap="wait", allow_stale_reentry=True)
async def long(ctx: Context) -> None:
    await live(ctx, random.uniform(8, 20))


@both("* * * * * *", scope_kind="shard", scopes=SCOPES[:2], overlap="skip", catch_up="skip")
async def written(ctx: Context) -> None:
    """Its row in `effects` and its SUCCESS are one commit."""
    say("start", ctx)
    async with ctx.transaction() as c:
        await c.execute("INSERT INTO effects (id, job) VALUES (%s, 'written')", [ctx.execution_id])
        await asyncio.sleep(random.uniform(0, 0.3))
        say("end", ctx)


@both("*/6 * * * * *", requires=["jittered"], wait_at_most="20s")
async def gathered(ctx: Context) -> None:
    await live(ctx, random.uniform(0, 0.5))


@both(after="gathered", wait_at_most="20s")
async def followed(ctx: Context) -> None:
    await live(ctx, 0.2)


@both("*/3 * * * * *", windows=True, overlap="wait", max_attempts=2, retry_backoff=["2s"])
async def windowed(ctx: Context) -> None:
    await live(ctx, random.uniform(0, 1))
    if random.random() < 0.3:
        raise Retry(message="three in ten")


@both(scope_kind="tenant", overlap="wait", allow_stale_reentry=True)
async def pushed(ctx: Context) -> None:
    await live(ctx, random.uniform(0, 0.5))


@both(overlap="allow", allow_stale_reentry=True, max_attempts=5, retry_backoff=["1s"])
async def triggered(ctx: Context) -> None:
    await live(ctx, random.uniform(0, 0.3))


@first.job("*/2 * * * * *", stale_timeout=LEASE)
async def leaving(ctx: Context) -> None:
    await live(ctx, 0.2)


@second.job("*/2 * * * * *", stale_timeout=LEASE, overlap="wait", catch_up="all")
async def arriving(ctx: Context) -> None:
    await live(ctx, 0.2)


@first.job("*/2 * * * * *", stale_timeout=LEASE)
@second.job("*/3 * * * * *", stale_timeout=LEASE)
async def changing(ctx: Context) -> None:
    await live(ctx, 0.2)


LAPPING = {job.name for job in first.jobs.values() if job.overlap is Overlap.ALLOW}
"""Jobs that may run beside themselves."""
THREADED = {
    name for name, handler in first.handlers.items() if not inspect.iscoroutinefunction(handler)
}
"""Jobs whose function runs in a thread."""
