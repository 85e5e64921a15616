"""The calls of clients: each is a statement, its parameters, and the value of its rows.

`ledger.senders` has what sends them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Protocol, TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb
from pydantic_core import to_jsonable_python

from cronledger.ledger import audit_trail, queries, values
from cronledger.ledger.refusals import NotFoundError
from cronledger.ledger.reports import Row
from cronledger.rules import durations, storable
from cronledger.rules.model import GLOBAL, Status
from cronledger.rules.problems import PayloadInvalidError, RefusedError, nearest
from cronledger.rules.progress import Progress

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Cancelled = Literal["cancelled", "requested", "already_finished", "busy"]
Retried = Literal["retried", "brought_forward"]
Unskipped = Literal["withdrawn", "shortened", "unchanged"]

ENQUEUING = frozenset({"enqueue", "trigger", "backfill"})
"""The functions that create executions, and take the traceparent of the call."""

MOST_ITEMS = 2_000
"""The items of one scope that a statement enqueues. More make it no faster."""


class Request(Protocol[T_co]):
    """One or more calls that are sent in one transaction.

    `joined` returns the value of all from the values of each.
    """

    @property
    def calls(self) -> "Sequence[Call[Any]]": ...
    def joined(self, values: list[Any]) -> T_co: ...


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """The statement of `sql/NAME.sql`, and its parameters. `decode` returns its rows' value.

    `function`: the function of the ledger that it calls. With `name` None, the parameters are its
    arguments. `arguments`: those by which the audit trail records a refusal of an operator
    function; None: the parameters. `enqueues`: the number of executions that it requests. Then it
    has the parameters `job` and `traceparent`, and the sender makes a span of it.
    """

    name: str | None
    params: Mapping[str, Any]
    decode: Callable[[list[Row]], T]
    function: str | None = None
    arguments: Mapping[str, object] | None = None
    enqueues: int = 0

    @property
    def calls(self) -> "Sequence[Call[T]]":
        """The call itself."""
        return (self,)

    def joined(self, values: list[T]) -> T:
        """Return its value."""
        return values[0]

    def statement(self, schema: str) -> bytes:
        """Return the text that is sent."""
        if self.name is not None:
            return queries.encoded(self.name, schema)
        assert self.function is not None
        return queries.function_call(self.function, tuple(self.params), schema)

    def by(self, actor: str | None) -> "Call[T]":
        """Return the call with the person or program that requests it. None: the session's role."""
        if self.function is None:
            return self
        return replace(self, params={**self.params, "requested_by": actor})

    def refused(self, message: str) -> "Call[None] | None":
        """Return the call that records its refusal, or None if it is not recorded."""
        if self.function not in audit_trail.OPERATOR_FUNCTIONS:
            return None
        arguments = self.params if self.arguments is None else self.arguments
        actor = self.params.get("requested_by")
        params = audit_trail.refusal(self.function, arguments, message, actor)
        return Call(audit_trail.RECORD, params, lambda rows: None)


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Calls that return a list each. Their value is one list."""

    calls: Sequence[Call[list[T]]]

    def joined(self, values: list[list[T]]) -> list[T]:
        """Return one list of all."""
        return [one for value in values for one in value]


def function(name: str, **arguments: object) -> Call[Row]:
    """Call a function of the ledger with its arguments by name. Its value is the only row."""
    if name not in ENQUEUING:
        return Call(None, arguments, lambda rows: rows[0], name)
    plan_times = arguments.get("plan_times")
    count = len(plan_times) if isinstance(plan_times, list) else 1
    params = {**arguments, "traceparent": None}
    return Call(None, params, lambda rows: rows[0], name, arguments, count)


def value_of(name: str, **arguments: object) -> Call[Any]:
    """Call a function of the ledger that returns one value."""
    return replace(function(name, **arguments), decode=_only_value)


def _only_value(rows: list[Row]) -> Any:
    (value,) = rows[0].values()
    return value


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
    """Enqueue work for a job, and return the id of the execution that does it.

    `payload` is any value that pydantic can write as JSON; None stands for the payload of the
    job. With `key`, the work merges into the PENDING execution of this key. With only a
    `watermark`, the result is None if a success covers it already. A missing scope is created
    if the job permits it. `scope_kind`: by default that of the job. `due_at`: when the work is
    due, by default now; refused with `key` and `watermark`, because what is merged is due now.

    Raises PayloadInvalidError for a payload that is not JSON or is too large, and ValueError
    for a `due_at` without a time zone.
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
) -> Batch[int | None]:
    """Enqueue an item for each payload in one transaction, and return their ids in order.

    `keys`, `scopes` and `watermarks` have an element for each payload. The items of one scope
    and key are merged: their ids are the same. With `scopes`, at most 100,000 items.

    Raises PayloadInvalidError, which names the payload, and ValueError for another number of
    elements.
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
    # The items of several scopes are one call, because the function locks the scopes of one call in
    # their order. Two calls could wait for each other.
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
    return Batch(calls)


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
    """Create one execution of a job, due now, and return its id.

    It is refused if the job is retired or paused (`force`: not if it is paused), if an
    execution is RUNNING and the overlap of the job is skip, and, with `require_runner`, if no
    live replica can run it.

    Raises PayloadInvalidError for a payload that is not JSON or is too large.
    """
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


Until = datetime | timedelta | str
"""An instant, or the time until then, such as `"2h"`."""


def pause(job: str, reason: str | None = None, *, until: Until | None = None) -> Call[bool]:
    """Pause a job until it is resumed, or for a time. Running executions finish.

    `until`: an instant, or the time until then: a timedelta, or a text such as `"2h"`. Return
    False if the job was paused already; then `reason` and `until` are replaced.
    """
    length = durations.parse(until) if isinstance(until, str) else until
    instant = None
    if not isinstance(length, timedelta):
        instant, length = _aware("until", length), None
    given = {"job": job, "reason": reason, "until": length or instant}
    params = {"job": job, "reason": reason, "until": instant, "pause_for": length}
    return Call("call_pause", params, _value, "pause", given)


def resume(job: str) -> Call[bool]:
    """Resume a job. Return False if it was not paused."""
    return value_of("resume", job=job)


def skip(
    job: str,
    plan_time: datetime,
    reason: str,
    *,
    through: datetime | None = None,
    scope: str | None = None,
    scope_kind: str | None = None,
) -> Call[int]:
    """Decide that a firing of a job does not run, and return the id of the planned skip.

    `through`: skip all firings from `plan_time` through this one. `scope`: by default all scopes of
    the job. It is refused if planning has reached `plan_time`, or if another planned skip contains
    some of the firings. If it contains all of them, its id is returned.
    """
    return value_of(
        "skip", job=job, plan_time=_aware("plan_time", plan_time), reason=reason,
        through=_aware("through", through), scope_kind=scope_kind, scope_id=scope,
    )  # fmt: skip


def unskip(skip_id: int) -> Call[Unskipped]:
    """Withdraw a planned skip, and return what became of it.

    `withdrawn`: its firings run. `shortened`: those that planning has reached stay skipped.
    `unchanged`: it was withdrawn already. It is refused if planning has reached all of them.
    """
    return value_of("unskip", skip_id=skip_id)


def plan_pause(
    reason: str,
    *,
    begins: datetime | None = None,
    until: datetime | None = None,
    job: str | None = None,
    queue: str | None = None,
    owner: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Call[int]:
    """Plan a pause of several jobs, and return its id.

    Plan_times due from `begins` (by default now) through `until` (by default `end_pause`) are
    skipped. `job`, `queue`, `owner` and `labels` select the jobs, and all that are given have to
    match; without any, every job is paused.
    """
    return value_of(
        "plan_pause", reason=reason, begins=_aware("begins", begins), until=_aware("until", until),
        job=job, queue=queue, owner=owner, labels=Jsonb(dict(labels)) if labels else None,
    )  # fmt: skip


def change_pause(
    pause_id: int,
    *,
    begins: datetime | None = None,
    until: datetime | Literal["infinity"] | None = None,
    reason: str | None = None,
) -> Call[bool]:
    """Change a pause that has not begun, and return whether anything changed.

    None changes nothing. `until="infinity"`: until `end_pause`. It is refused once the pause has
    begun.
    """
    end = until if until == "infinity" else _aware("until", until)
    return value_of(
        "change_pause", pause_id=pause_id, begins=_aware("begins", begins), until=end,
        reason=reason,
    )  # fmt: skip


def end_pause(pause_id: int) -> Call[bool]:
    """End a pause for all of its jobs, or withdraw it before it begins. False: it was over."""
    return value_of("end_pause", pause_id=pause_id)


def pauses(*, over: bool = False, limit: int = 1000) -> Call[list[values.PlannedPause]]:
    """Return the pauses that are in force or planned, in this order, and with `over` the others."""
    params = {"over": over, "max_rows": limit}
    return Call("list_pauses", params, lambda rows: [values.planned_pause(row) for row in rows])


def adopt(job: str, at: datetime, back: bool, reason: str | None) -> Call[Row]:
    """Move an observed job to replicas, or `back`. `explain.adopting` chooses the instant."""
    return function("adopt", job=job, at=at, back=back, reason=reason)


def preview_adopt(job: str, at: datetime, back: bool) -> Call[Row]:
    """Return what `adopt` would, except the revision. It is refused where `adopt` would be."""
    params = {"job": job, "at": at, "back": back}
    return Call("call_preview_adopt", params, lambda rows: rows[0])


def cancel(execution_id: int) -> Call[Cancelled]:
    """Request that an execution ends, and return what became of the request.

    `cancelled`: it was waiting, and has ended. `requested`: it is RUNNING, and its replica
    stops it. `already_finished`: it had ended. `busy`: its row is locked; call again.
    """
    return value_of("cancel", execution_id=execution_id)


def retry(execution_id: int, *, force: bool = False) -> Call[Retried]:
    """Give a FAILED or CANCELLED execution one more attempt, which is due now.

    `brought_forward`: it was awaiting a retry. It is refused if the end of the last attempt is
    unknown and the job is not reentrant. `force` overrides this.
    """
    return value_of("retry", execution_id=execution_id, force=force)


def retry_many(
    execution_ids: Sequence[int], reason: str | None = None, *, preview: bool = False
) -> Call[list[values.ManyResult]]:
    """Retry up to 1,000 executions as one action, and return what became of each.

    `retried`, or `brought_forward`; `left`: `retry` would refuse it, and `detail` has the reason;
    `busy`: it ended at this moment; `unknown`. With `preview`, nothing changes, and it returns what
    would become of each.
    """
    return _many("retry_many", execution_ids, reason, preview)


def cancel_many(
    execution_ids: Sequence[int], reason: str | None = None, *, preview: bool = False
) -> Call[list[values.ManyResult]]:
    """Cancel up to 1,000 executions as one action, and return what became of each.

    The results are those of `cancel`, and `unknown`. With `preview`, nothing changes, and it
    returns what would become of each.
    """
    return _many("cancel_many", execution_ids, reason, preview)


def _many(
    name: str, execution_ids: Sequence[int], reason: str | None, preview: bool
) -> Call[list[values.ManyResult]]:
    made: Call[Any] = function(
        name, execution_ids=list(execution_ids), reason=reason, preview=preview
    )
    return replace(made, decode=lambda rows: [values.ManyResult(**row) for row in rows])


def announce_wait(execution_id: int) -> Call[None]:
    """Announce to the replicas that a program waits for the end of an execution."""
    return Call("call_announce_wait", {"id": execution_id}, lambda rows: None)


def progress(execution_id: int, token: UUID, report: Progress) -> Call[str]:
    """Report the progress of an execution. Its value is `ok`, `cancel_requested` or `lost`."""
    return Call("call_progress", {"id": execution_id, "token": token, **report._asdict()}, _value)


# --- listings -----------------------------------------------------------------------------------


def execution(execution_id: int) -> Call[values.Execution]:
    """Return one execution. Raises NotFoundError."""

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
    """Return executions with plan_time in [`since`, `until`), the newest rows first.

    `statuses`: such as `["FAILED"]`; by default all. Raises ValueError for an unknown one.
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
    """Return skips whose range reaches into [`since`, `until`), the latest first."""
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
