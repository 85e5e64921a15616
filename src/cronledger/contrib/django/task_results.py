"""Results of tasks, from the rows of the ledger."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from traceback import format_exception
from typing import Any

from django.utils.module_loading import import_string

from cronledger.contrib.django.framework import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import Status

_STATUSES = {
    Status.PENDING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCESS: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}
_NOT_STORED = (ErrorCode.RESULT_TOO_LARGE, ErrorCode.RESULT_INVALID)


class AttemptEndedError(Exception):
    """An attempt ended without an exception of its function, such as by a timeout or a cancel."""


class ResultNotStoredError(Exception):
    """A task succeeded, and its return value was not stored."""


def task_result(row: Mapping[str, Any], result_id: str, backend: str) -> TaskResult:
    """Return the result that a row of `show_task.sql` contains.

    Raises TaskResultDoesNotExist for an execution of a job that is not a task.
    """
    task = _task(row["job_name"], result_id)
    earlier = json.loads(row["attempts"])
    status = _STATUSES[row["status"]]
    if status == TaskResultStatus.FAILED and row["next_attempt_at"] is not None:
        status = TaskResultStatus.READY  # it awaits a retry
    starts = [datetime.fromisoformat(attempt["started_at"]) for attempt in earlier]
    if row["started_at"] is not None:
        starts.append(row["started_at"])
    is_claimed_again = row["attempt"] > len(earlier)
    call = json.loads(row["payload"] or "{}")
    found = TaskResult(
        task=task,
        id=result_id,
        status=status,
        enqueued_at=row["created_at"],
        started_at=starts[0] if starts else None,
        finished_at=row["finished_at"] if _is_final(status) else None,
        last_attempted_at=starts[-1] if starts else None,
        args=call.get("args", []),
        kwargs=call.get("kwargs", {}),
        backend=backend,
        errors=list(_errors(row, earlier)),
        worker_ids=[
            *(attempt["runner_id"] for attempt in earlier),
            *([row["runner_id"]] if is_claimed_again else []),
        ],
    )
    if status == TaskResultStatus.SUCCESSFUL and row["result"] is not None:
        # As Django's own backends do: the field is not an argument.
        object.__setattr__(found, "_return_value", json.loads(row["result"]))
    return found


def error_of(error: BaseException) -> TaskError:
    """Return an exception that was raised here as an error of a result."""
    return TaskError(
        exception_class_path=_path(type(error)), traceback="".join(format_exception(error))
    )


def _task(job: str, result_id: str) -> Task:
    try:
        task = import_string(job)
    except ImportError:
        task = None
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(result_id)
    return task


def _is_final(status: Any) -> bool:
    return status in (TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL)


def _errors(row: Mapping[str, Any], earlier: list[dict[str, Any]]) -> Iterator[TaskError]:
    for attempt in earlier:
        if attempt.get("error_code") is not None:
            yield _error(attempt["error_code"], attempt.get("error_msg"))
    if row["status"] == Status.SUCCESS and row["error_code"] in _NOT_STORED:
        text = f"{row['error_code']}: the return value was not stored"
        yield TaskError(exception_class_path=_path(ResultNotStoredError), traceback=text)
    elif row["status"] in (Status.FAILED, Status.CANCELLED):
        yield _error(row["error_code"], row["error_msg"])


def _error(code: str, message: str | None) -> TaskError:
    """Return the error of an attempt. A handler's error begins with the class that was raised."""
    raised = re.match(r"[\w.]+", message or "") if code == ErrorCode.HANDLER_ERROR else None
    if raised is None:
        path, text = _path(AttemptEndedError), f"{code}: {message or ''}"
    else:
        path = raised[0] if "." in raised[0] else f"builtins.{raised[0]}"
        text = message or ""
    return TaskError(exception_class_path=path, traceback=text)


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
