"""F50: the lifespan of Starlette and FastAPI that runs a replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypedDict

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cronledger import App
from cronledger.contrib.starlette import cronledger_lifespan
from cronledger.ledger.migrate import MigrationError
from cronledger.settings import Settings
from cronledger.testing import Ledger
from tests.waiting import eventually, until


class State(TypedDict):
    pool: str


class Own:
    """A lifespan of the user, whose steps are noted together with those of handlers."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    @asynccontextmanager
    async def lifespan(self, server_app: Any) -> AsyncIterator[State]:
        self.steps.append(f"enter {type(server_app).__name__}")
        try:
            yield {"pool": "open"}
        finally:
            self.steps.append("leave")


async def state(request: Request) -> JSONResponse:
    replica = request.state.cronledger
    return JSONResponse(
        {"pool": request.state.pool, "state": replica.state, "slots": replica.settings.slots}
    )


@pytest.fixture
def own() -> Own:
    return Own()


@pytest.fixture
def app(own: Own) -> App:
    made = App("web")

    @made.job()
    async def step() -> None:
        own.steps.append("handler")

    @made.job(allow_stale_reentry=True)
    async def endless() -> None:
        own.steps.append("handler")
        await asyncio.Event().wait()

    return made


@pytest.fixture(autouse=True)
def environment(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", ledger.url)


@pytest.mark.long
def test_one_replica_of_several_apps_runs_between_startup_and_shutdown(
    ledger: Ledger, own: Own, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONLEDGER_SLOTS", "3")
    lifespan = cronledger_lifespan(app, App("other"), lifespan=own.lifespan)
    web = Starlette(lifespan=lifespan, routes=[Route("/", state)])
    for _ in range(2):  # a test enters the lifespan of one application many times
        own.steps.clear()
        with TestClient(web) as client:
            assert client.get("/").json() == {"pool": "open", "state": "running", "slots": 3}
            ledger.trigger("step")
            until("it runs", lambda: "handler" in own.steps)
            running = ledger.rows("SELECT FROM runners WHERE state = 'running'")
            assert len(running) == 1
        assert own.steps == ["enter Starlette", "handler", "leave"]
        assert {row["state"] for row in ledger.rows("SELECT state FROM runners")} == {"stopped"}
    assert {row["name"] for row in ledger.rows("SELECT name FROM sources")} == {"web", "other"}


@pytest.mark.long
async def test_a_server_that_cancels_the_lifespan_does_not_wait_for_a_drain(
    ledger: Ledger, own: Own, app: App
) -> None:
    settings = Settings(drain_timeout=timedelta(days=1))
    given = cronledger_lifespan(app, lifespan=own.lifespan, url=ledger.url, settings=settings)

    async def serve() -> None:
        async with given(Starlette()):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    started = "SELECT 1 FROM schedules WHERE job_name = 'endless'"
    await eventually("the jobs are there", lambda: ledger.rows(started))
    await asyncio.to_thread(ledger.trigger, "endless")
    await eventually("it runs", lambda: "handler" in own.steps)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert own.steps[-1] == "leave"
    assert [row["status"] for row in ledger.executions("endless")] == ["PENDING"]


def test_a_start_that_fails_leaves_the_own_lifespan(
    own: Own, app: App, empty_database_url: str
) -> None:
    lifespan = cronledger_lifespan(app, lifespan=own.lifespan, url=empty_database_url)
    with (
        pytest.raises(MigrationError, match="run `cronledger migrate`"),
        TestClient(FastAPI(lifespan=lifespan)),
    ):
        pass
    assert own.steps == ["enter FastAPI", "leave"]


def test_the_name_of_the_replica_is_reserved(app: App) -> None:
    @asynccontextmanager
    async def lifespan(server_app: Any) -> AsyncIterator[dict[str, Any]]:
        yield {"cronledger": "mine"}

    with (
        pytest.raises(ValueError, match="choose another name"),
        TestClient(Starlette(lifespan=cronledger_lifespan(app, lifespan=lifespan))),
    ):
        pass


def test_arguments_that_cannot_work_are_refused_at_once(app: App) -> None:
    with pytest.raises(TypeError, match=r"received a starlette.applications.Starlette"):
        cronledger_lifespan(Starlette())  # type: ignore[arg-type]

    async def undecorated(server_app: Any) -> AsyncIterator[None]:
        yield

    with pytest.raises(TypeError, match="asynccontextmanager"):
        cronledger_lifespan(app, lifespan=undecorated)  # type: ignore[arg-type]
    # `lifespan=cronledger_lifespan`, without a call
    with (
        pytest.raises(TypeError, match=r"write `lifespan=cronledger_lifespan\(app\)`"),
        TestClient(Starlette(lifespan=cronledger_lifespan)),  # type: ignore[arg-type]
    ):
        pass
