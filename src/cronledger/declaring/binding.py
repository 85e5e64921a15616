"""Call a function as a handler, with the Context, the payload and the resources that it declares.

`bind` inspects the function once, when it is declared or loaded, and compiles the validation of its
payload.
"""

import inspect
import json
import sys
import warnings
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from cronledger.declaring.callables import Function, handled, hint, is_async, place, routine
from cronledger.declaring.middleware import Wrapper
from cronledger.declaring.resources import ResourceParameter, resource_parameter
from cronledger.rules import storable
from cronledger.rules.problems import ConfigurationError, PayloadInvalidError, Problem

CONTEXT = "Context"
PAYLOAD = "payload"
SHOWN_PROBLEMS = 20

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _ReproducibleSchema(GenerateJsonSchema):
    """Generates the same schema in each process, although the order of a set differs."""

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        return sorted(encoded, key=json.dumps) if isinstance(dft, Set) else encoded


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

    def problem(self, payload: Any, *, scheduled: bool) -> tuple[str, str] | None:
        """Return message and remedy if the handler refuses the declared payload of its job.

        None if it may accept it: a validator that raises anything but a validation error may
        depend on this process. A job that is not `scheduled` needs no payload of its own.
        """
        if self.adapter is None or (payload is None and (self.has_default or not scheduled)):
            return None
        try:
            self.adapter.validate_json(json.dumps(payload))
        except ValidationError as error:
            reason = _described(error).replace("\n", "; ")
        except Exception:  # noqa: BLE001 - a validator of the user may raise any exception
            return None
        else:
            return None
        if payload is None:
            return (
                f"is missing, but the handler requires one ({reason})",
                "declare a payload, give the parameter of the handler a default, or remove the "
                "schedule",
            )
        return (
            f"would be refused by the handler ({reason})",
            "declare a payload that fits the type of the handler's parameter",
        )

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the payload.

        Returns None if any JSON is valid, or if the type has no schema that the ledger can store.
        """
        if self.adapter is None:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of defaults that have no JSON
                found = self.adapter.json_schema(schema_generator=_ReproducibleSchema)
        except Exception:  # noqa: BLE001 - a hook of the user may raise any exception
            return None
        return found if found and storable.problem(found) is None else None

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

    `is_async`: the call returns a coroutine; otherwise it blocks its thread. `wanted`: the
    parameters that receive resources. `middleware`: what wraps the handler, the outermost first;
    the call does not include it. `resources`: what the lifespan of the App yielded, None before
    that and without a lifespan.
    """

    function: Function
    is_async: bool
    takes_context: bool
    payload: PayloadParameter | None = field(default=None, compare=False)
    wanted: tuple[ResourceParameter, ...] = ()
    middleware: tuple[Wrapper, ...] = ()
    resources: Any = field(default=None, compare=False)
    _named: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def needs_context(self) -> bool:
        """Return whether the call reads the context; otherwise it may be None."""
        return self.takes_context or self.payload is not None or bool(self.middleware)

    def __call__(self, context: Any) -> Any:
        """Call the function. Raises PayloadInvalidError before that."""
        if self.payload is None and not self._named:  # most handlers
            return self.function(context) if self.takes_context else self.function()
        given, named = self.arguments(context)
        return self.function(*given, **named)

    def arguments(self, context: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of the call. Raises PayloadInvalidError."""
        given = (context,) if self.takes_context else ()
        parameter = self.payload
        if parameter is None or (context.payload is None and parameter.has_default):
            return given, self._named
        value = parameter.decode(context.payload)
        if parameter.positional:
            return (*given, value), self._named
        return given, {**self._named, PAYLOAD: value}

    def provided(self, value: Any) -> "Bound":
        """Return the handler with the resources of `value`, which the lifespan yielded.

        Raises ResourceMissingError if a parameter receives nothing.
        """
        named = {parameter.name: parameter.find(value) for parameter in self.wanted}
        return replace(self, resources=value, _named=named)


def bind(function: Function, *, resources: bool = False) -> Bound:
    """Return `function` as a handler.

    Its first positional parameter receives the Context if it is named `ctx` or annotated as
    `Context`. A parameter named `payload` receives the payload, validated by its annotation: a
    pydantic model or any type that pydantic knows. Without an annotation it receives the JSON
    unchanged. If an execution has no payload, the default of the parameter is used. `resources`:
    every other parameter without a default receives a resource by its annotation.

    Raises TypeError for a class, a generator, a payload type that cannot be validated, a resource
    whose type is not a class, and any other parameter without a default.
    """
    function = handled(function)
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"{name} is not a function; use a `def` or an `async def`")
    called = routine(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(f"{name} is a generator; a handler must return its result")
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and _is_context(parameters[0])
    payload, wanted = None, []
    for index, parameter in enumerate(parameters[1:] if takes_context else parameters):
        if (
            parameter.name == PAYLOAD
            and parameter.kind not in _VARIADIC
            and (index == 0 or parameter.kind is not parameter.POSITIONAL_ONLY)
        ):
            payload = _payload(name, function, parameter)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            if not resources or not _may_be_resource(parameter):
                raise TypeError(_not_received(name, parameter, resources=resources))
            wanted.append(_resource(name, function, parameter))
    return Bound(function, is_async(function), takes_context, payload, tuple(wanted))


def _may_be_resource(parameter: inspect.Parameter) -> bool:
    return (
        parameter.kind is not parameter.POSITIONAL_ONLY
        and parameter.annotation is not parameter.empty
        and not _is_context(parameter)
        and parameter.name not in ("ctx", PAYLOAD)
    )


def _not_received(name: str, parameter: inspect.Parameter, *, resources: bool) -> str:
    message = f"{name} has the parameter `{parameter.name}`, which a handler does not receive; "
    remedy = "give it a default, or use `ctx` first and `payload`"
    if not resources:
        return f"{message}{remedy}, or give the App a lifespan that yields it"
    return f"{message}{remedy}, or annotate it with the type of a resource"


def _is_context(parameter: inspect.Parameter) -> bool:
    if parameter.kind not in _POSITIONAL:
        return False
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotated = annotation.strip("'\" ").rpartition(".")[2] == CONTEXT
    else:
        home = getattr(annotation, "__module__", None)
        annotated = (home, getattr(annotation, "__name__", None)) == (
            "cronledger.declaring.app",
            CONTEXT,
        )
    return parameter.name == "ctx" or annotated


def _payload(name: str, function: Function, parameter: inspect.Parameter) -> PayloadParameter:
    return PayloadParameter(
        _adapter(name, function, parameter.annotation),
        parameter.kind is parameter.POSITIONAL_ONLY,
        parameter.default is not parameter.empty,
    )


def _adapter(name: str, function: Function, annotation: Any) -> TypeAdapter[Any] | None:
    if annotation is inspect.Parameter.empty or annotation is Any:
        return None
    try:
        return TypeAdapter(hint(function, annotation, extras=True))
    except NameError as error:
        raise _unknown_type(name, PAYLOAD, annotation, error) from error
    except (PydanticUserError, TypeError) as error:
        if isinstance(error, PydanticUserError) and error.code == "typed-dict-version":
            raise _plain_typed_dict(name, function) from None
        reason = str(error).partition("\n")[0]
        raise TypeError(
            f"{name}: `payload` of type {annotation!r} cannot be validated: {reason}; use a "
            "pydantic model, a dataclass, a TypedDict or a plain type"
        ) from error


def _plain_typed_dict(name: str, function: Function) -> ConfigurationError:
    """Return the error for a TypedDict that has too little information before Python 3.12."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    message = f"contains a typing.TypedDict, which cannot be validated on Python {version}"
    remedy = "write `from typing_extensions import TypedDict`"
    return ConfigurationError([Problem(place(function), name, PAYLOAD, None, message, remedy)])


def _resource(name: str, function: Function, parameter: inspect.Parameter) -> ResourceParameter:
    try:
        annotation = hint(function, parameter.annotation, extras=False)
    except NameError as error:
        raise _unknown_type(name, parameter.name, parameter.annotation, error) from error
    return resource_parameter(name, parameter.name, annotation)


def _unknown_type(name: str, parameter: str, annotation: Any, error: NameError) -> TypeError:
    return TypeError(
        f"{name}: the type of `{parameter}`, {annotation!r}, is unknown ({error}); define it at "
        "module level, above the handler"
    )


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
