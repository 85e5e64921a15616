"""The handler of jobs that `cronledger import celery` writes: it sends a message, as beat does.

The replica needs Celery and the project. Celery's workers run the task.
"""

from typing import Any

from celery import Celery
from pydantic import BaseModel, ConfigDict, Field

from cronledger.sources.python import load_instance

EXAMPLE = "myproject.celery:app"


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
