"""Declaring jobs in Python: `App`, `@app.job`, and the `Context` a handler is called with.

Declarations only, so that any module can import this: nothing here connects or reads a schedule.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from cronledger.binding import Bound, Function, bind
from cronledger.cancellation import Cancelled, CancelToken
from cronledger.rules.limits import LARGEST_BIGINT
from cronledger.rules.model import (
    CatchUp,
    Handler,
    Job,
    Overlap,
    ScopeKey,
    Trigger,
)
from cronledger.rules.outcome import Discard, LeaseLost, Result, Retry
from cronledger.rules.problems import ConfigurationError, Problem, problems_of

__all__ = [
    "App", "Bound", "CancelToken", "Cancelled", "Context", "Discard", "LeaseLost", "Result",
    "Retry", "Transaction", "bind",
]  # fmt: skip

Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]
Length = str | timedelta
F = TypeVar("F", bound=Function)

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Policies(TypedDict, total=False):
    """What `@app.job` takes besides schedule and name; the words and meanings of `Job`."""

    description: str | None
    timezone: str
    day_or: bool
    dst_gap: Literal["shift", "skip"]
    dst_fold: Literal["first", "both"]
    schedule_delay: Length
    jitter: Length
    starts_at: datetime | str | None
    ends_at: datetime | str | None
    grace: Length
    catch_up: CatchUp | Literal["skip", "latest", "all"]
    catch_up_window: Length
    catch_up_limit: int
    overlap: Overlap | Literal["skip", "wait", "allow", "replace"]
    max_running: int | None
    queue: str
    payload: Any
    run_timeout: Length | None
    stale_timeout: Length
    allow_stale_reentry: bool
    max_attempts: int
    retry_backoff: Sequence[Length]
    retry_jitter: float
    scope_kind: str
    scopes: Sequence[str] | Provider | None


class Transaction(Protocol):
    """What `ctx.transaction()` answers: `with` it in a sync handler, `async with` in an async one;
    a psycopg connection comes out."""

    def __enter__(self) -> Any: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The execution a handler is called for.

    `plan_time` is the nominal UTC instant, the same in every attempt; `attempt` counts from 1. With
    `execution_id` as idempotency key, effects elsewhere can be made once. `payload` is the JSON as
    it was given; a handler's parameter `payload` is the validated value.
    """

    execution_id: int
    job: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    trigger: Trigger
    attempt: int
    payload: Any
    lease_token: UUID = field(repr=False)
    runner_id: str
    cancel_scope: CancelToken = field(repr=False, compare=False)
    _held: Callable[[], bool] = field(repr=False, compare=False)
    _transaction: Callable[[], Transaction] | None = field(default=None, repr=False, compare=False)

    @property
    def scope(self) -> ScopeKey:
        """The (job, scope) this execution is of."""
        return ScopeKey(self.job, self.scope_kind, self.scope_id)

    @property
    def cancelled(self) -> bool:
        """Whether the work should stop: cancelled, timed out, lease over or the runner drains."""
        return self.cancel_scope.cancelled

    def heartbeat(self) -> None:
        """Return while the lease is held; raise LeaseLost once it is not.

        The runner renews the lease by itself. This only asks what it knows, in memory, and may be
        called from any thread, as often as is convenient.
        """
        if not self._held():
            raise LeaseLost(f"the lease of execution {self.execution_id} is no longer held")

    def transaction(self) -> Transaction:
        """A transaction in the ledger's database that holds this execution's SUCCESS too.

        `async with ctx.transaction() as conn:` (`with` in a sync handler) answers a psycopg
        connection. Leaving the block commits nothing yet: the transaction is committed, together
        with SUCCESS and what the handler returned, when the handler returns; it is rolled back
        when the block or the handler raises, when the handler is stopped, and when the lease is
        lost. One at a time: raises RuntimeError while another is open, and where no runner is.
        """
        if self._transaction is None:
            raise RuntimeError("ctx.transaction() needs a runner; this Context has none")
        return self._transaction()


class App:
    """The jobs that one program declares.

    `deploy`: the ordered version of the deployment, an integer or an instant with its zone (kept as
    whole seconds since 1970); an older deploy does not overwrite a newer one's jobs.
    """

    def __init__(self, name: str | None = None, *, deploy: int | datetime | None = None) -> None:
        self.name = name
        self.deploy = _deploy(deploy)
        self._jobs: dict[str, Job] = {}
        self._handlers: dict[str, Function] = {}
        self._providers: dict[str, Provider] = {}

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The declared jobs by name, in the order of declaration."""
        return MappingProxyType(self._jobs)

    @property
    def handlers(self) -> Mapping[str, Function]:
        """The decorated functions by name of the job."""
        return MappingProxyType(self._handlers)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """By name of the job, the functions (sync or async) that answer its scope_ids."""
        return MappingProxyType(self._providers)

    def job(
        self, schedule: str | None = None, *, name: str | None = None, **policies: Unpack[Policies]
    ) -> Callable[[F], F]:
        """Declare the decorated function as a job; it stays callable as before.

        Without `schedule` it runs only when triggered or enqueued; `name` defaults to the
        function's. `scopes` is a list of scope_ids or a function without parameters that answers
        them. Raises ConfigurationError for policies that cannot be read and for a name that is
        taken, TypeError for a function that cannot be a handler (see `bind`).
        """
        if callable(schedule):
            raise TypeError("write `@app.job()` with parentheses; the schedule goes between them")

        def declare(function: F) -> F:
            self._declare(function, schedule, name, policies)
            return function

        return declare

    def _declare(
        self, function: Function, schedule: str | None, name: str | None, policies: Policies
    ) -> None:
        bind(function)
        where = _place(function)
        chosen = name if name is not None else _name(function)
        if chosen in self._jobs:
            taken = _place(self._handlers[chosen])
            message, remedy = f"is taken by {taken}", "write name=… for one of them"
            raise _refusal(where, chosen, "name", message, remedy)
        values: dict[str, Any] = dict(policies)
        for decided in values.keys() & {"handler", "target"}:
            raise _refusal(where, chosen, decided, "follows from the function", "remove it")
        scopes = values.get("scopes")
        if callable(scopes):
            _check_provider(scopes)
            del values["scopes"]
        if "payload" in values:
            values["payload"] = _plain(where, chosen, values["payload"])
        values |= {"name": chosen, "schedule": schedule}
        values |= {"handler": Handler.PYTHON, "target": {"function": where}}
        try:
            job = Job.model_validate(values)
        except ValidationError as exc:
            known = {"name", "schedule", *Policies.__annotations__}
            raise ConfigurationError(
                problems_of(exc, where=where, job=chosen, known=known)
            ) from None
        self._jobs[chosen] = job
        self._handlers[chosen] = function
        if callable(scopes):
            self._providers[chosen] = scopes


def _place(function: Function) -> str:
    while isinstance(function, partial):
        function = function.func
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"


def _name(function: Function) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{function!r} has no name; write @app.job(..., name=…)")
    return name


def _plain(where: str, job: str, payload: object) -> Any:
    try:
        return to_jsonable_python(payload)
    except ValueError as exc:
        message, remedy = f"is not JSON: {exc}", "hand over plain values"
        raise _refusal(where, job, "payload", message, remedy) from exc


def _refusal(where: str, job: str, field: str, message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Problem(where, job, field, None, message, remedy)])


def _check_provider(provider: Function) -> None:
    for parameter in inspect.signature(provider).parameters.values():
        if parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"the scope provider {_place(provider)} needs `{parameter.name}`; it is called "
                "without arguments"
            )


def _deploy(deploy: int | datetime | None) -> int | None:
    if isinstance(deploy, datetime):
        if deploy.utcoffset() is None:
            raise ValueError(f"deploy={deploy!r} has no zone; write tzinfo=UTC")
        return int(deploy.timestamp())
    if deploy is not None and (not isinstance(deploy, int) or isinstance(deploy, bool)):
        raise TypeError(f"deploy={deploy!r} is neither an integer nor a datetime")
    if deploy is not None and abs(deploy) > LARGEST_BIGINT:
        raise ValueError(f"deploy={deploy!r} does not fit into 63 bits; write a smaller one")
    return deploy
