"""The tasks of the tests."""

import asyncio
from typing import Any

from django.db import connection

from cronledger.contrib.django.framework import TaskContext
from cronledger.contrib.django.tasks import job

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task


@task
def add(one: int, other: int = 1) -> int:
    return one + other


@task(takes_context=True, queue_name="mail")
async def describe(context: TaskContext, **more: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    result = context.task_result
    return {"status": result.status, "attempt": context.attempt, "args": result.kwargs == more}


@job(max_attempts=2, retry_backoff=["0s"])
@task(takes_context=True)
def fails(context: TaskContext, times: int) -> str:
    if context.attempt <= times:
        raise LookupError(f"attempt {context.attempt}")
    return "found"


@job("0 9 * * *", timezone="Europe/Berlin", overlap="skip")
@task
def report(title: str = "daily") -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return title


@task
def returns(value: Any) -> Any:
    return {1, 2} if value == "a set" else "x" * int(value)
