"""Scope providers against a real ledger."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from cronledger.app import App
from cronledger.engine import scopes as scopes_module
from cronledger.engine.scopes import Scopes
from cronledger.ledger.database import Access
from cronledger.ledger.statements import Statements
from cronledger.rules.model import Job
from cronledger.sources.apply import apply


class Asked:
    """Jobs whose providers answer what the test says, and replicas that ask them."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self._jobs: dict[str, tuple[Job, Callable[[], Any]]] = {}
        self._app = App()

    def job(self, name: str, provider: Callable[[], Any]) -> None:
        self._app.job(name=name, scope_kind="tenant", scopes=provider)(lambda: None)
        apply(self._url, list(self._app.jobs.values()), source="test")
        self._jobs[name] = (self._app.jobs[name], provider)

    async def replica(self) -> Scopes:
        pool = Access(self._url).pool("test", 2)
        await self._stack.enter_async_context(pool)
        return Scopes(pool, Statements(), self._jobs)

    def scopes(self, name: str) -> dict[str, bool]:
        """scope_id and whether it is planned."""
        with psycopg.connect(self._url) as c:
            return dict(
                c.execute(
                    "SELECT scope_id, retired_at IS NULL OR returned_at IS NOT NULL"
                    " FROM cronledger.schedules WHERE job_name = %s",
                    [name],
                ).fetchall()
            )


@pytest.fixture
async def asked(database_url: str) -> AsyncIterator[Asked]:
    async with AsyncExitStack() as stack:
        yield Asked(database_url, stack)


async def test_scopes_appear_retire_and_return(asked: Asked) -> None:
    answers: list[list[str]] = [["a", "b"], ["b"], ["a", "b", "c"], []]
    asked.job("job", lambda: answers.pop(0))
    replica = await asked.replica()
    assert asked.scopes("job") == {}
    await replica.step()
    assert asked.scopes("job") == {"a": True, "b": True}
    await replica.step()
    assert asked.scopes("job") == {"a": False, "b": True}
    await replica.step()
    assert asked.scopes("job") == {"a": True, "b": True, "c": True}
    await replica.step()
    assert asked.scopes("job") == {"a": False, "b": False, "c": False}


def _raises() -> list[str]:
    raise RuntimeError("down")


async def _hangs() -> list[str]:
    await asyncio.sleep(60)
    return []


@pytest.mark.parametrize(
    "bad",
    [_raises, _hangs, lambda: None, lambda: "ab", lambda: [1], lambda: [""], lambda: ["a\0"],
     lambda: ["\ud800"], lambda: ["x" * 201]],
)  # fmt: skip
async def test_a_bad_answer_retires_nothing_and_costs_no_other_job(
    asked: Asked, bad: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes_module, "PATIENCE_SECONDS", 0.2)
    answers: list[Callable[[], Any]] = [lambda: ["a"], bad]

    async def provider() -> Any:
        answer = answers.pop(0)()
        return await answer if inspect.isawaitable(answer) else answer

    asked.job("bad", provider)
    asked.job("good", lambda: ["g"])
    replica = await asked.replica()
    await replica.step()
    with capture_logs() as logs:
        await replica.step()
    assert [x["job"] for x in logs if x["event"] == "scope_provider_failed"] == ["bad"]
    assert asked.scopes("bad") == {"a": True}
    assert asked.scopes("good") == {"g": True}


async def test_one_replica_asks_at_a_time(asked: Asked) -> None:
    asking, go_on, calls = asyncio.Event(), asyncio.Event(), 0

    async def provider() -> list[str]:
        nonlocal calls
        calls += 1
        asking.set()
        await go_on.wait()
        return ["a"]

    asked.job("job", provider)
    one, other = await asked.replica(), await asked.replica()
    first = asyncio.create_task(one.step())
    await asking.wait()
    assert await other.step() is not None
    assert calls == 1
    go_on.set()
    await first
    await other.step()
    assert calls == 2
    assert set(asked.scopes("job")) == {"a"}
