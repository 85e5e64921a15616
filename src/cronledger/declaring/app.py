"""Declare jobs in Python: `App`, `@app.job`, and the `Context` that a handler receives.

This module only declares. It does not connect to a database, and imports what reads schedules with
the first declaration, so that an import is cheap.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack
from uuid import UUID

from pydantic_core import to_jsonable_python

from cronledger.declaring.binding import Bound, bind
from cronledger.declaring.callables import Function, handled, place
from cronledger.declaring.cancellation import Cancelled, CancelToken
from cronledger.declaring.handles import JobFunction, handle_of
from cronledger.declaring.middleware import Middleware, Wrapper, checked, fitting
from cronledger.declaring.policies import Policies, Provider
from cronledger.declaring.resources import Lifespan, check_lifespan
from cronledger.rules import calendar_spec, retry_filters
from cronledger.rules import channels as channel_rules
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.channels import Channel
from cronledger.rules.limits import LARGEST_BIGINT
from cronledger.rules.model import (
    Handler,
    Job,
    ScopeKey,
    Trigger,
    Window,
)
from cronledger.rules.outcome import Discard, LeaseLost, NotReady, Result, Retry
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.rules.progress import Progress
from cronledger.rules.progress import checked as checked_progress
from cronledger.rules.requirements import UpstreamResult, UpstreamResults

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.rows import TupleRow

__all__ = [
    "App", "Bound", "CancelToken", "Cancelled", "Context", "Discard", "JobFunction", "LeaseLost",
    "Lifespan", "Middleware", "NotReady", "Result", "Retry", "Transaction", "Wrapper", "bind",
]  # fmt: skip

A = ParamSpec("A")
R = TypeVar("R")

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
    as it was given, and the handler's parameter `payload` is the validated value. `window` is the
    interval of time to process, if the job has `windows`; otherwise None. `resources` is the value
    that the lifespan of the App yielded, or None if the App has none.
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
    window: Window | None = None
    resources: Any = field(default=None, repr=False, compare=False)
    _held: Callable[[], bool] = field(repr=False, compare=False)
    _upstreams: UpstreamResults = field(default=UpstreamResults({}), repr=False, compare=False)
    _transaction: Callable[["Context"], Transaction] | None = field(
        default=None, repr=False, compare=False
    )
    _report: Callable[[Progress], None] | None = field(default=None, repr=False, compare=False)

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

        The runner renews the lease automatically. This method only reads the state of the runner
        in memory. It is cheap, and safe to call from any thread.
        """
        if not self._held():
            raise LeaseLost(f"the lease of execution {self.execution_id} is lost")

    def progress(self, done: int, total: int | None = None, text: str | None = None) -> None:
        """Report that `done` of `total` units of work are done, and what the handler is doing.

        `total=None`: not known. The runner keeps the newest report, and stores it with a heartbeat,
        at most every 2 s. So the method is cheap, sends nothing, and is safe to call from any
        thread, also for each unit of a long loop. A `done` above `total` counts as `total`.
        Passwords in the text are masked, and it is cut after 200 characters. Without a runner, as
        in a test of the function alone, the report is only checked.

        Raises LeaseLost as `check_lease` does, TypeError unless the numbers are integers, and
        ValueError if one is negative.
        """
        self.check_lease()
        report = checked_progress(done, total, text)
        if self._report is not None:
            self._report(report)

    def upstream(self, job: str) -> Sequence[UpstreamResult]:
        """Return the plan_times of a required job for which this execution waited, with results.

        They are in the order of the plan_times, at most the newest 1,000, as of the start of the
        attempt. An execution that did not wait, such as a triggered one, has none.

        Raises LookupError if the job does not require `job`, and the error of the ledger if it
        could not be read.
        """
        if self._upstreams.error is not None:
            raise self._upstreams.error
        if job not in self._upstreams.by_job:
            raise LookupError(f"{job!r} is not in requires or after of the job {self.job!r}")
        return self._upstreams.by_job[job]

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
        return self._transaction(self)


class App:
    """The jobs that one program declares.

    `deploy`: the version of the deployment, an integer or an aware datetime, which is stored as
    seconds since 1970. An older deploy does not overwrite the jobs of a newer one.
    `lifespan`: a function that is called with the App, and returns an async context manager. Each
    replica enters it before its first claim, and leaves it after its last handler has ended. The
    value that it yields reaches handlers as `ctx.resources`, and by the types of their parameters.
    `middleware`: functions `(ctx, call_next)` around all handlers, the outermost first.
    `channels`: where alerts are sent, by name, such as `{"ops": Slack(url=…)}`; see
    `cronledger.channels`.
    `calendars`: the calendars that jobs name in `calendar`, by name, such as
    `{"de": CalendarSpec(weekend=("Saturday", "Sunday"), holidays="DE-BE")}`, or a dict with the
    same keys as `[calendars.NAME]` in a file. The path of an iCalendar file must be absolute.

    Raises TypeError for a lifespan or a middleware that cannot be one, and ConfigurationError for a
    channel or a calendar that is invalid.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        deploy: int | datetime | None = None,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Wrapper | Middleware] = (),
        channels: Mapping[str, Channel] | None = None,
        calendars: Mapping[str, CalendarSpec | Mapping[str, Any]] | None = None,
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
        self._channels = {
            name: channel_rules.checked(name, channel) for name, channel in (channels or {}).items()
        }
        self._calendars = {
            calendar: calendar_spec.read(calendar, declared, name)
            for calendar, declared in (calendars or {}).items()
        }

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The declared jobs by name, in the order of declaration."""
        return MappingProxyType(self._jobs)

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The declared channels by name."""
        return MappingProxyType(self._channels)

    @property
    def calendars(self) -> Mapping[str, CalendarSpec]:
        """The declared calendars by name."""
        return MappingProxyType(self._calendars)

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
    ) -> Callable[[Callable[A, R]], JobFunction[A, R]]:
        """Declare the decorated function as a job, and return the handle of this job.

        The handle is called like the function. It has the methods `enqueue`, `enqueue_many` and
        `trigger`, and the same with `_async`: see `JobHandle`. One function may be declared as
        several jobs, each with a handle of its own:
        `eu = app.job("@every 90s", name="sync-eu", payload="eu")(sync)`.

        Args:
            schedule: Such as `*/5 * * * *`, `@daily`, `@every 90s`. None: only when triggered.
            name: Identity of the job. Default: the name of the function.
            middleware: Functions `(ctx, call_next)` around the handler, inside those of the App.
            description: A description for people. Default: the first line of the docstring.
            owner: The person or team that is responsible for the job.
            labels: Texts by which listings are filtered, such as {"team": "data"}.
            runbook: URL of instructions for people, which the page and alerts of the job show.
            notify: The channel that gets alerts, or rules such as Notify(channel="ops", after=3).
            ping: URL of a check of Healthchecks, or of a service with the same protocol.
            timezone: Time zone of the schedule. Default: "UTC".
            calendar: Name of a calendar, whose excluded dates the job leaves out.
            on_excluded: A firing on an excluded date: `skip` it, or move it to the same time of the
                `next` or `previous` date that is not excluded. Default: "skip".
            day_or: How day of month and day of week combine. Default: True.
            dst_gap: A fixed time that a clock change skips: run right after the gap, or not at all.
                Default: "shift".
            dst_fold: A fixed time that a clock change repeats: run the first time, or both times.
                Default: "first".
            schedule_delay: Time between plan_time and the earliest start.
            jitter: Starts are spread over this time after plan_time + schedule_delay.
            starts_at: No plan_time lies before this time.
            ends_at: No plan_time lies after this time.
            grace: How late the newest plan_time may start before it counts as missed. Default: 1m.
            catch_up: Missed plan_times: `skip` them, run the `latest`, or run `all`, oldest first.
                Default: "latest".
            catch_up_window: A plan_time that is missed for longer than this never runs. Default:
                1d.
            catch_up_limit: With `catch_up = all`, at most this many run: the newest ones. Default:
                100.
            overlap: A plan_time that is due while its (job, scope) is RUNNING: `skip` it, let it
                `wait`, `allow` it to run too, or `replace` (cancel the running one, then start).
                Default: "skip".
            windows: `True`: each execution has a window of time, which begins where that of the
                last SUCCESS of its scope ended, and ends at its plan_time.
            requires: Jobs that must have succeeded first: names, or Requirement(job=…,
                scope="same").
            after: A job whose plan_times this job has, instead of a schedule of its own.
            wait_at_most: How long an execution waits for `requires` and `after`, and for a handler
                that is not ready.
            start_by: Deadline of the start: a wall time in the time zone of the job, such as
                `06:00`, or a duration after plan_time, such as `15m`.
            finish_by: Deadline of the success, written like `start_by`.
            expect_duration: How long an attempt may take: a duration, or a multiple of a quantile
                of the last successful executions, such as `2*p95`.
            max_running: Maximum number of executions of this job that are RUNNING at once, over all
                scopes and replicas.
            queue: Only runners that serve this queue run the job. Default: "default".
            on: Labels such as `role=web,dc=fra` or `host=web1`.
            every: Labels such as `role=web`.
            observed: `True`, beside a handler: another scheduler fires the job until `cronledger
                adopt` moves it to replicas.
            payload: JSON that is passed to the handler.
            run_timeout: An attempt is stopped after this time. None: no limit. Default: 1h.
            stale_timeout: Length of the lease, which is renewed every third of it. Default: 1m.
            allow_stale_reentry: `True` for reentrant work: a stale lease may be stolen, and the
                work runs again.
            max_attempts: Maximum number of attempts, including the first. Default: 1.
            retry_backoff: Time before attempt 2, 3, …; the last value repeats. Default: 1m, 5m,
                15m.
            retry_jitter: A random time of up to this share of the backoff, 0 to 1, is added.
            retry_on: Only these exceptions are retried: classes, their names, or error codes.
            never_retry_on: These are not retried, even if `retry_on` has them.
            not_ready_on: A failure that matches one of these means that the work cannot begin yet:
                the execution waits and is tried again, and the attempt does not count.
            not_ready_after: How long an execution waits after a failure of `not_ready_on`.
            keep_output: How long the ledger keeps payload, result, output, key and messages of an
                execution after its end.
            capture_output: `True`: the output of the handler is stored, and shown while it runs.
                Default: True.
            scope_kind: Kind of the job's scopes, such as `tenant`. Default: "global".
            scopes: The scope_ids, or a function without parameters that returns them.

        Raises:
            ConfigurationError: A policy is invalid, the name is taken, or each firing would fail,
                because the handler requires another payload. It has all of these problems.
            TypeError: The function cannot be a handler (see `bind`), or a middleware has the
                other kind (`def`, `async def`) than the function.
        """
        if callable(schedule):
            raise TypeError("write `@app.job()` with parentheses, and the schedule between them")

        inside = checked(middleware)

        def declare(function: Callable[A, R]) -> JobFunction[A, R]:
            handle: JobFunction[A, R] = self._declare(function, schedule, name, policies, inside)
            return handle

        return declare

    def _declare(
        self,
        function: Function,
        schedule: str | None,
        name: str | None,
        policies: Policies,
        inside: tuple[Wrapper | Middleware, ...],
    ) -> Any:
        from cronledger.rules import validation  # noqa: PLC0415 - reads schedules

        function = handled(function)
        bound = bind(function, resources=self.lifespan is not None)
        bound = replace(bound, middleware=fitting((*self.middleware, *inside), function))
        where = place(function)
        chosen = _name(function) if name is None else _text(name)
        values: dict[str, Any] = dict(policies)
        scopes = values.get("scopes")
        if callable(scopes):
            _check_provider(scopes)
            del values["scopes"]
        problems = [
            Problem(where, chosen, field, None, message, remedy)
            for field, message, remedy in (*self._taken(chosen), *_translated(values))
        ]
        if bound.payload is not None and all(problem.field != "payload" for problem in problems):
            given = values.get("payload")
            is_scheduled = schedule is not None or bool(values.get("after"))
            refusal = bound.payload.problem(given, scheduled=is_scheduled)
            if refusal is not None:
                problems.append(Problem(where, chosen, "payload", None, *refusal))
        values |= {"name": chosen, "schedule": schedule}
        values |= {"handler": Handler.PYTHON, "target": {"python": where}}
        if (summary := _summary(function)) is not None:
            values.setdefault("description", summary)
        if bound.payload is not None and (schema := bound.payload.schema()) is not None:
            values["payload_schema"] = schema
        job, found = validation.examined(
            values, where=where, has_provider=callable(scopes),
            known={"name", "schedule", *Policies.__annotations__},
        )  # fmt: skip
        problems += [problem for problem in found if not problem.warning]
        if job is None or problems:
            raise ConfigurationError(problems)
        self._jobs[chosen] = job
        self._handlers[chosen] = function
        self._bound[chosen] = bound
        if callable(scopes):
            self._providers[chosen] = scopes
        return handle_of(function, job, bound)

    def _taken(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Yield a problem (field, message, remedy) if a job has this name."""
        if name in self._jobs:
            taken = place(self._handlers[name])
            yield "name", f"is already used by {taken}", "set name=… for one of them"


def _name(function: Function) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{function!r} has no name; set @app.job(..., name=…)")
    return name


def _summary(function: Function) -> str | None:
    """Return the first line of the function's own docstring, or None."""
    doc = function.__doc__ if inspect.isroutine(function) else None
    return next((line.strip() for line in (doc or "").splitlines() if line.strip()), None)


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} is not text; write it in quotes")
    return name


def _translated(values: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Replace Python objects in the policies of `@app.job` by the values of `Job`.

    Remove the policies that have none, and yield a problem (field, message, remedy) for each.
    """
    for decided in sorted(values.keys() & {"handler", "target", "payload_schema"}):
        del values[decided]
        yield decided, "is derived from the function", "remove it"
    try:
        if "payload" in values:
            values["payload"] = to_jsonable_python(values["payload"])
    except ValueError as exc:
        del values["payload"]
        yield "payload", f"is not JSON: {exc}", "pass plain values"
    for policy in retry_filters.FILTERS:
        if not isinstance(items := values.get(policy), list | tuple):
            continue
        values[policy] = [
            retry_filters.name_of(item) if isinstance(item, type) else item for item in items
        ]
        if problems := [problem for item in items for problem in _failure(item)]:
            del values[policy]
        yield from ((policy, *problem) for problem in problems)


def _failure(item: object) -> Iterator[tuple[str, str]]:
    """Yield message and remedy if `item` is a class whose instances no filter can match."""
    if not isinstance(item, type):
        return
    name = retry_filters.name_of(item)
    if not issubclass(item, BaseException):
        yield f"has {name}, which is not an exception class", "remove it"
    elif issubclass(item, Retry | Discard | NotReady | LeaseLost):
        remedy = 'remove it; retry_on = ["retry_requested"] retries only what raises Retry'
        yield f"has {name}, but filters do not apply to it", remedy


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
