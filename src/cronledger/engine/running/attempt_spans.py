"""The span of an attempt: its name, its attributes, its status, and its trace context.

The program configures the SDK. An error of the SDK is logged, and does not affect the execution.
"""

from collections.abc import Mapping, Sequence

from cronledger.engine.lease import Lease
from cronledger.engine.running.ended import Ended
from cronledger.logs.loggers import get_logger
from cronledger.rules.model import Status
from cronledger.tracing.interface import AttemptSpan, Tracing

log = get_logger(__name__)

LOST = "lost"
RELEASED = "released"


def begin(tracing: Tracing, lease: Lease) -> AttemptSpan | None:
    """Begin the span of an attempt in the task of the attempt, and record its trace in the lease.

    Return None if `tracing` raises.
    """
    claimed, job = lease.claimed, lease.job
    key = claimed.key
    attributes: dict[str, str | int] = {
        "cronledger.job": key.job_name,
        "cronledger.scope_kind": key.scope_kind,
        "cronledger.scope_id": key.scope_id,
        "cronledger.plan_time": key.plan_time.isoformat(),
        "cronledger.attempt": claimed.attempt,
        "cronledger.queue": lease.queue,
        "cronledger.handler": job.handler.value,
        "cronledger.trigger": claimed.trigger,
        "cronledger.execution_id": claimed.id,
    }
    try:
        span = tracing.begin(f"run {key.job_name}", attributes, lease.traceparent)
    except Exception:
        log.exception("span_failed")
        return None
    lease.trace_id = span.trace_id
    return span


def end(attempts: Sequence[Ended], *, lost: bool) -> None:
    """End the spans of these attempts. `lost`: the runner did not write their outcomes."""
    for attempt in attempts:
        _end(attempt, lost=lost)


def _end(attempt: Ended, *, lost: bool) -> None:
    if attempt.span is None:
        return
    ended = attempt.outcome
    if lost:
        outcome = LOST
    elif attempt.release:
        outcome = RELEASED
    else:
        outcome = ended.status.value.lower()
    attributes: dict[str, str | int] = {"cronledger.outcome": outcome}
    if ended.error_code is not None:
        attributes["cronledger.error_code"] = ended.error_code
    failed = lost or (ended.status is Status.FAILED and not attempt.release)
    line = (ended.error_msg or "").partition("\n")[0]
    try:
        attempt.span.end(attributes, f"{ended.error_code}: {line}" if failed else None)
    except Exception:
        log.exception("span_failed", **attempt.lease.log_fields)


def trace_context(span: AttemptSpan | None) -> Mapping[str, str]:
    """Return `traceparent`, and `tracestate` if there is one. Empty without a trace."""
    return {} if span is None else span.trace_context()


def headers(span: AttemptSpan | None) -> Mapping[str, str]:
    """Return the headers of a request that belongs to the attempt. Empty without a trace."""
    try:
        return {} if span is None else span.headers()
    except Exception:  # of a propagator of the program
        log.exception("span_failed")
        return {}
