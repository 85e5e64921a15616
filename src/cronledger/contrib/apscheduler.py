"""The handlers of jobs that `cronledger import apscheduler` writes: they call a function.

The replica needs the program, but not APScheduler. `observe` is for the program of a scheduler that
keeps its jobs.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cronledger.contrib.reporting import Reporter
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


def observe(
    scheduler: Any, url: str, jobs: Mapping[str, str], *, schema: str = "cronledger"
) -> None:
    """Report the runs of a scheduler of APScheduler 3.

    `jobs`: the names of the observed jobs, by the ids of the scheduler's jobs. `url`: the
    connection string of the ledger.
    """
    from apscheduler import events  # noqa: PLC0415 - handlers do not need it

    reporter = Reporter(url, schema, "apscheduler")

    def report(event: Any) -> None:
        job = jobs.get(event.job_id)
        if job is None:
            return
        is_start = event.code == events.EVENT_JOB_SUBMITTED
        times = event.scheduled_run_times if is_start else [event.scheduled_run_time]
        for key in (f"{event.job_id[:100]} {at.isoformat()}" for at in times):
            if is_start:
                reporter.started(job, key)
            elif event.code == events.EVENT_JOB_MISSED:
                reporter.ended(job, key, "the run did not start within its misfire_grace_time")
            else:
                failed = event.exception
                reporter.ended(job, key, None if failed is None else repr(failed))

    scheduler.add_listener(
        report,
        events.EVENT_JOB_SUBMITTED | events.EVENT_JOB_EXECUTED
        | events.EVENT_JOB_ERROR | events.EVENT_JOB_MISSED,
    )  # fmt: skip
