"""The handles that `@app.job` returns: functions with `enqueue`, `enqueue_many` and `trigger`.

This module neither connects to a database nor imports a driver before one of them is called.
"""

import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)
from uuid import UUID

from cronledger.declaring.binding import Bound, bind
from cronledger.declaring.callables import Function, Handle
from cronledger.rules.model import GLOBAL, Job
from cronledger.rules.problems import PayloadInvalidError

if TYPE_CHECKING:
    from cronledger.ledger.callers import AsyncCaller, SyncCaller
    from cronledger.ledger.calls import Batch, Call, JsonText
    from cronledger.ledger.senders import AsyncSender, HasSender, Sender

A = ParamSpec("A")
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


_Takes: TypeAlias = _TakesPayload[P] | _TakesContextAndPayload[P]
_TakesMore: TypeAlias = _TakesPayloadAndResources[P] | _TakesContextPayloadAndResources[P]

# Only a call with a watermark may return None instead of an id.


class Enqueue(Protocol[P_contra, C_contra, R_co, N_co]):
    """Enqueue work for the job: see `JobHandle.enqueue`."""

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
    """Enqueue an item for each payload: see `JobHandle.enqueue_many`."""

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
    """Create one execution, due now: see `JobHandle.trigger`."""

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
    def __get__(self, function: _Takes[P], owner: object) -> Enqueue[P, C, R, N]: ...
    @overload
    def __get__(self, function: _TakesMore[P], owner: object) -> Enqueue[P, C, R, N]: ...
    @overload
    def __get__(self, function: Callable[..., Any], owner: object) -> Enqueue[Any, C, R, N]: ...
    def __get__(self, function: Any, owner: object) -> Any:
        raise NotImplementedError


class _EnqueueMany(Generic[C, R, N]):
    @overload
    def __get__(self, function: _Takes[P], owner: object) -> EnqueueMany[P, C, R, N]: ...
    @overload
    def __get__(self, function: _TakesMore[P], owner: object) -> EnqueueMany[P, C, R, N]: ...
    @overload
    def __get__(self, function: Callable[..., Any], owner: object) -> EnqueueMany[Any, C, R, N]: ...
    def __get__(self, function: Any, owner: object) -> Any:
        raise NotImplementedError


class _Trigger(Generic[C, R]):
    @overload
    def __get__(self, function: _Takes[P], owner: object) -> TriggerNow[P, C, R]: ...
    @overload
    def __get__(self, function: _TakesMore[P], owner: object) -> TriggerNow[P, C, R]: ...
    @overload
    def __get__(self, function: Callable[..., Any], owner: object) -> TriggerNow[Any, C, R]: ...
    def __get__(self, function: Any, owner: object) -> Any:
        raise NotImplementedError


class JobFunction(Protocol[A, R_co]):
    """The handle that `@app.job` returns, as type checkers see it.

    It is called like the declared function, and has the methods of `JobHandle`.
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

    def __call__(self, *args: A.args, **kwargs: A.kwargs) -> R_co: ...


# --- at run time ----------------------------------------------------------------------------------

METHODS = (
    "enqueue", "enqueue_many", "trigger", "enqueue_async", "enqueue_many_async", "trigger_async",
)  # fmt: skip


class JobHandle(Handle):
    """The handle of one job: it calls the function, and enqueues work for the job.

    If a function was not declared before, its handle is the function itself, which gets the methods
    `enqueue`, `enqueue_many`, `trigger`, and those with `_async`. In all other cases, the handle is
    an object of this class.

    `conn` is a Client, a psycopg connection, or a connection or session of SQLAlchemy or Django
    that uses psycopg 3. On a connection, the call is part of the caller's transaction: a rollback
    leaves no execution. The methods that end in `_async` take an AsyncClient or an asynchronous
    connection.

    The payload is validated against the annotation of the handler. Each method raises
    PayloadInvalidError for a payload that the handler would refuse, LedgerError if the ledger
    refuses the call, TypeError for a `conn` that cannot be used, and psycopg.Error.
    """

    def __init__(self, function: Function, job: Job, bound: Bound) -> None:
        super().__init__(function)
        self.job = job
        self._parameter = bound.payload

    def __repr__(self) -> str:
        return f"<job {self.job.name!r} of {self.__module__}:{self.__qualname__}>"

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is self:
            return self.__qualname__
        return _made, (self.function, self.job)

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
        return _sender(conn).send(self._enqueue_many(payloads, options))

    async def enqueue_many_async(
        self, payloads: Iterable[object], *, conn: object, **options: Any
    ) -> list[int | None]:
        """Do the same on an asynchronous connection."""
        return await _async_sender(conn).send(self._enqueue_many(payloads, options))

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

        # An item without a payload may merge into one that has a payload.
        value = self._checked(payload, "the payload", merges=options.get("key") is not None)
        return calls.enqueue(self.job.name, value, **options)

    def _enqueue_many(
        self, payloads: Iterable[object], options: dict[str, Any]
    ) -> "Batch[int | None]":
        from cronledger.ledger import calls

        merges = options.get("keys") is not None
        values = [
            self._checked(payload, f"payloads[{n}]", merges=merges)
            for n, payload in enumerate(payloads)
        ]
        return calls.enqueue_many(self.job.name, values, **options)

    def _trigger(self, payload: object, options: dict[str, Any]) -> "Call[int]":
        from cronledger.ledger import calls

        value = self._checked(payload, "the payload")
        return calls.trigger(self.job.name, value, **options)

    def _checked(self, payload: object, name: str, *, merges: bool = False) -> "JsonText | None":
        """Return `payload` as JSON text. Raises PayloadInvalidError, which has `name`.

        None stands for the payload of the job, which then has to fit.
        """
        from cronledger.ledger import calls

        text = None if payload is None else calls.json_text(payload, name)
        parameter, given = self._parameter, text
        if parameter is None or (text is None and merges):
            return text
        if given is None and self.job.payload is not None:
            given = calls.json_text(self.job.payload, name)
        if given is None and parameter.has_default:
            return None
        try:
            parameter.check(given or "null")
        except PayloadInvalidError as error:
            raise PayloadInvalidError(
                f"the handler of job {self.job.name!r} would refuse {name}:\n{error}"
            ) from error
        return text


class _AsyncJobHandle(JobHandle):
    """The handle of an async function. Programs recognise it by its async `__call__`."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await self.function(*args, **kwargs)


def handle_of(function: Function, job: Job, bound: Bound) -> Any:
    """Return a handle of `job`, which is declared for `function`: see `JobHandle`."""
    handle = _new(function, job, bound)
    if not isinstance(function, FunctionType) or _of_function(function) is not None:
        return handle
    for name in METHODS:
        setattr(function, name, getattr(handle, name))
    return function


def job_of(function: object) -> Job | None:
    """Return the job of a handle that `@app.job` returned, or None for anything else."""
    handle = function if isinstance(function, JobHandle) else _of_function(function)
    return None if handle is None else handle.job


def _new(function: Function, job: Job, bound: Bound) -> JobHandle:
    kind = _AsyncJobHandle if bound.is_async else JobHandle
    return kind(function, job, bound)


def _made(function: Function, job: Job) -> JobHandle:
    """Return the handle that was pickled as these."""
    return _new(function, job, bind(function, resources=True))


def _of_function(function: object) -> JobHandle | None:
    """Return the handle whose methods `function` has, or None."""
    handle = getattr(getattr(function, "enqueue", None), "__self__", None)
    # A decorator may have copied the attributes of another function.
    return handle if isinstance(handle, JobHandle) and handle.function is function else None


def _sender(conn: object) -> "Sender":
    from cronledger.ledger.senders import Sender, sender_of

    return sender_of(Sender, conn)


def _async_sender(conn: object) -> "AsyncSender":
    from cronledger.ledger.senders import AsyncSender, sender_of

    return sender_of(AsyncSender, conn)
