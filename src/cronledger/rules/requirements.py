"""What a job requires of other jobs before it starts: `jobs.requires` and `jobs.after`."""

import json
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

    def __str__(self) -> str:
        """Return the short form in a file: the name of the job."""
        return self.job


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

    def as_json(self, most_bytes: int | None = None) -> str:
        """Return the results by job as JSON in ASCII, for handlers other than functions.

        Raises the error of the ledger, and ValueError if the JSON is longer than `most_bytes`.
        """
        if self.error is not None:
            raise self.error
        text = json.dumps({
            job: [{"plan_time": one.plan_time.isoformat(), "result": one.result} for one in results]
            for job, results in self.by_job.items()
        })  # fmt: skip
        if most_bytes is not None and len(text) > most_bytes:
            raise ValueError(f"the results have {len(text)} bytes; at most {most_bytes} fit")
        return text

    def handed_over(self, name: str, most_bytes: int) -> dict[str, str]:
        """Return a variable or header with the results, or one that says why they are left out.

        A job that requires nothing has neither.
        """
        if self.error is None and not self.by_job:
            return {}
        try:
            return {name: self.as_json(most_bytes)}
        except Exception as error:  # noqa: BLE001 - of the ledger, which the handler is told
            why = ascii(" ".join(str(error).split()))[1:-1]
            return {name + ("_ERROR" if name.isupper() else "-Error"): why}


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
