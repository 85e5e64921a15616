"""The jobs that the jobs of a source require, in the source itself and in the ledger."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cronledger.rules import chains
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError
from cronledger.rules.requirements import Requirement, Upstream

Rows = Callable[..., list[dict[str, Any]]]
"""Reads the rows of a statement, by its name and parameters."""


def checked(source: str, jobs: Sequence[Job], rows: Rows) -> tuple[Job, ...]:
    """Return the jobs, those with `after` with the schedule of the job that it names.

    Raises ConfigurationError if a job requires what neither the source declares nor the ledger has,
    and for a cycle.
    """
    named = {gate.job for job in jobs for gate in job.gates}
    if not named:
        return tuple(jobs)
    declared = {job.name for job in jobs}
    # A job of the source that it does not declare any more will be retired.
    others = {
        row["name"]: _job(row)
        for row in rows("list_upstreams", jobs=sorted(named - declared))
        if row["name"] not in declared and row["source"] != source
    }
    if problems := list(chains.problems(jobs, others, source)):
        raise ConfigurationError(problems)
    return chains.resolved(jobs, others)


def _job(row: Mapping[str, Any]) -> Job:
    read = {
        "after": tuple(map(Upstream.model_validate, row["after"] or ())) or None,
        "requires": tuple(map(Requirement.model_validate, row["requires"] or ())) or None,
    }
    return Job.model_construct(**{**row, **read})
