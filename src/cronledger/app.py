"""Declaring jobs in Python: `App`, `@app.job`, and the `Context` a handler is called with.

Declarations only, so that any module can import this: nothing here connects or reads a schedule.
"""

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypedDict, TypeVar, Unpack
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from cronledger.rules.errors import ConfigurationError, Problem, problems_of
from cronledger.rules.model import CatchUp, Handler, Job, Overlap, ScopeKey, Trigger
from cronledger.rules.outcome import Discard, LeaseLost, Result, Retry

__all__ = ["App", "Bound", "Context", "Discard", "LeaseLost", "Result", "Retry", "bind"]

Function = Callable[..., Any]
Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]
Length = str | timedelta
F = TypeVar("F", bound=Function)

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


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
    run_timeout: Length
    stale_timeout: Length
    allow_stale_reentry: bool
    max_attempts: int
    retry_backoff: Sequence[Length]
    retry_jitter: float
    scope_kind: str
    scopes: Sequence[str] | Provider | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The execution a handler is called for.

    `plan_time` is the nominal UTC instant, the same in every attempt; `attempt` counts from 1. With
    `execution_id` as idempotency key, effects elsewhere can be made once.
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
    _cancel: threading.Event = field(repr=False, compare=False)
    _held: Callable[[], bool] = field(repr=False, compare=False)

    @property
    def scope(self) -> ScopeKey:
        """The (job, scope) this execution is of."""
        return ScopeKey(self.job, self.scope_kind, self.scope_id)

    @property
    def cancelled(self) -> bool:
        """Whether the work should stop: cancelled, timed out, lease lost or the runner drains."""
        return self._cancel.is_set()

    def heartbeat(self) -> None:
        """Return while the lease is held; raise LeaseLost once it is not.

        The runner renews the lease by itself. This only asks what it knows, in memory, and may be
        called from any thread, as often as is convenient.
        """
        if not self._held():
            raise LeaseLost(f"the lease of execution {self.execution_id} is no longer held")


@dataclass(frozen=True, slots=True)
class Bound:
    """A handler and how it is called: `bound(context)` calls it with or without the context.

    `is_async`: the call answers a coroutine to await; otherwise it blocks its thread.
    """

    function: Function
    is_async: bool
    takes_context: bool

    def __call__(self, context: Context) -> Any:
        return self.function(context) if self.takes_context else self.function()


def bind(function: Function) -> Bound:
    """Answer how `function` is called as a handler.

    Its first positional parameter receives the Context when it is named `ctx` or annotated as
    `Context`. Raises TypeError for what cannot be called so: a class, a generator, a function with
    any other parameter that has no default.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"{name} is not a function; a handler is a `def` or an `async def`")
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(f"{name} yields; a handler returns its result")
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and _is_context(parameters[0])
    for parameter in parameters[1:] if takes_context else parameters:
        if parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"{name} needs `{parameter.name}`, which no handler is given; the first parameter "
                "may be `ctx`, and others need defaults (the payload is `ctx.payload`)"
            )
    return Bound(function, inspect.iscoroutinefunction(called), takes_context)


def _is_context(parameter: inspect.Parameter) -> bool:
    if parameter.kind not in _POSITIONAL:
        return False
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotated = annotation.strip("'\" ").rpartition(".")[2] == Context.__name__
    else:
        annotated = annotation is Context
    return parameter.name == "ctx" or annotated


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
    return deploy
