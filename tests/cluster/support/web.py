"""A web application whose processes run a replica: `uvicorn tests.cluster.support.web:api`."""

import os
import time
from pathlib import Path

from fastapi import FastAPI, Request

from cronledger import App, Context
from cronledger.contrib.starlette import cronledger_lifespan
from tests.cluster.support.jobs import GATE, say
from tests.cluster.support.runner import log_json

log_json()
app = App("web")


@app.job("* * * * * *", grace="1h")
async def each_second(ctx: Context) -> None:
    say("start", ctx)


@app.job()
def gated(ctx: Context) -> None:
    """End once the gate is open."""
    say("alive", ctx)
    while not Path(os.environ[GATE]).exists():
        time.sleep(0.01)


api = FastAPI(lifespan=cronledger_lifespan(app))


@api.get("/")
async def index(request: Request) -> dict[str, str]:
    replica = request.state.cronledger
    return {"runner": replica.runner_id, "state": replica.state}
