"""The calls of clients: each is a statement, its parameters, and the value of its rows.

`ledger.senders` has what sends them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic_core import to_jsonable_python

from cronledger.binding import PayloadInvalidError
from cronledger.ledger import audit_trail, values
from cronledger.ledger.refusals import NotFoundError
from cronledger.ledger.reports import Row
from cronledger.rules import storable
from cronledger.rules.model import GLOBAL, Status
from cronledger.rules.problems import RefusedError, nearest

T = TypeVar("T")

Cancelled = Literal["cancelled", "requested", "already_finished", "busy"]
Retried = Literal["retried", "brought_forward"]

MOST_ITEMS = 2_000
"""The items of one scope that a statement enqueues. More make it no faster."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """The statement of `sql/NAME.sql`, and its parameters. `decode` returns its rows' value.

    `function`, `arguments`: the operator function that it calls, by which the audit trail records
    a refusal. `enqueues`: the number of executions that it requests. Then it has the parameters
    `job` and `traceparent`, and the sender makes a span of it.
    """

    name: str
    params: Mapping[str, Any]
    decode: Callable[[list[Row]], T]
    function: str | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)
    enqueues: int = 0

    def refused(self, message: str) -> "Call[None] | None":
        """Return the call that records its refusal, or None if it is not recorded."""
        if self.function is None:
            return None
        params = audit_trail.refusal(self.function, self.arguments, message)
        return Call(audit_trail.RECORD, params, lambda rows: None)


def _value(rows: list[Row]) -> Any:
    return rows[0]["value"]


# --- input --------------------------------------------------------------------------------------


def enqueue(
    job: str,
    payload: object = None,
    *,
    key: str | None = None,
    scope: str = GLOBAL,
    scope_kind: str | None = None,
    watermark: int | None = None,
    group_id: UUID | None = None,
    due_at: datetime | None = None,
) -> Call[int | None]:
    """Enqueue work for a job.

    Raises PayloadInvalidError, and ValueError for a `due_at` without a time zone.
    """
    params = {
        "job": job, "scope": scope, "scope_kind": scope_kind, "watermark": watermark,
        "payload": _json(payload, "the payload"), "key": key, "group_id": group_id,
        "due_at": _aware("due_at", due_at), "traceparent": None,
    }  # fmt: skip
    return Call("call_enqueue", params, _value, enqueues=1)


def enqueue_many(
    job: str,
    payloads: Iterable[object],
    *,
    keys: Sequence[str | None] | None = None,
    scopes: Sequence[str] | None = None,
    scope_kind: str | None = None,
    watermarks: Sequence[int | None] | None = None,
    group_id: UUID | None = None,
) -> list[Call[list[int | None]]]:
    """Enqueue an item for each payload, in one transaction. Raises PayloadInvalidError, ValueError.

    The items of several scopes are one call, because the function locks the scopes of one call in
    their order. Two calls could wait for each other.
    """
    texts = [_json(payload, f"payloads[{n}]") for n, payload in enumerate(payloads)]
    arrays: dict[str, Sequence[object] | None] = {
        "keys": keys, "scopes": scopes, "watermarks": watermarks,
    }  # fmt: skip
    for name, given in arrays.items():
        if given is not None and len(given) != len(texts):
            raise ValueError(
                f"{name} has {len(given)} elements, and payloads has {len(texts)}; pass one for"
                " each payload"
            )
    arrays["payloads"] = texts
    size = MOST_ITEMS if scopes is None else max(len(texts), 1)
    rest = {"job": job, "scope_kind": scope_kind, "group_id": group_id, "traceparent": None}
    calls: list[Call[list[int | None]]] = []
    for start in range(0, max(len(texts), 1), size):
        part = {
            name: None if given is None else list(given[start : start + size])
            for name, given in arrays.items()
        }
        count = len(texts[start : start + size])
        calls.append(Call("call_enqueue_many", {**rest, **part}, _value, enqueues=count))
    return calls


class JsonText(str):
    """A payload as JSON text that the ledger can store."""

    __slots__ = ()


def json_text(payload: object, name: str = "the payload") -> JsonText:
    """Return `payload` as JSON text. Raises PayloadInvalidError, which has `name`."""
    try:
        return JsonText(storable.text(to_jsonable_python(payload)))
    except RefusedError as error:
        raise PayloadInvalidError(f"{name} {error.problem}; {error.remedy}") from error
    except (ValueError, RecursionError) as error:
        raise PayloadInvalidError(f"{name} is not JSON: {error}; {storable.PLAIN}") from error


def _json(payload: object, name: str) -> str | None:
    """Return `payload` as JSON text. None stays None, which stands for the payload of the job."""
    return payload if payload is None or isinstance(payload, JsonText) else json_text(payload, name)


# --- operator functions -------------------------------------------------------------------------


def trigger(
    job: str,
    payload: object = None,
    *,
    scope: str = GLOBAL,
    scope_kind: str | None = None,
    force: bool = False,
    require_runner: bool = False,
) -> Call[int]:
    """Create one execution of a job, due now. Raises PayloadInvalidError."""
    params = {
        "job": job, "scope": scope, "scope_kind": scope_kind, "force": force,
        "payload": _json(payload, "the payload"), "require_runner": require_runner,
        "traceparent": None,
    }  # fmt: skip
    given = {
        "job": job, "scope_id": scope, "scope_kind": scope_kind, "force": force,
        "require_runner": require_runner,
    }  # fmt: skip
    return Call("call_trigger", params, _value, "trigger", given, enqueues=1)


def pause(job: str, reason: str | None = None, *, until: datetime | None = None) -> Call[bool]:
    """Pause a job. Raises ValueError for an `until` without a time zone."""
    params = {"job": job, "reason": reason, "until": _aware("until", until)}
    return Call("call_pause", params, _value, "pause", params)


def resume(job: str) -> Call[bool]:
    """Resume a job."""
    return Call("call_resume", {"job": job}, _value, "resume", {"job": job})


def cancel(execution_id: int) -> Call[Cancelled]:
    """Request that an execution ends."""
    given = {"execution_id": execution_id}
    return Call("call_cancel", {"id": execution_id}, _value, "cancel", given)


def retry(execution_id: int, *, force: bool = False) -> Call[Retried]:
    """Give an execution one more attempt."""
    given = {"execution_id": execution_id, "force": force}
    return Call("call_retry", {"id": execution_id, "force": force}, _value, "retry", given)


def announce_wait(execution_id: int) -> Call[None]:
    """Announce to the replicas that a program waits for the end of an execution."""
    return Call("call_announce_wait", {"id": execution_id}, lambda rows: None)


# --- listings -----------------------------------------------------------------------------------


def execution(execution_id: int) -> Call[values.Execution]:
    """Read one execution. Its value raises NotFoundError."""

    def decode(rows: list[Row]) -> values.Execution:
        if not rows:
            raise NotFoundError(
                f"execution {execution_id} does not exist",
                remedy="its partition may have been dropped after the retention; list the"
                " executions",
            )
        return values.execution(rows[0])

    return Call("show_execution", {"id": execution_id}, decode)


def executions(
    job: str | None = None,
    *,
    scope: str | None = None,
    statuses: Iterable[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
) -> Call[list[values.Execution]]:
    """List executions with plan_time in [since, until), the newest rows first.

    Raises ValueError for an unknown status and an instant without a time zone.
    """
    params = {
        "job": job, "scope": scope, "statuses": _statuses(statuses) or None,
        "since": _aware("since", since), "until": _aware("until", until), "max_rows": limit,
    }  # fmt: skip
    return Call("read_executions", params, lambda rows: [values.execution(row) for row in rows])


def skips(
    job: str | None = None,
    *,
    scope: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
) -> Call[list[values.SkippedRange]]:
    """List skips whose range reaches into [since, until), the latest first."""
    params = {
        "job": job, "scope": scope, "since": _aware("since", since),
        "until": _aware("until", until), "max_rows": limit,
    }  # fmt: skip
    return Call("read_skips", params, lambda rows: [values.skipped_range(row) for row in rows])


def report(name: str, params: Mapping[str, object]) -> Call[list[Row]]:
    """Read the rows of a report (`ledger.reports`)."""
    return Call(name, params, list)


def _statuses(given: Iterable[str]) -> list[str]:
    names = [str(status) for status in given]
    for name in names:
        if name not in Status.__members__:
            remedy = nearest(name, Status.__members__)
            raise ValueError(f"statuses has {name!r}, which is not a status; {remedy}")
    return names


def _aware(name: str, instant: datetime | None) -> datetime | None:
    if instant is not None and instant.utcoffset() is None:
        raise ValueError(f"{name}={instant!r} has no time zone; add tzinfo=UTC")
    return instant
