"""The jobs of tasks: each task is a job with the path of its function as its name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils import timezone

from cronledger.contrib.django.framework import (
    InvalidTask,
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from cronledger.contrib.django.task_results import error_of
from cronledger.declaring.app import App, Context
from cronledger.declaring.callables import is_async
from cronledger.declaring.policies import Policies

_TASKS: dict[str, Task] = {}
"""The tasks of this process by the paths of their functions, as they were declared."""


@dataclass(frozen=True, slots=True)
class Call:
    """The payload of an execution: the arguments of the task."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)


_NO_ARGUMENTS = Call()


def remember(task: Task) -> None:
    """Remember a task when it is declared. Raises InvalidTask for a copy with another queue."""
    known = _TASKS.get(task.module_path)
    if known is None or known.func is not task.func:
        _TASKS[task.module_path] = task
    elif known.queue_name != task.queue_name:
        raise InvalidTask(
            f"queue_name={task.queue_name!r} differs from that of the declaration, "
            f"{known.queue_name!r}, but a job has one queue; declare another task for this queue"
        )


def declare_remaining() -> None:
    """Declare a job for each task that has none yet. Raises ConfigurationError."""
    for task in tuple(_TASKS.values()):
        if task.module_path not in _app().jobs:
            declare(task, None, {})


def declare(task: Task, schedule: str | None, policies: Policies) -> None:
    """Declare the job of a task. Raises ConfigurationError, and TypeError for a task that needs
    arguments and has a schedule.
    """
    if decided := policies.keys() & {"queue", "payload"}:
        raise TypeError(
            f"{', '.join(sorted(decided))} of task {task.module_path} cannot be set here; "
            "use @task(queue_name=…) and the defaults of the parameters"
        )
    if schedule is not None and not _is_callable_without_arguments(task):
        raise TypeError(
            f"task {task.module_path} has the schedule {schedule!r}, which passes no arguments; "
            "give its parameters defaults"
        )
    chosen: dict[str, Any] = {"overlap": "allow", **policies, "queue": task.queue_name}
    _app().job(schedule, name=task.module_path, **chosen)(_handler(task))


def _app() -> App:
    # Imported late: a program that only enqueues needs no App, and tasks may be imported by models.
    from cronledger.contrib.django.jobs import app  # noqa: PLC0415

    return app


def _is_callable_without_arguments(task: Task) -> bool:
    given = [None] if task.takes_context else []
    try:
        inspect.signature(task.func).bind(*given)
    except TypeError:
        return False
    return True


def _handler(task: Task) -> Callable[..., Any]:
    """Return the handler of a task, which has the place of the task's function."""
    handler: Callable[..., Any]
    if is_async(task.func):

        async def handler(ctx: Context, payload: Call = _NO_ARGUMENTS) -> Any:
            attempt = Attempt(task, await task.aget_result(str(ctx.execution_id)))
            await task_started.asend(attempt.sender, task_result=attempt.result)
            try:
                value = normalize_json(await attempt.call(payload))
            except Exception as error:
                await task_finished.asend(attempt.sender, task_result=attempt.failed(error))
                raise
            await task_finished.asend(attempt.sender, task_result=attempt.succeeded(value))
            return value
    else:

        def handler(ctx: Context, payload: Call = _NO_ARGUMENTS) -> Any:
            attempt = Attempt(task, task.get_result(str(ctx.execution_id)))
            task_started.send(attempt.sender, task_result=attempt.result)
            try:
                value = normalize_json(attempt.call(payload))
            except Exception as error:
                task_finished.send(attempt.sender, task_result=attempt.failed(error))
                raise
            task_finished.send(attempt.sender, task_result=attempt.succeeded(value))
            return value

    handler.__module__, handler.__qualname__ = task.func.__module__, task.func.__qualname__
    handler.__name__, handler.__doc__ = task.func.__name__, task.func.__doc__
    return handler


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task: its result while it runs, and at its end."""

    task: Task
    result: TaskResult

    @property
    def sender(self) -> type:
        """The sender of the signals."""
        return type(self.task.get_backend())

    def call(self, payload: Call) -> Any:
        """Call the function of the task with its arguments."""
        context = [TaskContext(task_result=self.result)] if self.task.takes_context else []
        return self.task.func(*context, *payload.args, **payload.kwargs)

    def succeeded(self, value: Any) -> TaskResult:
        """Return the result of an attempt that returned a value."""
        ended = self._ended(TaskResultStatus.SUCCESSFUL)
        object.__setattr__(ended, "_return_value", value)  # as Django's own backends do
        return ended

    def failed(self, error: Exception) -> TaskResult:
        """Return the result of an attempt that raised."""
        errors = [*self.result.errors, error_of(error)]
        return replace(self._ended(TaskResultStatus.FAILED), errors=errors)

    def _ended(self, status: Any) -> TaskResult:
        return replace(self.result, status=status, finished_at=timezone.now())
