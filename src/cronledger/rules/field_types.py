"""The types of the fields of `Job`: what each accepts, and its form in a JSON Schema."""

from datetime import date, datetime, time, timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from cronledger.rules import deadline_texts, durations
from cronledger.rules.limits import NAME_PATTERN


def _duration(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(f"{value!r} has no unit; use for example 90s, 5m or 1h30m")
    return durations.parse(value) if isinstance(value, str) else value


def _limit(value: object) -> object:
    if value == NO_LIMIT:
        return None
    try:
        return _duration(value)
    except durations.DurationError as error:
        remedy = f"{error.remedy}, or '{NO_LIMIT}' for no limit"
        raise durations.DurationError(error.value, error.problem, remedy) from None


def _instant(value: object) -> object:
    # pydantic would read a number, also in quotes, as seconds since 1970.
    if isinstance(value, datetime | date):
        return value
    if isinstance(value, str) and "-" in value.strip()[1:]:
        return value
    raise ValueError(f"{value!r} is not an instant; write it like 2026-01-31T08:00:00Z")


Instant = Annotated[datetime, BeforeValidator(_instant)]
Whole = Annotated[int, Field(strict=True)]  # true is not 1
Duration = Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))]
NO_LIMIT = "none"
"""The text for no limit, because TOML has no null."""
Limit = Annotated[
    Duration | None,
    BeforeValidator(_limit),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": durations.PATTERN}, {"const": NO_LIMIT}]}
    ),
]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


def _filter(value: object) -> object:
    return None if isinstance(value, list | tuple) and not value else value


RetryItem = Annotated[
    str,
    Field(min_length=1, max_length=200, coerce_numbers_to_str=True),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 200},
                {"type": "integer", "minimum": 1},
            ]
        }
    ),
]
RetryFilter = Annotated[
    Annotated[tuple[RetryItem, ...], Field(max_length=100)] | None, BeforeValidator(_filter)
]
"""What `retry_filters` explains. An empty list filters nothing."""


def _length(value: object) -> object:
    return durations.format(value) if isinstance(value, timedelta) else value


def _deadline(value: object) -> object:
    if isinstance(value, time) and value.tzinfo is None and not value.microsecond:
        value = value.isoformat()
    value = _length(value)
    return deadline_texts.normal(value) if isinstance(value, str) else value


def _expected(value: object) -> object:
    value = _length(value)
    return deadline_texts.normal_expected(value) if isinstance(value, str) else value


Deadline = Annotated[
    str,
    BeforeValidator(_deadline),
    WithJsonSchema({"type": "string", "pattern": deadline_texts.PATTERN}),
]
"""A wall time or a duration, in the canonical text of `deadline_texts`."""
ExpectedDuration = Annotated[
    str,
    BeforeValidator(_expected),
    WithJsonSchema({"type": "string", "pattern": deadline_texts.EXPECTED_PATTERN}),
]
"""A duration or a multiple of a quantile, in the canonical text of `deadline_texts`."""

OWNER_PATTERN = r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"
LABEL_KEY_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^[^\x00-\x1f\x7f]+$"
MOST_LABELS = 50


def _labels(value: object) -> object:
    return None if value == {} else value


Owner = Annotated[str, Field(max_length=200, pattern=OWNER_PATTERN)]
LabelKey = Annotated[str, Field(max_length=63, pattern=LABEL_KEY_PATTERN)]
LabelValue = Annotated[str, Field(max_length=200, pattern=LABEL_VALUE_PATTERN)]
Labels = Annotated[
    Annotated[dict[LabelKey, LabelValue], Field(max_length=MOST_LABELS)] | None,
    BeforeValidator(_labels),
]
"""The labels of a job. An empty table is none."""
