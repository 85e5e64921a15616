"""Call a function as a handler, with or without the Context and the payload.

`bind` inspects the function once, when it is declared or loaded, and compiles the validation of its
payload.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

Function = Callable[..., Any]

CONTEXT = "Context"
PAYLOAD = "payload"
SHOWN_PROBLEMS = 20

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class PayloadInvalidError(Exception):
    """The payload of an execution does not match the type of the handler's parameter."""


@dataclass(frozen=True, slots=True)
class PayloadParameter:
    """The parameter `payload` of a handler. `adapter` validates it; None: any JSON is valid."""

    adapter: TypeAdapter[Any] | None
    positional: bool
    has_default: bool

    def decode(self, payload: Any) -> Any:
        """Return the value for the parameter. Raises PayloadInvalidError, and nothing else.

        The payload is validated as JSON, so that strict models accept dates and UUIDs as text.
        """
        if self.adapter is None:
            return payload
        return self._validated(self.adapter, json.dumps(payload))

    def check(self, text: str) -> None:
        """Raise PayloadInvalidError if `decode` would refuse the payload with this JSON text."""
        if self.adapter is not None:
            self._validated(self.adapter, text)

    @staticmethod
    def _validated(adapter: TypeAdapter[Any], text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            raise PayloadInvalidError(_described(error)) from None
        except Exception as error:
            # A validator of the user may raise any exception.
            message = f"validating the payload raised {type(error).__name__}: {error}"
            raise PayloadInvalidError(message) from error


@dataclass(frozen=True, slots=True)
class Bound:
    """A handler: `bound(context)` calls the function with the arguments that it declares.

    `is_async`: the call returns a coroutine; otherwise it blocks its thread. Raises
    PayloadInvalidError before it calls the function.
    """

    function: Function
    is_async: bool
    takes_context: bool
    payload: PayloadParameter | None = field(default=None, compare=False)

    def __call__(self, context: Any) -> Any:
        given = (context,) if self.takes_context else ()
        parameter = self.payload
        if parameter is None or (context.payload is None and parameter.has_default):
            return self.function(*given)
        value = parameter.decode(context.payload)
        if parameter.positional:
            return self.function(*given, value)
        return self.function(*given, **{PAYLOAD: value})


def bind(function: Function) -> Bound:
    """Return `function` as a handler.

    Its first positional parameter receives the Context if it is named `ctx` or annotated as
    `Context`. A parameter named `payload` receives the payload, validated by its annotation: a
    pydantic model or any type that pydantic knows. Without an annotation it receives the JSON
    unchanged. If an execution has no payload, the default of the parameter is used.

    Raises TypeError for a class, a generator, a payload type that cannot be validated, and any
    other parameter without a default.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"{name} is not a function; use a `def` or an `async def`")
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(f"{name} is a generator; a handler must return its result")
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and _is_context(parameters[0])
    payload = None
    for place, parameter in enumerate(parameters[1:] if takes_context else parameters):
        if (
            parameter.name == PAYLOAD
            and parameter.kind not in _VARIADIC
            and (place == 0 or parameter.kind is not parameter.POSITIONAL_ONLY)
        ):
            payload = _payload(name, called, parameter)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise TypeError(
                f"{name} has the parameter `{parameter.name}`, which a handler does not receive; "
                "give it a default, or use `ctx` first and `payload`"
            )
    return Bound(function, inspect.iscoroutinefunction(called), takes_context, payload)


def _is_context(parameter: inspect.Parameter) -> bool:
    if parameter.kind not in _POSITIONAL:
        return False
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotated = annotation.strip("'\" ").rpartition(".")[2] == CONTEXT
    else:
        home = getattr(annotation, "__module__", None)
        annotated = (home, getattr(annotation, "__name__", None)) == ("cronledger.app", CONTEXT)
    return parameter.name == "ctx" or annotated


def _payload(name: str, called: Any, parameter: inspect.Parameter) -> PayloadParameter:
    return PayloadParameter(
        _adapter(name, called, parameter.annotation),
        parameter.kind is parameter.POSITIONAL_ONLY,
        parameter.default is not parameter.empty,
    )


def _adapter(name: str, called: Any, annotation: Any) -> TypeAdapter[Any] | None:
    if annotation is inspect.Parameter.empty or annotation is Any:
        return None
    try:
        # Only this annotation: others may use names that are imported for type checkers only.
        holder: Any = SimpleNamespace(__annotations__={PAYLOAD: annotation})
        around = getattr(inspect.unwrap(called), "__globals__", {})
        hint = get_type_hints(holder, globalns=around, include_extras=True)[PAYLOAD]
        return TypeAdapter(hint)
    except NameError as error:
        raise TypeError(
            f"{name}: the type of `payload`, {annotation!r}, is unknown ({error}); define it at "
            "module level, above the handler"
        ) from error
    except (PydanticUserError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise TypeError(
            f"{name}: `payload` of type {annotation!r} cannot be validated: {reason}; use a "
            "pydantic model, a dataclass, a TypedDict or a plain type"
        ) from error


def _described(error: ValidationError) -> str:
    """Return one line for each problem, without the values, which may be private."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for detail in details[:SHOWN_PROBLEMS]:
        path = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in detail["loc"])
        lines.append(f"payload{path}: {detail['msg']}")
    if len(details) > SHOWN_PROBLEMS:
        lines.append(f"and {len(details) - SHOWN_PROBLEMS} more")
    return "\n".join(lines)
