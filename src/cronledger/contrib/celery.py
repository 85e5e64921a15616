"""The handler of jobs that `cronledger import celery` writes: it sends a message, as beat does.

The replica needs Celery and the project. Celery's workers run the task. `observe` is for workers
of an app whose beat keeps its entries.
"""

from typing import Any

from celery import Celery, signals
from pydantic import BaseModel, ConfigDict, Field

from cronledger.contrib.reporting import Reporter
from cronledger.sources.celery_beat import JOB_HEADER
from cronledger.sources.python import load_instance

EXAMPLE = "myproject.celery:app"
_SUCCEEDED = ("SUCCESS", "IGNORED")


class Message(BaseModel):
    """The message of an entry of `beat_schedule`. `app`: the Celery app, as package.module:name."""

    model_config = ConfigDict(extra="forbid")

    app: str
    task: str
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)


def send(payload: Message) -> dict[str, str]:
    """Send the message of a task. Returns the id of the task."""
    app = load_instance(payload.app, Celery, EXAMPLE)
    task = app.tasks.get(payload.task)
    if task is not None:  # it has options of its own
        sent = task.apply_async(payload.args, payload.kwargs, **payload.options)
    else:
        sent = app.send_task(payload.task, payload.args, payload.kwargs, **payload.options)
    return {"task_id": sent.id}


def observe(url: str, *, schema: str = "cronledger") -> None:
    """Report the runs of tasks whose message has the header `cronledger_job`.

    Call it in the module of the app. `url`: the connection string of the ledger.
    """
    reporter = Reporter(url, schema, "celery")

    def started(task_id: str, task: Any, **_: Any) -> None:
        if job := _job_of(task):
            reporter.started(job, task_id)

    def ended(task_id: str, task: Any, state: str | None, retval: Any, **_: Any) -> None:
        job = _job_of(task)
        if job and state != "RETRY":
            error = None if state in _SUCCEEDED else f"{state}: {retval!r}"
            reporter.ended(job, task_id, error)

    def flush(**_: Any) -> None:
        reporter.flush()

    signals.task_prerun.connect(started, weak=False)
    signals.task_postrun.connect(ended, weak=False)
    for last in (signals.worker_process_shutdown, signals.worker_shutdown):
        last.connect(flush, weak=False)


def _job_of(task: Any) -> str | None:
    headers = task.request.headers or {}
    found = headers.get(JOB_HEADER) or task.request.get(JOB_HEADER)
    return found if isinstance(found, str) else None
