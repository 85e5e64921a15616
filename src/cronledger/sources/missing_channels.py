"""Refuse a source whose jobs name a channel that would not exist, or that retires one in use."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError, Problem

Row = Mapping[str, Any]
"""A job and a channel that it names: `job_name`, `channel`, and the `source` of the job."""


def of_jobs(jobs: Sequence[Job], existing: Collection[str]) -> Iterator[Row]:
    """Yield what jobs of a source name, but is not among the `existing` channels."""
    for job in jobs:
        for channel in sorted({rule.channel for rule in job.notify or ()}):
            if channel not in existing:
                yield {"job_name": job.name, "channel": channel}


def refuse(source: str, declared: Collection[str], missing: Iterable[Row]) -> None:
    """Raise ConfigurationError if a channel is missing. `declared`: the jobs of the source."""
    problems = [
        Problem(
            where=source, job=row["job_name"], field="notify", value=row["channel"],
            message="names a channel that does not exist",
            remedy="declare the channel, or correct the name",
        )
        if row["job_name"] in declared
        else Problem(
            where=source, field=f"channels.{row['channel']}",
            message=f"is no longer declared, but the job {row['job_name']!r} of "
            f"{_named(row['source'])} names it in notify",
            remedy="declare it again, or remove it from notify of that job first",
        )
        for row in missing
    ]  # fmt: skip
    if problems:
        raise ConfigurationError(problems)


def _named(source: str | None) -> str:
    return "SQL" if source is None else f"the source {source!r}"
