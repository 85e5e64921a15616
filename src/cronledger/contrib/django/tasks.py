"""A backend for Django's task framework, whose tasks are jobs of the ledger.

TASKS = {"default": {"BACKEND": "cronledger.contrib.django.tasks.CronledgerBackend"}}
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from django.apps import apps
from django.core import checks
from django.db import connections

from cronledger.contrib.django import options, task_jobs
from cronledger.contrib.django.framework import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from cronledger.contrib.django.task_results import task_result
from cronledger.declaring.policies import Policies
from cronledger.ledger import queries
from cronledger.ledger.senders import default_tracing, enqueuing

APP = "cronledger.contrib.django"
T = TypeVar("T", bound=Task)


class CronledgerBackend(BaseTaskBackend):
    """Enqueues tasks as executions of the ledger, in the transaction of the caller.

    A replica runs them (`manage.py cronledger run`). Ids of results are ids of executions. Tasks
    have no priorities.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    def validate_task(self, task: Task) -> None:
        """Raise InvalidTask for a task that cannot be a job, or that has a priority."""
        super().validate_task(task)
        task_jobs.remember(task)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Enqueue a task on Django's connection, and return its result, which is READY.

        If the caller's transaction rolls back, there is no such task. Raises InvalidTask, TypeError
        for arguments that JSON does not have, and django.db.Error if the ledger refuses them.
        """
        self.validate_task(task)
        call = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        params = {"job": task.module_path, "payload": json.dumps(call), "due_at": task.run_after}
        with enqueuing(default_tracing(), task.module_path, 1) as span:
            (row,) = _rows("call_enqueue_task", {**params, "traceparent": span})
        result = TaskResult(
            task=task,
            id=str(row["id"]),
            status=TaskResultStatus.READY,
            enqueued_at=row["enqueued_at"],
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            backend=self.alias,
            errors=[],
            worker_ids=[],
            **call,
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the state of a task. Raises TaskResultDoesNotExist.

        The result of an execution that a schedule made has no arguments.
        """
        if not (result_id.isascii() and result_id.isdecimal() and len(result_id) < _ID_DIGITS):
            raise TaskResultDoesNotExist(result_id)
        rows = _rows("show_task", {"id": int(result_id)})
        if not rows:
            raise TaskResultDoesNotExist(result_id)
        return task_result(rows[0], result_id, self.alias)

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """Return what prevents tasks from being enqueued."""
        if not apps.is_installed(APP):
            message, hint = f"{APP} is not installed", f'add "{APP}" to INSTALLED_APPS'
            return [checks.Error(message, hint=hint, id="cronledger.E002")]
        if self.options:
            message = f"the backend {self.alias!r} of TASKS has OPTIONS, but there are none"
            return [checks.Error(message, hint="remove them", id="cronledger.E003")]
        return []


def job(schedule: str | None = None, **policies: Unpack[Policies]) -> Callable[[T], T]:
    """Give the job of a task a schedule, and other policies, which are those of `@app.job`.

    Write it above `@task`. The task stays as it was, and can also be enqueued. A task without this
    decorator has the defaults of `@app.job`. `overlap` is always "allow" unless it is set. The
    queue is that of the task.

    Raises ConfigurationError for an invalid policy, and TypeError for what is not a task, for a
    task whose function needs arguments and has a schedule, and for `queue` and `payload`.
    """

    def declare(task: T) -> T:
        if not isinstance(task, Task):
            raise TypeError(f"{task!r} is not a task; write @job(…) above @task")
        task_jobs.declare(task, schedule, policies)
        return task

    return declare


_ID_DIGITS = 19


def _rows(name: str, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a statement on Django's connection, in the transaction of the caller."""
    with connections[options.alias()].cursor() as cursor:
        cursor.execute(queries.text(name, options.schema()), params)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
