"""Surroundings of tests that depend on the tasks of the event loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cronledger.engine.running.handlers.guard import guard_tasks, unguard_tasks


@pytest.fixture
async def guarded() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    guard_tasks(loop)
    yield
    unguard_tasks(loop)
    assert loop.get_task_factory() is None
