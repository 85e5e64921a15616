"""The fields of an execution in the log lines of its handler and of its replica."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from structlog.typing import EventDict

FIELDS = ("job", "scope_kind", "scope", "execution_id", "plan_time", "attempt", "runner")
"""The names of the fields of an execution. Outside of executions, a format needs defaults."""

EXECUTION: ContextVar[Callable[[], Mapping[str, Any]] | None] = ContextVar(
    "cronledger_execution", default=None
)
"""Returns the fields of the execution that runs here, and its trace_id if it is traced.

The runner sets it. It is called for each line, because most executions log none.
"""

_LEFT_OUT = ("scope_kind", "runner")
"""The fields of a handler's lines that the lines of a replica do not have."""


@contextmanager
def fields_from(fields: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Add these fields to the lines inside."""
    before = EXECUTION.set(fields)
    try:
        yield
    finally:
        EXECUTION.reset(before)


def execution_fields() -> dict[str, Any]:
    """Return the fields of the execution whose handler calls this; an empty dict elsewhere.

    `plan_time` is ISO 8601 in UTC.
    """
    fields = EXECUTION.get()
    return {} if fields is None else {k: v for k, v in fields().items() if k in FIELDS}


def replica_fields() -> dict[str, Any]:
    """Return the fields of a line of the replica about the execution that runs here."""
    fields = EXECUTION.get()
    return {} if fields is None else {k: v for k, v in fields().items() if k not in _LEFT_OUT}


def add_replica_fields(_: object, __: str, event: EventDict) -> EventDict:
    """Add the fields of the replica's own lines: a processor. A value of the event is kept."""
    return {**replica_fields(), **event}


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
