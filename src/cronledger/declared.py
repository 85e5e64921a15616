"""The methods that `@app.job` gives a function: `enqueue`, `enqueue_many` and `trigger`.

This module neither connects to a database nor imports a driver before one of them is called.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload
from uuid import UUID

from cronledger.binding import Bound, PayloadInvalidError
from cronledger.rules.model import GLOBAL, Job

if TYPE_CHECKING:
    from cronledger.ledger.callers import AsyncCaller, SyncCaller
    from cronledger.ledger.calls import Call, JsonText
    from cronledger.ledger.senders import AsyncSender, HasSender, Sender

F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
N = TypeVar("N")
N_co = TypeVar("N_co", covariant=True)


# --- for type checkers ----------------------------------------------------------------------------


class _TakesPayload(Protocol[P_contra]):
    def __call__(self, *, payload: P_contra) -> object: ...


class _TakesContextAndPayload(Protocol[P_contra]):
    def __call__(self, ctx: Any, /, *, payload: P_contra) -> object: ...


class _TakesPayloadAndResources(Protocol[P_contra]):
    def __call__(self, payload: P_contra, *resources: Any, **more: Any) -> object: ...


class _TakesContextPayloadAndResources(Protocol[P_contra]):
    def __call__(self, ctx: Any, /, payload: P_contra, *resources: Any, **more: Any) -> object: ...


class _Declared(Protocol[F_co]):
    @property
    def __call__(self) -> F_co:
        """The function as it was declared."""


# Only a call with a watermark may return None instead of an id.


class Enqueue(Protocol[P_contra, C_contra, R_co, N_co]):
    """Enqueue work for the job: see `JobCalls.enqueue`."""

    @overload
    def __call__(
        self,
        payload: P_contra | None = None,
        *,
        conn: C_contra,
        key: str | None = None,
        scope: str = GLOBAL,
        group_id: UUID | None = None,
        due_at: datetime | None = None,
    ) -> R_co: ...
    @overload
    def __call__(
        self,
        payload: P_contra | None = None,
        *,
        conn: C_contra,
        key: str | None = None,
        scope: str = GLOBAL,
        watermark: int | None,
        group_id: UUID | None = None,
    ) -> N_co: ...


class EnqueueMany(Protocol[P_contra, C_contra, R_co, N_co]):
    """Enqueue an item for each payload: see `JobCalls.enqueue_many`."""

    @overload
    def __call__(
        self,
        payloads: Iterable[P_contra | None],
        *,
        conn: C_contra,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        group_id: UUID | None = None,
    ) -> R_co: ...
    @overload
    def __call__(
        self,
        payloads: Iterable[P_contra | None],
        *,
        conn: C_contra,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        watermarks: Sequence[int | None] | None,
        group_id: UUID | None = None,
    ) -> N_co: ...


class TriggerNow(Protocol[P_contra, C_contra, R_co]):
    """Create one execution, due now: see `JobCalls.trigger`."""

    def __call__(
        self,
        payload: P_contra | None = None,
        *,
        conn: C_contra,
        scope: str = GLOBAL,
        force: bool = False,
        require_runner: bool = False,
    ) -> R_co: ...


# Each descriptor derives the type of the payload from the type of the function. A handler without a
# parameter `payload` may read any JSON from its Context.


class _Enqueue(Generic[C, R, N]):
    @overload
    def __get__(
        self, function: _Declared[_TakesPayload[P]], owner: object
    ) -> Enqueue[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesContextAndPayload[P]], owner: object
    ) -> Enqueue[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesPayloadAndResources[P]], owner: object
    ) -> Enqueue[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesContextPayloadAndResources[P]], owner: object
    ) -> Enqueue[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[Callable[..., Any]], owner: object
    ) -> Enqueue[Any, C, R, N]: ...
    def __get__(self, function: Any, owner: object) -> Any:
        raise NotImplementedError


class _EnqueueMany(Generic[C, R, N]):
    @overload
    def __get__(
        self, function: _Declared[_TakesPayload[P]], owner: object
    ) -> EnqueueMany[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesContextAndPayload[P]], owner: object
    ) -> EnqueueMany[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesPayloadAndResources[P]], owner: object
    ) -> EnqueueMany[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesContextPayloadAndResources[P]], owner: object
    ) -> EnqueueMany[P, C, R, N]: ...
    @overload
    def __get__(
        self, function: _Declared[Callable[..., Any]], owner: object
    ) -> EnqueueMany[Any, C, R, N]: ...
    def __get__(self, function: Any, owner: object) -> Any:
        raise NotImplementedError


class _Trigger(Generic[C, R]):
    @overload
    def __get__(
        self, function: _Declared[_TakesPayload[P]], owner: object
    ) -> TriggerNow[P, C, R]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesContextAndPayload[P]], owner: object
    ) -> TriggerNow[P, C, R]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesPayloadAndResources[P]], owner: object
    ) -> TriggerNow[P, C, R]: ...
    @overload
    def __get__(
        self, function: _Declared[_TakesContextPayloadAndResources[P]], owner: object
    ) -> TriggerNow[P, C, R]: ...
    @overload
    def __get__(
        self, function: _Declared[Callable[..., Any]], owner: object
    ) -> TriggerNow[Any, C, R]: ...
    def __get__(self, function: Any, owner: object) -> Any:
        raise NotImplementedError


class JobFunction(_Declared[F_co], Protocol[F_co]):
    """What `@app.job` returns, as type checkers see it: the function, with methods of its job.

    It is the function itself, with the methods of `JobCalls` as attributes.
    """

    __name__: str
    __qualname__: str
    enqueue: ClassVar[_Enqueue["HasSender[Sender] | SyncCaller", int, int | None]]
    enqueue_many: ClassVar[
        _EnqueueMany["HasSender[Sender] | SyncCaller", list[int], list[int | None]]
    ]
    trigger: ClassVar[_Trigger["HasSender[Sender] | SyncCaller", int]]
    enqueue_async: ClassVar[
        _Enqueue[
            "HasSender[AsyncSender] | AsyncCaller",
            Coroutine[Any, Any, int],
            Coroutine[Any, Any, int | None],
        ]
    ]
    enqueue_many_async: ClassVar[
        _EnqueueMany[
            "HasSender[AsyncSender] | AsyncCaller",
            Coroutine[Any, Any, list[int]],
            Coroutine[Any, Any, list[int | None]],
        ]
    ]
    trigger_async: ClassVar[
        _Trigger["HasSender[AsyncSender] | AsyncCaller", Coroutine[Any, Any, int]]
    ]


# --- at run time ----------------------------------------------------------------------------------

METHODS = (
    "enqueue", "enqueue_many", "trigger", "enqueue_async", "enqueue_many_async", "trigger_async",
)  # fmt: skip


class JobCalls:
    """The calls for the job of one function, which become methods of the function.

    `conn` is a Client, a psycopg connection, or a connection or session of SQLAlchemy or Django
    that uses psycopg 3. On a connection, the call is part of the caller's transaction: a rollback
    leaves no execution. The methods that end in `_async` take an AsyncClient or an asynchronous
    connection.

    The payload is validated against the annotation of the handler. Each method raises
    PayloadInvalidError for a payload that the handler would refuse, LedgerError if the ledger
    refuses the call, TypeError for a `conn` that cannot be used and for a function that is
    declared as several jobs, and psycopg.Error.
    """

    def __init__(self, function: Callable[..., Any], bound: Bound) -> None:
        self.function = function
        self.jobs: dict[str, Job] = {}
        self._parameter = bound.payload

    def enqueue(self, payload: object = None, *, conn: object, **options: Any) -> int | None:
        """Enqueue work for the job, and return the id of the execution that does it.

        The options are those of `Client.enqueue`: `key`, `scope`, `watermark`, `group_id`,
        `due_at`.
        """
        return _sender(conn).send(self._enqueue(payload, options))

    async def enqueue_async(
        self, payload: object = None, *, conn: object, **options: Any
    ) -> int | None:
        """Do the same on an asynchronous connection."""
        return await _async_sender(conn).send(self._enqueue(payload, options))

    def enqueue_many(
        self, payloads: Iterable[object], *, conn: object, **options: Any
    ) -> list[int | None]:
        """Enqueue an item for each payload in one transaction, and return their ids in order.

        The options are those of `Client.enqueue_many`: `keys`, `scopes`, `watermarks`, `group_id`.
        """
        made = _sender(conn).send_all(self._enqueue_many(payloads, options))
        return [one for part in made for one in part]

    async def enqueue_many_async(
        self, payloads: Iterable[object], *, conn: object, **options: Any
    ) -> list[int | None]:
        """Do the same on an asynchronous connection."""
        made = await _async_sender(conn).send_all(self._enqueue_many(payloads, options))
        return [one for part in made for one in part]

    def trigger(self, payload: object = None, *, conn: object, **options: Any) -> int:
        """Create one execution of the job, due now, and return its id.

        The options are those of `Client.trigger`: `scope`, `force`, `require_runner`.
        """
        return _sender(conn).send(self._trigger(payload, options))

    async def trigger_async(self, payload: object = None, *, conn: object, **options: Any) -> int:
        """Do the same on an asynchronous connection."""
        return await _async_sender(conn).send(self._trigger(payload, options))

    def _enqueue(self, payload: object, options: dict[str, Any]) -> "Call[int | None]":
        from cronledger.ledger import calls

        job = self.job()
        # An item without a payload may merge into one that has a payload.
        value = self._checked(job, payload, "the payload", merges=options.get("key") is not None)
        return calls.enqueue(job.name, value, **options)

    def _enqueue_many(
        self, payloads: Iterable[object], options: dict[str, Any]
    ) -> "list[Call[list[int | None]]]":
        from cronledger.ledger import calls

        job, merges = self.job(), options.get("keys") is not None
        values = [
            self._checked(job, payload, f"payloads[{n}]", merges=merges)
            for n, payload in enumerate(payloads)
        ]
        return calls.enqueue_many(job.name, values, **options)

    def _trigger(self, payload: object, options: dict[str, Any]) -> "Call[int]":
        from cronledger.ledger import calls

        job = self.job()
        value = self._checked(job, payload, "the payload")
        return calls.trigger(job.name, value, **options)

    def job(self) -> Job:
        """Return the job of the function. Raises TypeError if it is declared as several jobs."""
        if len(self.jobs) == 1:
            return next(iter(self.jobs.values()))
        raise TypeError(
            f"{self.function.__qualname__} is declared as the jobs {', '.join(sorted(self.jobs))};"
            " use a Client, whose methods take the name of the job, or app.jobs[NAME]"
        )

    def _checked(
        self, job: Job, payload: object, name: str, *, merges: bool = False
    ) -> "JsonText | None":
        """Return `payload` as JSON text. Raises PayloadInvalidError, which has `name`.

        None stands for the payload of the job, which then has to fit.
        """
        from cronledger.ledger import calls

        text = None if payload is None else calls.json_text(payload, name)
        parameter, given = self._parameter, text
        if parameter is None or (text is None and merges):
            return text
        if given is None and job.payload is not None:
            given = calls.json_text(job.payload, name)
        if given is None and parameter.has_default:
            return None
        try:
            parameter.check(given or "null")
        except PayloadInvalidError as error:
            raise PayloadInvalidError(
                f"the handler of job {job.name!r} would refuse {name}:\n{error}"
            ) from error
        return text


def add_calls(function: Callable[..., Any], job: Job, bound: Bound) -> None:
    """Give a function the methods of its job.

    A partial, a bound method and an object with `__call__` stay as they are.
    """
    if not isinstance(function, FunctionType):
        return
    calls = _calls_of(function)
    if calls is None:
        calls = JobCalls(function, bound)
        for name in METHODS:
            setattr(function, name, getattr(calls, name))
    calls.jobs[job.name] = job


def job_of(function: object) -> Job | None:
    """Return the job of a function that `@app.job` declared, or None for anything else.

    Raises TypeError if it is declared as several jobs.
    """
    calls = _calls_of(function)
    return None if calls is None else calls.job()


def _calls_of(function: object) -> JobCalls | None:
    calls = getattr(getattr(function, "enqueue", None), "__self__", None)
    # A decorator may have copied the attributes of another function.
    return calls if isinstance(calls, JobCalls) and calls.function is function else None


def _sender(conn: object) -> "Sender":
    from cronledger.ledger.senders import sender_of

    return sender_of(conn)


def _async_sender(conn: object) -> "AsyncSender":
    from cronledger.ledger.senders import async_sender_of

    return async_sender_of(conn)
