"""Log lines of a replica, and the fields of an execution in the lines of its handler.

`ExecutionFilter` adds the fields to records of the standard `logging`, and `add_execution` to
events of structlog. Both work in the threads and tasks of a handler, and add nothing elsewhere. The
names are those of the events that a replica logs (`events.toml`).
"""

from cronledger.logs.fields import FIELDS, ExecutionFilter, add_execution, execution_fields

__all__ = ["FIELDS", "ExecutionFilter", "add_execution", "execution_fields"]
