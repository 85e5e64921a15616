"""What a job requires of other jobs before it starts: `jobs.requires` and `jobs.after`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from cronledger.rules.limits import NAME_PATTERN

MOST = 20

Scope = Literal["same", "global"]


class Requirement(BaseModel):
    """One required job. Each execution of a gated job waits for its plan_times."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str = Field(pattern=NAME_PATTERN, description="The required job.")
    scope: Scope = Field(
        "same",
        description="Which scope of it: the `same` as that of this job, or its only one, `global`.",
    )


class Upstream(Requirement):
    """The job whose plan_times a job has.

    `root`: the job at the beginning of a chain of `after`, whose name and scope decide `H`. It is
    set by a trigger, and None if it is the upstream itself.
    """

    root: Requirement | None = None

    @model_serializer(mode="wrap")
    def _without_root(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the JSON of the column, which has a root only if it is another job."""
        return {key: value for key, value in dump(self).items() if value is not None}


class UpstreamResult(NamedTuple):
    """A plan_time of a required job, and the result of its execution."""

    plan_time: datetime
    result: Any


@dataclass(frozen=True, slots=True)
class UpstreamResults:
    """What an execution waited for, by job. `error`: why it could not be read."""

    by_job: Mapping[str, Sequence[UpstreamResult]]
    error: Exception | None = None


def _requirements(value: Any) -> Any:
    """Return the requirements of a short form, such as the name of a job. An empty list is none."""
    if isinstance(value, str | Requirement | dict):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return [{"job": one} if isinstance(one, str) else one for one in value] or None


Requires = Annotated[
    Annotated[tuple[Requirement, ...], Field(max_length=MOST)] | None,
    BeforeValidator(_requirements),
]
"""The jobs that a job requires."""
After = Annotated[
    Annotated[tuple[Upstream, ...], Field(max_length=1)] | None,
    BeforeValidator(_requirements),
]
"""The job whose plan_times a job has: one, in a list."""
