"""Resources: what the lifespan of an App yields, and which parameters of handlers receive it."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from cronledger.declaring.callables import is_async, place, takes

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


class LifespanError(Exception):
    """A lifespan raised before it yielded. `__cause__` is its exception."""


class ResourceMissingError(Exception):
    """A lifespan yielded nothing that fits a parameter of a handler, or more than one object.

    `problem` names the parameter, and `remedy` is what to do.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class ResourceParameter:
    """A parameter of a handler that receives a resource of one of these `types`."""

    name: str
    types: tuple[type, ...]

    def find(self, value: Any) -> Any:
        """Return what the parameter receives if the lifespan of the App yielded `value`.

        This is `value` itself if it has the type. Otherwise it is the field of `value` that has the
        type, and of several such fields the one with the name of the parameter.

        Raises ResourceMissingError if there is none, or several of other names.
        """
        if isinstance(value, self.types):
            return value
        fits = {name: x for name, x in _fields(value).items() if isinstance(x, self.types)}
        if self.name in fits:
            return fits[self.name]
        if len(fits) == 1:
            return next(iter(fits.values()))
        wanted = " | ".join(x.__name__ for x in self.types)
        parameter = f"the parameter `{self.name}: {wanted}`"
        if fits:
            names = " or ".join(f"`{name}`" for name in fits)
            raise ResourceMissingError(
                f"{parameter} could receive {names} of the lifespan's value",
                "give the parameter the name of one of them",
            )
        raise ResourceMissingError(
            f"{parameter} matches nothing that the lifespan yields, which is {_described(value)}",
            "yield an object of that type, change the annotation, or name the parameter `payload` "
            "if it is to receive the payload",
        )


def resource_parameter(handler: str, name: str, annotation: Any) -> ResourceParameter:
    """Return the parameter with this type. Raises TypeError if it is not a class, or a union."""
    types = _types(annotation)
    if types is None:
        raise TypeError(
            f"{handler}: the parameter `{name}` is annotated as {annotation!r}, which is not a "
            "class; annotate it with the class of a resource, or read `ctx.resources`"
        )
    return ResourceParameter(name, types)


def check_lifespan(lifespan: Lifespan) -> None:
    """Raise TypeError unless `lifespan` is callable with the App, and decorated."""
    if not callable(lifespan) or not takes(lifespan, None):
        raise TypeError(
            f"lifespan={lifespan!r} cannot be called with the App; write "
            "`async def lifespan(app): ...` with `@asynccontextmanager`"
        )
    inner = inspect.unwrap(lifespan)
    undecorated = inspect.isasyncgenfunction(lifespan) or is_async(lifespan)
    if undecorated or inspect.isgeneratorfunction(inner):
        raise TypeError(
            f"the lifespan {place(lifespan)} does not return an async context manager; write it as "
            "an `async def` with one `yield`, and decorate it with `@asynccontextmanager`"
        )


def _types(annotation: Any) -> tuple[type, ...] | None:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        members = [_types(member) for member in get_args(annotation)]
        return None if None in members else tuple(x for types in members for x in types or ())
    found = origin or annotation
    try:
        isinstance(None, found)
    except TypeError:  # such as Any, a TypeVar, or a protocol that is not checked at runtime
        return None
    return (found,) if isinstance(found, type) else None


def _fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a dataclass or a NamedTuple, or the items of a mapping."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return value if isinstance(value, Mapping) else {}


def _described(value: Any) -> str:
    """Return the types of the value and of its fields, not the values, which may be secret."""
    parts = ", ".join(f"{name}: {type(x).__name__}" for name, x in _fields(value).items())
    return f"{type(value).__name__}({parts})" if parts else type(value).__name__
