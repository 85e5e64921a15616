"""Channels: where alerts are sent. A channel is a job, so that each delivery is an execution.

The job of the channel `ops` is `alerts.ops`. It is external, in a queue of its own, and its target
is `{"channel": {…}}`. Replicas deliver its executions with slots of their own.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
)

from cronledger.rules.model import Handler, Job, Overlap
from cronledger.rules.notify import CHANNEL_PATTERN
from cronledger.rules.problems import Problem
from cronledger.rules.targets import (
    FUNCTION_PATTERN,
    CommandTarget,
    FromEnvironment,
    HeaderName,
    HeaderText,
    http_url,
)

QUEUE = "alerts"
PREFIX = "alerts."
LedgerEvent = Literal["violation", "runner_lost"]
Url = Annotated[str, AfterValidator(http_url)]
Secret = Annotated[str, Field(min_length=1)] | FromEnvironment
Address = Annotated[str, Field(pattern=r"^[^\s@<>,;]+@[^\s@<>,;]+$")]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Addresses = Annotated[tuple[Address, ...], BeforeValidator(_listed), Field(min_length=1)]
Secrets = Annotated[tuple[Secret, ...], BeforeValidator(_listed), Field(min_length=1)]


class _Channel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    on_ledger: tuple[LedgerEvent, ...] = Field(
        (), description="Events of the ledger that this channel receives: violation, runner_lost."
    )


class Webhook(_Channel):
    """A POST of the alerts as JSON, signed if there is a secret."""

    kind: Literal["webhook"] = "webhook"
    url: Url | FromEnvironment = Field(description="Receiver of the request.")
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
    url: Url | FromEnvironment = Field(description="URL of the incoming webhook.")
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
    user: str | None = Field(None, description="User of the SMTP server.")
    password: FromEnvironment | None = Field(None, description="Password of that user.")


class Command(_Channel):
    """A command, which reads the alerts from a file."""

    kind: Literal["command"] = "command"
    command: Any = Field(description="A list runs directly, and a string runs in `/bin/sh -c`.")
    env: dict[str, str] = Field(default_factory=dict, description="Additional variables.")
    cwd: str | None = Field(None, description="Working directory, an absolute path.")

    def model_post_init(self, _context: object, /) -> None:
        """Check the command as that of a job. Raises ValidationError."""
        CommandTarget.model_validate({"command": self.command, "env": self.env, "cwd": self.cwd})


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
_CHANNEL: TypeAdapter[Channel] = TypeAdapter(Channel)
_NAME: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=CHANNEL_PATTERN)])


def read(target: Mapping[str, Any]) -> Channel:
    """Return the channel in the target of its job. Raises pydantic.ValidationError."""
    return _CHANNEL.validate_python(target.get("channel"))


def problems(job: Job, where: str | None = None) -> Iterator[Problem]:
    """Yield a problem if only one of queue and target of `job` is that of a channel."""
    is_channel = "channel" in job.target
    if job.queue == QUEUE and not is_channel:
        yield Problem(
            where=where, job=job.name, field="queue", value=QUEUE,
            message="is reserved for the deliveries of alerts", remedy="choose another name",
        )  # fmt: skip
    elif is_channel and (job.queue != QUEUE or not job.name.startswith(PREFIX)):
        yield Problem(
            where=where, job=job.name, field="target.channel",
            message="belongs to channels only", remedy="write it as [channels.NAME]",
        )  # fmt: skip


def as_job(name: str, channel: object) -> Job:
    """Return the job of a channel, given as an object or as the values of a table.

    Raises pydantic.ValidationError.
    """
    values = channel.model_dump(mode="json") if isinstance(channel, _Channel) else channel
    checked = _CHANNEL.validate_python(values)
    return Job.model_validate(
        {
            "name": PREFIX + _NAME.validate_python(name),
            "handler": Handler.EXTERNAL,
            "queue": QUEUE,
            "target": {
                "channel": checked.model_dump(mode="json", exclude_defaults=True)
                | {"kind": checked.kind}
            },
            "overlap": Overlap.ALLOW,
            "max_attempts": 10,
            "retry_backoff": ["10s", "1m", "5m", "15m", "1h"],
            "allow_stale_reentry": True,
            "description": f"Alerts of the channel {name}",
        }
    )


__all__ = [
    "PREFIX", "QUEUE", "Apprise", "Channel", "Command", "Email", "FromEnvironment", "Function",
    "Slack", "Webhook", "as_job", "read",
]  # fmt: skip
