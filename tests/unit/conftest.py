"""Surroundings of tests that depend on variables or on the tasks of the event loop."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from cronledger.engine.running.handlers.guard import guard_tasks, unguard_tasks


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("CRONLEDGER_"):
            monkeypatch.delenv(name)


@pytest.fixture
async def guarded() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    guard_tasks(loop)
    yield
    unguard_tasks(loop)
    assert loop.get_task_factory() is None
