"""Channels: where alerts are sent, and the settings of each kind."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from cronledger.rules.limits import FUNCTION_PATTERN
from cronledger.rules.notify import CHANNEL_PATTERN
from cronledger.rules.problems import (
    ConfigurationError,
    Problem,
    RefusedError,
    nearest,
    problems_of,
    shown,
)
from cronledger.rules.targets import (
    AbsolutePath,
    CommandLine,
    FromEnvironment,
    HeaderName,
    HeaderText,
    VariableName,
)
from cronledger.rules.urls import HttpUrl

LedgerEvent = Literal["violation", "runner_lost", "runner_failing"]
Secret = Annotated[str, Field(min_length=1)] | FromEnvironment
Address = Annotated[str, Field(pattern=r"^[^\s@<>,;]+@[^\s@<>,;]+$")]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str | Mapping | FromEnvironment) else value


Addresses = Annotated[tuple[Address, ...], BeforeValidator(_listed), Field(min_length=1)]
Secrets = Annotated[tuple[Secret, ...], BeforeValidator(_listed), Field(min_length=1)]


class _Channel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    on_ledger: tuple[LedgerEvent, ...] = Field(
        (),
        description="Events of the ledger that this channel receives: violation, runner_lost, "
        "runner_failing.",
    )


class Webhook(_Channel):
    """A POST of the alerts as JSON, signed if there is a secret."""

    kind: Literal["webhook"] = "webhook"
    url: HttpUrl | FromEnvironment = Field(description="Receiver of the request.")
    headers: dict[HeaderName, HeaderText | FromEnvironment] = Field(
        default_factory=dict, description="Additional headers."
    )
    secret: FromEnvironment | None = Field(
        None, description="Key of the signature (HMAC-SHA256) in `Cronledger-Signature`."
    )
    allow_private: bool = Field(False, description="Allow addresses that are not public.")


class Slack(_Channel):
    """A message to an incoming webhook of Slack, or of a service with the same form."""

    kind: Literal["slack"] = "slack"
    url: HttpUrl | FromEnvironment = Field(description="URL of the incoming webhook.")
    allow_private: bool = Field(False, description="Allow addresses that are not public.")


class Email(_Channel):
    """A mail by SMTP, with the subject and body of cron's mails."""

    kind: Literal["email"] = "email"
    to: Addresses = Field(description="Recipients.")
    sender: Address = Field(description="Address of the sender.")
    host: str = Field("localhost", min_length=1, description="Host of the SMTP server.")
    port: int = Field(25, ge=1, le=65535, description="Port of the SMTP server.")
    security: Literal["none", "starttls", "tls"] = Field(
        "none", description="`starttls`: encrypt after the greeting; `tls`: from the beginning."
    )
    user: str | None = Field(None, min_length=1, description="User of the SMTP server.")
    password: FromEnvironment | None = Field(None, description="Password of that user.")

    @model_validator(mode="after")
    def _both_or_neither(self) -> "Email":
        if (self.user is None) != (self.password is None):
            missing = "user" if self.user is None else "password"
            raise RefusedError(f"has no {missing}", "set both user and password, or neither")
        return self


class Command(_Channel):
    """A command, which reads the alerts from a file."""

    kind: Literal["command"] = "command"
    command: CommandLine = Field(
        description="A list runs directly, and a string runs in `/bin/sh -c`."
    )
    env: dict[VariableName, str | FromEnvironment] = Field(
        default_factory=dict, description="Additional variables."
    )
    cwd: AbsolutePath | None = Field(None, description="Working directory, an absolute path.")


class Function(_Channel):
    """A Python function, which is called with the alerts."""

    kind: Literal["python"] = "python"
    python: str = Field(
        pattern=FUNCTION_PATTERN, description="The function, `package.module:name`."
    )


class Apprise(_Channel):
    """Any service of Apprise. Needs the extra `apprise`."""

    kind: Literal["apprise"] = "apprise"
    urls: Secrets = Field(description="URLs of Apprise.")


Channel = Annotated[
    Webhook | Slack | Email | Command | Function | Apprise, Field(discriminator="kind")
]
KINDS: Mapping[str, type[BaseModel]] = {
    model.model_fields["kind"].default: model
    for model in (Webhook, Slack, Email, Command, Function, Apprise)
}
ONE_OR_SEVERAL = ("to", "urls")
"""Fields whose value is a list, or one of its items."""
_FROM_ENVIRONMENT = FromEnvironment.__name__
_TYPE_NAMES = re.compile(rf"\.(function-after\[[^]]*\]|constrained-str|str|{_FROM_ENVIRONMENT})")
"""What pydantic adds to the path of a field that may have several types."""
_SHOWN = frozenset({
    "kind", "on_ledger", "to", "sender", "host", "port", "security", "cwd", "python",
    "allow_private",
})  # fmt: skip
"""Fields whose wrong values are shown. Every other value may hold a secret."""
_CHANNEL: TypeAdapter[Channel] = TypeAdapter(Channel)


def read(settings: object) -> Channel:
    """Return the channel with these settings. Raises pydantic.ValidationError."""
    return _CHANNEL.validate_python(settings)


def settings(channel: Channel) -> dict[str, Any]:
    """Return the settings of a channel as the ledger stores them, without defaults."""
    return {**channel.model_dump(mode="json", exclude_defaults=True), "kind": channel.kind}


def checked(name: str, channel: object, where: str | None = None) -> Channel:
    """Return the channel that is given as an object or as the values of a table.

    Raises ConfigurationError, without values that may be secret.
    """
    values = settings(channel) if isinstance(channel, _Channel) else channel  # type: ignore[arg-type]
    if not re.fullmatch(CHANNEL_PATTERN, str(name)):
        raise ConfigurationError([Problem(
            where=where, field=f"channels.{name}", message="is not a name for a channel",
            remedy="begin with a letter or digit, and use at most 100 letters, digits and . _ -",
        )])  # fmt: skip
    try:
        return read(values)
    except ValidationError as error:
        raise ConfigurationError(_problems(error, name, values, where)) from None


def _problems(
    error: ValidationError, name: str, values: object, where: str | None
) -> Iterator[Problem]:
    """Yield the problems of a channel, with the names that its fields have in a file."""
    table = f"channels.{name}"
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(values, Mapping):
        remedy = 'write it like [channels.ops], with kind = "webhook"'
        yield Problem(where=where, field=table, message="is not a table", remedy=remedy)
        return
    if not isinstance(kind, str) or kind not in KINDS:
        yield Problem(
            where=where, field=f"{table}.kind", value=None if kind is None else shown(kind),
            message="is missing" if kind is None else "is not a kind of channel",
            remedy=f"use one of {', '.join(KINDS)}",
        )  # fmt: skip
        return
    details = error.errors(include_url=False)
    for problem, detail in zip(problems_of(error, where=where), details, strict=True):
        # One for each type that a field may have: a text, or a variable of the environment.
        given = isinstance(detail["input"], Mapping)
        if (given and detail["type"] == "string_type") or (
            not given and detail["loc"][-1] == _FROM_ENVIRONMENT
        ):
            continue
        path = _path(problem.field or "", kind)
        found = _described(problem, path, detail["type"], KINDS[kind])
        yield replace(found, field=f"{table}.{path}".rstrip("."))


def _path(field: str, kind: str) -> str:
    """Return the name of a field in a file: without its kind, and without the names of types."""
    return _TYPE_NAMES.sub("", field.removeprefix(kind).removeprefix("."))


def _described(problem: Problem, path: str, error: str, model: type[BaseModel]) -> Problem:
    """Return a problem with its remedy, and with its value if that cannot be a secret."""
    field = re.split(r"[.\[]", path)[0]
    value = problem.value if field in _SHOWN else None
    message, remedy = problem.message, problem.remedy
    if error == "extra_forbidden":
        remedy = nearest(field, model.model_fields)
    elif error == "model_type":
        message, remedy = "is not read from the environment", 'write it as {env = "NAME"}'
    elif field in ("to", "sender") and error == "string_pattern_mismatch":
        message, remedy = "is not an address", "write it like ops@example.org"
    elif error == "tuple_type":
        remedy = f"put it in brackets: {field} = […]"
    elif error == "too_short":
        message, remedy = "is empty", "name at least one"
    elif remedy.startswith("see "):
        remedy = "see docs/howto/channels.md"
    return replace(problem, value=value, message=message, remedy=remedy)


__all__ = [
    "KINDS", "ONE_OR_SEVERAL", "Apprise", "Channel", "Command", "Email", "FromEnvironment",
    "Function", "Slack", "Webhook", "checked", "read", "settings",
]  # fmt: skip
