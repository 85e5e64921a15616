"""Targets: what each handler runs, and the problems of the target of a job."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from cronledger.rules.limits import FUNCTION_PATTERN
from cronledger.rules.model import Handler, Job
from cronledger.rules.problems import Problem, RefusedError, problems_of
from cronledger.rules.urls import HttpUrl

# Every other field of a target may hold a secret, also one with a misspelt name.
_SHOWN = tuple(
    f"target.{name}" for name in ("python", "command", "cwd", "sql", "method", "expect", "allow_")
)

HeaderName = Annotated[str, Field(pattern=r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")]
HeaderText = Annotated[str, Field(pattern=r"^[^\r\n\x00]*$")]


class _Target(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PythonTarget(_Target):
    """`python`: a function, as `package.module:name`."""

    python: Annotated[str, Field(pattern=FUNCTION_PATTERN)]


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise RefusedError(
            "is not an absolute path, and replicas have different working directories",
            "write an absolute path",
        )
    return path


def _program(command: Any) -> Any:
    words = command if isinstance(command, list) else [command]
    blank = not words or (isinstance(command, str) and not command.strip())
    if blank or not all(isinstance(word, str) and word for word in words):
        raise RefusedError(
            "is neither a list of words nor a line for the shell",
            'write ["backup", "--full"], or "backup | gzip"',
        )
    return command


_WORD: dict[str, Any] = {"type": "string", "minLength": 1}
_COMMAND_SCHEMA: dict[str, Any] = {
    "anyOf": [_WORD, {"type": "array", "items": _WORD, "minItems": 1}]
}


CommandLine = Annotated[Any, AfterValidator(_program), WithJsonSchema(_COMMAND_SCHEMA)]
VariableName = Annotated[str, Field(pattern=r"^[^=]+$")]
AbsolutePath = Annotated[
    str, AfterValidator(_absolute), WithJsonSchema({"type": "string", "pattern": "^/"})
]


def _sendable(name: str) -> str:
    if name.upper().startswith(("CRONLEDGER_", "PG")):
        raise ValueError("CRONLEDGER_* and PG* variables configure the runner and cannot be sent")
    return name


class FromEnvironment(_Target):
    """A value that a runner reads from its environment each time, such as that of a header."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_sendable)]
    prefix: HeaderText = ""


def _text_or_reference(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Return what `read` returns. A value that fits neither type has one problem, not two."""
    try:
        return read(value)
    except ValidationError as error:
        if isinstance(value, Mapping):
            (*_, problem) = problems_of(error)
            refused = f"is not a reference to a variable: {problem.field}: {problem.message}"
        else:
            refused = "is neither a text nor a reference to a variable"
        raise RefusedError(refused, 'write a text, or {env = "NAME"}') from None


OneProblem = WrapValidator(_text_or_reference)
EnvironmentValue = Annotated[str | FromEnvironment, OneProblem]
HeaderValue = Annotated[HeaderText | FromEnvironment, OneProblem]


class CommandTarget(_Target):
    """`command`: a list runs directly, and a string runs in `/bin/sh -c`."""

    command: CommandLine
    env: dict[VariableName, EnvironmentValue] = Field(
        default_factory=dict,
        description="Variables that are added to the environment. The runner reads "
        '`{env = "NAME"}` from its own environment when an attempt starts, so that the ledger does '
        "not store the value.",
    )
    cwd: AbsolutePath | None = Field(None, description="The working directory, an absolute path.")


class SqlTarget(_Target):
    """`sql`: a statement or script, run in the database of the ledger in one transaction."""

    sql: Annotated[str, Field(pattern=r"\S")]


class HttpTarget(_Target):
    """`http`: one request."""

    url: HttpUrl = Field(description="URL of the request, which begins with http:// or https://.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = Field(
        "GET", description="Method of the request."
    )
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict,
        description='Headers of the request. The runner reads `{env = "NAME"}` from its '
        "environment, "
        'and puts the text of `prefix` before it: `{env = "NAME", prefix = "Bearer "}`.',
    )
    body: Any = Field(
        None,
        description="Body of the request. Text is sent unchanged, other values as JSON. If it is "
        "not set, the payload is sent as JSON, unless the method is GET or HEAD.",
    )
    expect: list[Annotated[int, Field(ge=100, le=599)]] = Field(
        default_factory=list, description="Statuses that mean success. If it is empty: 200 to 299."
    )
    allow_private: bool = Field(
        False,
        description="Allow addresses that are not public, such as loopback and private networks.",
    )


class ExternalTarget(_Target):
    """`external`: no fields, because a worker in another language claims the executions."""


class ObservedTarget(_Target):
    """`observed`: no fields, because another scheduler starts the runs, which are reported."""


TARGETS: dict[Handler, type[BaseModel]] = {
    Handler.PYTHON: PythonTarget,
    Handler.COMMAND: CommandTarget,
    Handler.SQL: SqlTarget,
    Handler.HTTP: HttpTarget,
    Handler.EXTERNAL: ExternalTarget,
    Handler.OBSERVED: ObservedTarget,
}


def problems(job: Job, where: str | None = None) -> Iterator[Problem]:
    """Yield the problems of the target of `job`, without values that may be secret."""
    model, target = TARGETS[job.handler], job.target
    try:
        model.model_validate(dict(target))
    except ValidationError as exc:
        for problem in problems_of(
            exc, where=where, job=job.name, known=model.model_fields, prefix="target."
        ):
            shows = (problem.field or "").startswith(_SHOWN)
            yield problem if shows else replace(problem, value=None)
