"""The fields of an execution in the log lines of its handler.

`ExecutionFilter` adds them to records of the standard `logging`, and `add_execution` to events of
structlog. Both work in the threads and tasks of a handler, and add nothing elsewhere. The names are
those of the events that a replica logs.
"""

import logging
from contextvars import ContextVar
from typing import Any

from structlog.typing import EventDict

from cronledger.app import Context
from cronledger.log import FIELDS

__all__ = ["EXECUTION", "FIELDS", "ExecutionFilter", "add_execution", "execution_fields"]

EXECUTION: ContextVar[Context | None] = ContextVar("cronledger_execution", default=None)
"""The execution whose handler runs here. The runner sets it."""


def execution_fields() -> dict[str, Any]:
    """Return the fields of the execution whose handler calls this; an empty dict elsewhere.

    `plan_time` is ISO 8601 in UTC.
    """
    context = EXECUTION.get()
    if context is None:
        return {}
    return {
        "job": context.job,
        "scope_kind": context.scope_kind,
        "scope": context.scope_id,
        "execution_id": context.execution_id,
        "plan_time": context.plan_time.isoformat(),
        "attempt": context.attempt,
        "runner": context.runner_id,
    }


class ExecutionFilter(logging.Filter):
    """Adds the fields to each record of a handler's execution, and lets every record pass.

    Add it to the handlers of `logging`, because a filter of a logger does not see the records of
    its children. A value that the record has already is kept.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in execution_fields().items():
            record.__dict__.setdefault(name, value)
        return True


def add_execution(_: object, __: str, event: EventDict) -> EventDict:
    """Add the fields to an event of structlog: a processor, which has to precede the renderer.

    A value that the event has already is kept.
    """
    return {**execution_fields(), **event}
