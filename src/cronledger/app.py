"""Declare jobs in Python: `App`, `@app.job`, and the `Context` that a handler receives.

This module only declares. It neither connects to a database nor parses a schedule, so that an
import is cheap.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from cronledger.binding import Bound, bind
from cronledger.callables import Function, place
from cronledger.cancellation import Cancelled, CancelToken
from cronledger.declared import JobFunction, add_calls
from cronledger.middleware import Middleware, Wrapper, checked, fitting
from cronledger.resources import Lifespan, check_lifespan
from cronledger.rules import retry_filters
from cronledger.rules.channels import Channel, as_job
from cronledger.rules.limits import LARGEST_BIGINT
from cronledger.rules.model import (
    CatchUp,
    Handler,
    Job,
    Overlap,
    ScopeKey,
    Trigger,
)
from cronledger.rules.notify import Notify
from cronledger.rules.outcome import Discard, LeaseLost, Result, Retry
from cronledger.rules.problems import ConfigurationError, Problem, problems_of

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.rows import TupleRow

__all__ = [
    "App", "Bound", "CancelToken", "Cancelled", "Context", "Discard", "JobFunction", "LeaseLost",
    "Lifespan", "Middleware", "Result", "Retry", "Transaction", "Wrapper", "bind",
]  # fmt: skip

Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]
Length = str | timedelta
Failure = type[BaseException] | str
F = TypeVar("F", bound=Function)

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Policies(TypedDict, total=False):
    """The policies of `@app.job`, with the names and meanings of `Job`."""

    description: str | None
    owner: str | None
    labels: Mapping[str, str] | None
    notify: str | Notify | Sequence[str | Notify] | None
    ping: str | None
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
    start_by: time | Length | None
    finish_by: time | Length | None
    expect_duration: Length | None
    max_running: int | None
    queue: str
    payload: Any
    run_timeout: Length | None
    stale_timeout: Length
    allow_stale_reentry: bool
    max_attempts: int
    retry_backoff: Sequence[Length]
    retry_jitter: float
    retry_on: Sequence[Failure] | None
    never_retry_on: Sequence[Failure] | None
    scope_kind: str
    scopes: Sequence[str] | Provider | None


class Transaction(Protocol):
    """The result of `ctx.transaction()`, which yields a psycopg connection.

    Use `async with` in an async handler, and `with` in a sync one.
    """

    def __enter__(self) -> "Connection[TupleRow]": ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None: ...
    async def __aenter__(self) -> "AsyncConnection[TupleRow]": ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The execution for which a handler is called.

    `plan_time` is the nominal UTC instant, the same in every attempt. `attempt` counts from 1. Use
    `execution_id` as the idempotency key of effects outside of the database. `payload` is the JSON
    as it was given, and the handler's parameter `payload` is the validated value. `resources` is
    the value that the lifespan of the App yielded, or None if the App has none.
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
    cancel_token: CancelToken = field(repr=False, compare=False)
    resources: Any = field(default=None, repr=False, compare=False)
    _held: Callable[[], bool] = field(repr=False, compare=False)
    _transaction: Callable[[], Transaction] | None = field(default=None, repr=False, compare=False)

    @property
    def scope(self) -> ScopeKey:
        """The (job, scope) of this execution."""
        return ScopeKey(self.job, self.scope_kind, self.scope_id)

    @property
    def cancelled(self) -> bool:
        """Return whether to stop: cancelled, timed out, lease lost, or drain deadline passed."""
        return self.cancel_token.cancelled

    def check_lease(self) -> None:
        """Raise LeaseLost if the lease is no longer held.

        The runner renews the lease by itself. This method only reads the runner's state in memory.
        It is cheap, and safe to call from any thread.
        """
        if not self._held():
            raise LeaseLost(f"the lease of execution {self.execution_id} is lost")

    def transaction(self) -> Transaction:
        """Return a transaction in the ledger's database that also contains the SUCCESS.

        `async with ctx.transaction() as conn:` yields a psycopg `AsyncConnection`. In a sync
        handler, `with` yields a `Connection`. The end of the block does not commit. When the
        handler returns, the transaction is committed together with SUCCESS and the result. It is
        rolled back if the block or the handler raises, if the handler is stopped, and if the lease
        is lost.

        Raises RuntimeError while another transaction of this execution is open, and if the Context
        belongs to no runner.
        """
        if self._transaction is None:
            raise RuntimeError(
                "ctx.transaction() needs a runner, and this Context has none; in a test, run the "
                "job on a replica of the fixture `ledger`"
            )
        return self._transaction()


class App:
    """The jobs that one program declares.

    `deploy`: the version of the deployment, an integer or an aware datetime, which is stored as
    seconds since 1970. An older deploy does not overwrite the jobs of a newer one.
    `lifespan`: a function that is called with the App, and returns an async context manager. Each
    replica enters it before its first claim, and leaves it after its last handler has ended. The
    value that it yields reaches handlers as `ctx.resources`, and by the types of their parameters.
    `middleware`: functions `(ctx, call_next)` around all handlers, the outermost first.
    `channels`: where alerts are sent, by name, such as `{"ops": Slack(url=…)}`; see
    `cronledger.channels`. Each is a job `alerts.NAME`.

    Raises TypeError for a lifespan or a middleware that cannot be one, and ConfigurationError for a
    channel that is invalid.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        deploy: int | datetime | None = None,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Wrapper | Middleware] = (),
        channels: Mapping[str, Channel] | None = None,
    ) -> None:
        if lifespan is not None:
            check_lifespan(lifespan)
        self.name = name
        self.deploy = _deploy(deploy)
        self.lifespan = lifespan
        self.middleware = checked(middleware)
        self._jobs: dict[str, Job] = {}
        self._handlers: dict[str, Function] = {}
        self._bound: dict[str, Bound] = {}
        self._providers: dict[str, Provider] = {}
        for channel, declared in (channels or {}).items():
            job = as_job(channel, declared)
            self._jobs[job.name] = job

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The declared jobs by name, in the order of declaration."""
        return MappingProxyType(self._jobs)

    @property
    def handlers(self) -> Mapping[str, Function]:
        """The decorated functions by job name."""
        return MappingProxyType(self._handlers)

    @property
    def bound(self) -> Mapping[str, Bound]:
        """The decorated functions by job name, as a replica calls them."""
        return MappingProxyType(self._bound)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The scope providers by job name: sync or async functions that return the scope_ids."""
        return MappingProxyType(self._providers)

    def job(
        self,
        schedule: str | None = None,
        *,
        name: str | None = None,
        middleware: Sequence[Wrapper | Middleware] = (),
        **policies: Unpack[Policies],
    ) -> Callable[[F], JobFunction[F]]:
        """Declare the decorated function as a job. The function stays callable as before.

        It gets the methods `enqueue`, `enqueue_many` and `trigger`, and the same with `_async`: see
        `JobCalls`.

        Args:
            schedule: Such as `*/5 * * * *`, `@daily`, `@every 90s`. None: only when triggered.
            name: Identity of the job. Default: the name of the function.
            middleware: Functions `(ctx, call_next)` around the handler, inside those of the App.
            description: A description for people.
            owner: The person or team that is responsible for the job.
            labels: Texts by which listings are filtered, such as {"team": "data"}.
            notify: The channel that gets alerts, or rules such as Notify(channel="ops", after=3).
            ping: URL of a check of Healthchecks, to which each attempt reports.
            timezone: Time zone of the schedule. Default: UTC.
            day_or: True: day of month or day of week, as in Debian's cron. False: both.
            dst_gap: A time that a clock change skips: "shift" it after the gap, or "skip" it.
            dst_fold: A time that a clock change repeats: run the "first" time, or "both".
            schedule_delay: Time between plan_time and the earliest start.
            jitter: Starts are spread over this time; the delay of one plan_time never changes.
            starts_at: No plan_time lies before this time.
            ends_at: No plan_time lies after this time.
            grace: How late the newest plan_time may start before it is missed. Default: 60 s.
            catch_up: Missed plan_times: "skip", run the "latest" (default), or run "all".
            catch_up_window: A plan_time that is missed for longer never runs. Default: 1 day.
            catch_up_limit: With catch_up="all", at most this many run. Default: 100.
            overlap: While the scope runs: "skip" (default), "wait", "allow" or "replace".
            start_by: Deadline of the start: a wall time or a duration, such as "06:00" or "15m".
            finish_by: Deadline of the success, written like `start_by`.
            expect_duration: A longer attempt is a breach: "90s", or a quantile such as "2*p95".
            max_running: Most executions of this job at once, over all scopes and replicas.
            queue: Only runners that serve this queue run the job. Default: "default".
            payload: JSON that is passed to the handler.
            run_timeout: An attempt is stopped after this time. None: no limit. Default: 1 hour.
            stale_timeout: Length of the lease, renewed every third of it. Default: 60 s.
            allow_stale_reentry: True: the work is reentrant, so a stale lease may be stolen.
            max_attempts: Most attempts, including the first. Default: 1.
            retry_backoff: Times before attempt 2, 3, …; the last one repeats.
            retry_jitter: Share of the backoff, 0 to 1, up to which a random time is added.
            retry_on: Only these exceptions are retried: classes, their names, or error codes.
            never_retry_on: These are not retried, even if `retry_on` has them.
            scope_kind: Kind of the job's scopes, such as "tenant".
            scopes: The scope_ids, or a function without parameters that returns them.

        Raises:
            ConfigurationError: A policy is invalid, or the name is taken.
            TypeError: The function cannot be a handler (see `bind`), or a middleware has the
                other kind (`def`, `async def`) than the function.
        """
        if callable(schedule):
            raise TypeError("write `@app.job()` with parentheses, and the schedule between them")

        inside = checked(middleware)

        def declare(function: F) -> JobFunction[F]:
            self._declare(function, schedule, name, policies, inside)
            return cast("JobFunction[F]", function)

        return declare

    def _declare(
        self,
        function: Function,
        schedule: str | None,
        name: str | None,
        policies: Policies,
        inside: tuple[Wrapper | Middleware, ...],
    ) -> None:
        bound = bind(function, resources=self.lifespan is not None)
        bound = replace(bound, middleware=fitting((*self.middleware, *inside), function))
        where = place(function)
        chosen = name if name is not None else _name(function)
        if chosen in self._jobs:
            taken = place(self._handlers[chosen]) if chosen in self._handlers else "a channel"
            message, remedy = f"is already used by {taken}", "set name=… for one of them"
            raise _refusal(where, chosen, "name", message, remedy)
        values: dict[str, Any] = dict(policies)
        for decided in values.keys() & {"handler", "target", "payload_schema"}:
            raise _refusal(where, chosen, decided, "is derived from the function", "remove it")
        scopes = values.get("scopes")
        if callable(scopes):
            _check_provider(scopes)
            del values["scopes"]
        if "payload" in values:
            values["payload"] = _plain(where, chosen, values["payload"])
        for policy in retry_filters.FILTERS:
            if isinstance(items := values.get(policy), list | tuple):
                values[policy] = [_failure(where, chosen, policy, item) for item in items]
        values |= {"name": chosen, "schedule": schedule}
        values |= {"handler": Handler.PYTHON, "target": {"python": where}}
        if bound.payload is not None and (schema := bound.payload.schema()) is not None:
            values["payload_schema"] = schema
        try:
            job = Job.model_validate(values)
        except ValidationError as exc:
            known = {"name", "schedule", *Policies.__annotations__}
            raise ConfigurationError(
                problems_of(exc, where=where, job=chosen, known=known)
            ) from None
        self._jobs[chosen] = job
        self._handlers[chosen] = function
        self._bound[chosen] = bound
        add_calls(function, job, bound)
        if callable(scopes):
            self._providers[chosen] = scopes


def _name(function: Function) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{function!r} has no name; set @app.job(..., name=…)")
    return name


def _plain(where: str, job: str, payload: object) -> Any:
    try:
        return to_jsonable_python(payload)
    except ValueError as exc:
        message, remedy = f"is not JSON: {exc}", "pass plain values"
        raise _refusal(where, job, "payload", message, remedy) from exc


def _failure(where: str, job: str, field: str, item: object) -> object:
    """Return an exception class as its name, and anything else as it is."""
    if not isinstance(item, type):
        return item
    name = retry_filters.name_of(item)
    if not issubclass(item, BaseException):
        message = f"has {name}, which is not an exception class"
        raise _refusal(where, job, field, message, "remove it")
    if issubclass(item, Retry | Discard | LeaseLost):
        message = f"has {name}, but filters do not apply to it"
        remedy = 'remove it; retry_on = ["retry_requested"] retries only what raises Retry'
        raise _refusal(where, job, field, message, remedy)
    return name


def _refusal(where: str, job: str, field: str, message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Problem(where, job, field, None, message, remedy)])


def _check_provider(provider: Function) -> None:
    for parameter in inspect.signature(provider).parameters.values():
        if parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"the scope provider {place(provider)} is called without arguments; give "
                f"`{parameter.name}` a default"
            )


def _deploy(deploy: int | datetime | None) -> int | None:
    if isinstance(deploy, datetime):
        if deploy.utcoffset() is None:
            raise ValueError(f"deploy={deploy!r} has no time zone; add tzinfo=UTC")
        return int(deploy.timestamp())
    if deploy is not None and (not isinstance(deploy, int) or isinstance(deploy, bool)):
        raise TypeError(f"deploy={deploy!r} is neither an integer nor a datetime; use one of them")
    if deploy is not None and abs(deploy) > LARGEST_BIGINT:
        raise ValueError(f"deploy={deploy!r} does not fit into 63 bits; use a smaller number")
    return deploy
