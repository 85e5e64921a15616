"""The handlers of jobs that `cronledger import apscheduler` writes: they call a function.

The replica needs the program, and not APScheduler.
"""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cronledger.sources.python import resolve_function


class Call(BaseModel):
    """A call. `function`: the function, as package.module:name."""

    model_config = ConfigDict(extra="forbid")

    function: str
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)


def call(payload: Call) -> Any:
    """Call a function in a thread, and return its result."""
    return _function(payload)(*payload.args, **payload.kwargs)


async def call_async(payload: Call) -> Any:
    """Await an async function, and return its result."""
    return await _function(payload)(*payload.args, **payload.kwargs)


def _function(payload: Call) -> Callable[..., Any]:
    return resolve_function(payload.function)
