"""Middleware: functions around the handlers of an App, or around one handler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cronledger.declaring.callables import is_async, kind, place, takes

Wrapper = Callable[[Any, Callable[[], Any]], Any]
"""A function `(ctx, call_next)`. `call_next()` calls what is inside: in a `def` it returns the
result of the handler, in an `async def` an awaitable of it."""


@dataclass(frozen=True, slots=True)
class Middleware:
    """A middleware for both kinds of handlers.

    `sync`, a `def`, wraps sync handlers, in their thread. `asynchronous`, an `async def`, wraps
    async handlers. Raises TypeError if one of them has the other kind.
    """

    sync: Wrapper
    asynchronous: Wrapper

    def __post_init__(self) -> None:
        for name, function, expected in (
            ("sync", self.sync, False),
            ("asynchronous", self.asynchronous, True),
        ):
            _check(function)
            if is_async(function) is not expected:
                wanted = "an `async def`" if expected else "a `def`"
                raise TypeError(
                    f"Middleware({name}=…): {place(function)} is {kind(function)}; use {wanted}"
                )


def checked(middleware: Sequence[Wrapper | Middleware]) -> tuple[Wrapper | Middleware, ...]:
    """Return the middleware, the outermost first. Raises TypeError for what cannot be one."""
    if not isinstance(middleware, Sequence):
        raise TypeError(f"middleware={middleware!r} is not a list; write middleware=[…]")
    for function in middleware:
        if not isinstance(function, Middleware):
            _check(function)
    return tuple(middleware)


def fitting(
    middleware: Sequence[Wrapper | Middleware], handler: Callable[..., Any]
) -> tuple[Wrapper, ...]:
    """Return the functions that wrap this handler, the outermost first.

    Raises TypeError if one of them has the other kind than the handler.
    """
    return tuple(_fitting(function, handler) for function in middleware)


def _fitting(function: Wrapper | Middleware, handler: Callable[..., Any]) -> Wrapper:
    if isinstance(function, Middleware):
        return function.asynchronous if is_async(handler) else function.sync
    if is_async(function) is not is_async(handler):
        raise TypeError(
            f"the middleware {place(function)} is {kind(function)}, and the handler "
            f"{place(handler)} is {kind(handler)}; give both kinds: "
            "Middleware(sync=…, asynchronous=…)"
        )
    return function


def _check(function: Wrapper) -> None:
    if not callable(function) or isinstance(function, type) or not takes(function, None, None):
        raise TypeError(
            f"{function!r} is not a middleware; use a function with the parameters `ctx, call_next`"
        )
