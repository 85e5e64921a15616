"""The methods of both clients, derived from functions that describe them.

`calls.pause(…)` returns a call, `client.pause(…)` sends it and returns its value, and
`async_client.pause(…)` returns a coroutine that does so. All three have one signature.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import wraps
from types import MethodType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)
from uuid import UUID

from cronledger.client import explanations
from cronledger.client.waiting import wait
from cronledger.ledger import calls
from cronledger.ledger.blocking import completed
from cronledger.ledger.calls import Request
from cronledger.ledger.reports import Reports, in_thread
from cronledger.ledger.senders import AsyncSender, HasSender, R, Sender
from cronledger.rules.model import GLOBAL

A = ParamSpec("A")
T = TypeVar("T")
S = TypeVar("S")
S_async = TypeVar("S_async")
R_co = TypeVar("R_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)


class Method(Generic[S, S_async]):
    """A method that both clients have. `S`, `S_async`: its types in Client and AsyncClient.

    Each of the two functions gets the sender of the client as its first argument.
    """

    def __init__(
        self,
        described: Callable[..., Any],
        send: Callable[..., Any],
        send_async: Callable[..., Any],
    ) -> None:
        self.__doc__ = described.__doc__
        self._described = described
        self.send = send
        self.send_async = send_async

    def __set_name__(self, owner: object, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, client: None, owner: object) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: HasSender[Sender], owner: object) -> S: ...
    @overload
    def __get__(self, client: HasSender[AsyncSender], owner: object) -> S_async: ...
    def __get__(self, client: Any, owner: object) -> Any:
        if client is None:
            return self._described
        sender = client.sender

        @wraps(self._described)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self.send(sender, *args, **kwargs)

        @wraps(self._described)
        async def async_method(*args: Any, **kwargs: Any) -> Any:
            return await self.send_async(sender, *args, **kwargs)

        # Kept, because making it costs a few percent of a call.
        made = method if isinstance(sender, Sender) else async_method
        vars(client)[self._name] = made
        return made


Derived: TypeAlias = Method[Callable[A, T], Callable[A, Coroutine[Any, Any, T]]]


def sent(describe: Callable[A, Request[T]]) -> Derived[A, T]:
    """Return the method that sends what `describe` returns."""

    def send(sender: Any, *args: A.args, **kwargs: A.kwargs) -> Any:
        return sender.send(describe(*args, **kwargs))

    return Method(describe, send, send)


def computed(compute: Callable[Concatenate[Reports, A], T]) -> Derived[A, T]:
    """Return the method that computes a value from reports, for an event loop in a thread."""

    def send(sender: Sender, *args: A.args, **kwargs: A.kwargs) -> T:
        reports = Reports(lambda name, params: sender.send(calls.report(name, params)))
        return compute(reports, *args, **kwargs)

    async def send_async(sender: AsyncSender, *args: A.args, **kwargs: A.kwargs) -> T:
        return await in_thread(
            lambda name, params: sender.send(calls.report(name, params)),
            lambda read: compute(Reports(read), *args, **kwargs),
        )

    return Method(MethodType(compute, ()), send, send_async)


def planned(
    plan: Callable[Concatenate[Reports, A], Request[T]],
) -> Derived[A, T]:
    """Return the method that sends what `plan` computes from reports."""
    method = computed(plan)

    def send(sender: Sender, *args: A.args, **kwargs: A.kwargs) -> T:
        request: Request[T] = method.send(sender, *args, **kwargs)
        return sender.send(request)

    async def send_async(sender: AsyncSender, *args: A.args, **kwargs: A.kwargs) -> T:
        request: Request[T] = await method.send_async(sender, *args, **kwargs)
        return await sender.send(request)

    return Method(MethodType(plan, ()), send, send_async)


def polled(
    poll: Callable[Concatenate[Sender | AsyncSender, A], Coroutine[Any, Any, T]],
) -> Derived[A, T]:
    """Return the method that sends calls until it knows its value."""

    def send(sender: Sender, *args: A.args, **kwargs: A.kwargs) -> T:
        return completed(poll(sender, *args, **kwargs))

    return Method(MethodType(poll, ()), send, poll)


# Only a call with a watermark may return None instead of an id. No type checker derives overloads.


class Enqueue(Protocol[R_co, N_co]):
    """Enqueue work for a job: see `calls.enqueue`."""

    @overload
    def __call__(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        group_id: UUID | None = None,
        due_at: datetime | None = None,
    ) -> R_co: ...
    @overload
    def __call__(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        watermark: int | None,
        group_id: UUID | None = None,
    ) -> N_co: ...


class EnqueueMany(Protocol[R_co, N_co]):
    """Enqueue an item for each payload: see `calls.enqueue_many`."""

    @overload
    def __call__(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        group_id: UUID | None = None,
    ) -> R_co: ...
    @overload
    def __call__(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        watermarks: Sequence[int | None] | None,
        group_id: UUID | None = None,
    ) -> N_co: ...


_Ids: TypeAlias = list[int]
_OptionalIds: TypeAlias = list[int | None]


class Verbs(HasSender[R]):
    """What a program can do with the ledger, on either client."""

    enqueue = cast(
        Method[
            Enqueue[int, int | None],
            Enqueue[Coroutine[Any, Any, int], Coroutine[Any, Any, int | None]],
        ],
        sent(calls.enqueue),
    )
    enqueue_many = cast(
        Method[
            EnqueueMany[_Ids, _OptionalIds],
            EnqueueMany[Coroutine[Any, Any, _Ids], Coroutine[Any, Any, _OptionalIds]],
        ],
        sent(calls.enqueue_many),
    )
    trigger = sent(calls.trigger)
    wait = polled(wait)
    pause = sent(calls.pause)
    resume = sent(calls.resume)
    plan_pause = sent(calls.plan_pause)
    change_pause = sent(calls.change_pause)
    end_pause = sent(calls.end_pause)
    pauses = sent(calls.pauses)
    skip = sent(calls.skip)
    unskip = sent(calls.unskip)
    adopt = planned(explanations.adopt)
    cancel = sent(calls.cancel)
    retry = sent(calls.retry)
    cancel_many = sent(calls.cancel_many)
    retry_many = sent(calls.retry_many)
    execution = sent(calls.execution)
    executions = sent(calls.executions)
    skips = sent(calls.skips)
    why = computed(explanations.why)
    next = computed(explanations.next_firings)
