"""Facts about the functions of users: their place, their kind, the types of their parameters."""

import inspect
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

Function = Callable[..., Any]


class Handle:
    """A callable that stands for `function`, and has its names and attributes."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.__wrapped__ = function
        self.__module__, _, self.__qualname__ = place(function).partition(":")
        self.__name__ = self.__qualname__.rpartition(".")[2]
        # A partial and an object have the docstring of their class.
        self.__doc__ = function.__doc__ if inspect.isroutine(function) else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


def handled(function: Function) -> Function:
    """Return the function that a handle stands for, and any other function as it is."""
    return function.function if isinstance(function, Handle) else function


def place(function: Function) -> str:
    """Return `module:qualname` of a function, or of the class of a callable object."""
    while isinstance(function, partial):
        function = function.func
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"


def routine(function: Function) -> Any:
    """Return the routine that a call runs: that of a partial, or the `__call__` of an object."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def is_async(function: Function) -> bool:
    """Return whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(routine(function))


def kind(function: Function) -> str:
    """Return the kind of the function, for messages."""
    return "an `async def`" if is_async(function) else "a `def`"


def takes(function: Function, *given: object) -> bool:
    """Return whether the function can be called with these positional arguments."""
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    return True


def hint(function: Function, annotation: Any, *, extras: bool) -> Any:
    """Return the type that `annotation`, which may be text, means where `function` is defined.

    `extras`: keep `Annotated`. Raises NameError for an unknown name, and TypeError for text that is
    not a type.
    """
    # Only this annotation: others may use names that are imported for type checkers only.
    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    around = getattr(inspect.unwrap(routine(function)), "__globals__", {})
    return get_type_hints(holder, globalns=around, include_extras=extras)["it"]
