"""A program with its own lifespan, a replica and the page: `uvicorn tests.web.support.program:api`.

A stream of the page does not end by itself.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, Request
from starlette.requests import HTTPConnection

from cronledger import App
from cronledger.contrib.starlette import cronledger_lifespan
from cronledger.web import create_app, refresh
from cronledger.web.access.identity import Identity, Role

refresh.TICK = refresh.STREAM_SECONDS = 3600.0
app = App("program")


class State(TypedDict):
    word: str


@app.job("@daily")
def report() -> None: ...


def identify(_: HTTPConnection) -> Identity:
    return Identity("zoe", Role.OPERATOR)


page = create_app(identify=identify)


@asynccontextmanager
async def own(_: FastAPI) -> AsyncIterator[State]:
    async with page.router.lifespan_context(page):
        yield {"word": "own"}


api = FastAPI(lifespan=cronledger_lifespan(app, lifespan=own))
api.mount("/ops/cron", page)


@api.get("/")
async def index(request: Request) -> dict[str, str]:
    return {"word": request.state.word, "replica": request.state.cronledger.state}
