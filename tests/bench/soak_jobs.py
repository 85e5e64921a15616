"""The jobs of the soak: every policy in use, and lines outside the database for its verdict."""

import asyncio
import os
import random
import time

from cronledger import App, Context, Retry

app = App("soak")
SCOPES = [f"s{number}" for number in range(8)]


def _say(word: str, ctx: Context) -> None:
    line = (
        f"{time.monotonic():.6f} {word} {ctx.job} {ctx.scope_id} {ctx.execution_id} {ctx.attempt}\n"
    )
    with open(os.environ["SOAK_LINES"], "a", encoding="utf-8") as file:  # noqa: PTH123 - one write
        file.write(line)


async def _work(ctx: Context, seconds: float) -> None:
    _say("start", ctx)
    try:
        await asyncio.sleep(seconds)
    finally:
        _say("end", ctx)


@app.job("* * * * * *", scope_kind="shard", scopes=SCOPES, stale_timeout="5s",
         allow_stale_reentry=True)  # fmt: skip
async def steady(ctx: Context) -> int:
    await _work(ctx, random.uniform(0, 0.4))
    return ctx.attempt


@app.job("*/2 * * * * *", overlap="wait", stale_timeout="5s", max_attempts=3, retry_backoff=["1s"])
async def waits(ctx: Context) -> None:
    await _work(ctx, random.uniform(0.5, 3))
    if random.random() < 0.2:
        raise Retry(message="one in five")


@app.job("*/3 * * * * *", overlap="replace", stale_timeout="5s", allow_stale_reentry=True)
async def replaced(ctx: Context) -> None:
    await _work(ctx, random.uniform(1, 6))


@app.job("* * * * * *", scope_kind="shard", scopes=SCOPES, max_running=3, overlap="wait",
         stale_timeout="5s")  # fmt: skip
def limited(ctx: Context) -> None:
    _say("start", ctx)
    time.sleep(random.uniform(0, 0.5))
    _say("end", ctx)


@app.job(scope_kind="tenant", overlap="wait", stale_timeout="5s", allow_stale_reentry=True)
async def pushed(ctx: Context) -> None:
    await _work(ctx, random.uniform(0, 0.5))
