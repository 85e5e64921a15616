"""Rules for alerts: `jobs.notify`."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_serializer,
)

from cronledger.rules import durations
from cronledger.rules.limits import LONGEST
from cronledger.rules.problems import RefusedError

CHANNEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
SHORTEST_REMIND = timedelta(minutes=1)
MOST_RULES = 20

Event = Literal["failed", "recovered", "overdue", "late", "skipped", "deadline"]
"""The events of a job."""


def _duration(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(f"{value!r} has no unit; use for example 90s, 5m or 1h30m")
    return durations.parse(value) if isinstance(value, str) else value


def _remind(value: timedelta) -> timedelta:
    if not SHORTEST_REMIND <= value <= LONGEST:
        raise RefusedError("is not between 1 minute and 100 years", "use for example '4h'")
    return value


Remind = Annotated[timedelta, BeforeValidator(_duration), AfterValidator(_remind)]


class Notify(BaseModel):
    """One rule: which changes of a job are sent to a channel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channel: str = Field(pattern=CHANNEL_PATTERN, description="The channel.")
    on: Annotated[tuple[Event, ...], Field(min_length=1)] | None = Field(
        None,
        description="The events: `failed`, `recovered`, `overdue`, `late`, `skipped`, `deadline`. "
        "Without it: `failed`, `recovered`, `overdue`, and `skipped` after a missed plan_time or "
        "three overlaps in a row.",
    )
    after: int = Field(
        1,
        ge=1,
        le=9999,
        strict=True,
        description="Number of failures in a row that opens the state `failed`.",
    )
    remind: Remind | None = Field(
        None, description="Time between two reminders while a state is open."
    )

    @field_serializer("remind")
    def _interval(self, value: timedelta | None) -> str | None:
        """Return the text of the column, which PostgreSQL reads as an interval."""
        return None if value is None else durations.format(value)


def _rules(value: Any) -> Any:
    """Return the rules of a short form, such as the name of a channel."""
    if isinstance(value, str | Notify | dict):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return [{"channel": rule} if isinstance(rule, str) else rule for rule in value] or None


Rules = Annotated[
    Annotated[tuple[Notify, ...], Field(max_length=MOST_RULES)] | None, BeforeValidator(_rules)
]
"""The rules of a job. An empty list is none."""
