"""The jobs of test_verdict: each start and end leaves a line outside the database."""

import asyncio
import time

from cronledger import App, Context
from tests.cluster.support.marks import mark

SCOPES = tuple(f"s{n:03}" for n in range(100))
FIRINGS = 10

app = App("verdict")


def _mark(what: str, ctx: Context) -> None:
    at = ctx.plan_time.isoformat()
    mark(what, ctx.job, ctx.scope_id, ctx.attempt, ctx.execution_id, at)


@app.job("* * * * *", scope_kind="shard", scopes=SCOPES, overlap="wait", catch_up="all")
def once(ctx: Context) -> None:
    _mark("start", ctx)
    time.sleep(0.002)
    _mark("end", ctx)


@app.job(
    "* * * * *", scope_kind="shard", scopes=SCOPES, overlap="wait", catch_up="all",
    allow_stale_reentry=True, max_attempts=3,
)  # fmt: skip
async def reentrant(ctx: Context) -> None:
    _mark("start", ctx)
    await asyncio.sleep(0.002)
    _mark("end", ctx)
