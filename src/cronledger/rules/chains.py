"""What jobs require of each other: `requires` and `after` of all jobs of a source.

Triggers of the ledger have the same rules, also for rows that are written by SQL.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cronledger.rules.cron_fields import is_reboot
from cronledger.rules.model import GLOBAL, Job
from cronledger.rules.problems import Problem, nearest, or_elsewhere, shown
from cronledger.rules.requirements import Requirement

TIMING = (
    "schedule", "timezone", "calendar", "on_excluded", "day_or", "dst_gap", "dst_fold", "starts_at",
    "ends_at",
)  # fmt: skip
"""The fields that a job with `after` has from its upstream."""


MOST_NAMES = 20
MOST_COMPARED = 1_000
"""The maximum number of names that are compared with an unknown one, because locks are held."""


def resolved(jobs: Iterable[Job], others: Mapping[str, Job]) -> tuple[Job, ...]:
    """Return the jobs, those with `after` with the schedule of the job that it names.

    `others`: the jobs that the source does not declare, by name. A job whose chain of `after` has
    no beginning stays as it is.
    """
    jobs = tuple(jobs)
    known = {**others, **{job.name: job for job in jobs}}
    return tuple(_resolved(job, known) for job in jobs)


def _resolved(job: Job, known: Mapping[str, Job]) -> Job:
    chain, names = [job], {job.name}
    while chain[-1].after and chain[-1].schedule is None:
        upstream = known.get(chain[-1].after[0].job)
        if upstream is None or upstream.name in names:
            return job
        chain.append(upstream)
        names.add(upstream.name)
    found = chain.pop()
    while chain:
        found = _following(chain.pop(), found)
    return found


def _following(job: Job, upstream: Job) -> Job:
    """Return a job with `after` with the schedule of its upstream."""
    assert job.after
    copied: dict[str, Any] = {name: getattr(upstream, name) for name in TIMING}
    if upstream.after:
        root: Requirement = upstream.after[0].root or upstream.after[0]
        scope = GLOBAL if job.after[0].scope == GLOBAL else root.scope
        root = Requirement(job=root.job, scope=scope)
        copied["after"] = (job.after[0].model_copy(update={"root": root}),)
    return job.model_copy(update=copied)


def problems(
    jobs: Iterable[Job], others: Mapping[str, Job], where: str, *, complete: bool = True
) -> Iterator[Problem]:
    """Yield a problem for each requirement of these jobs that cannot be met, and for each cycle.

    `others`: the jobs that the source does not declare, by name. `complete`: these are all jobs.
    Otherwise an unknown job causes a warning.
    """
    jobs = tuple(jobs)
    known = {**others, **{job.name: job for job in jobs}}
    for job in jobs:
        refused = False
        for field, gate in requirements(job):
            refusal = _refusal(job, gate, known, complete=complete)
            if refusal is not None:
                refused = True
                yield Problem(
                    where=where, job=job.name, field=field, value=shown(gate.job),
                    message=refusal[0], remedy=refusal[1],
                    warning=gate.job not in known and not complete,
                )  # fmt: skip
        path = () if refused else cycle(job.name, known)
        if path:
            yield Problem(
                where=where, job=job.name, field=requirements(job)[0][0],
                message=f"is part of a cycle: {', which requires '.join(path)}",
                remedy="remove one of these requirements",
            )  # fmt: skip


def requirements(job: Job) -> tuple[tuple[str, Requirement], ...]:
    """Return what a job requires, with the field that names it."""
    return (
        *(("after", one) for one in job.after or ()),
        *(("requires", one) for one in job.requires or ()),
    )


def _refusal(
    job: Job, gate: Requirement, known: Mapping[str, Job], *, complete: bool
) -> tuple[str, str] | None:
    """Return message and remedy if `job` cannot require this, or None if it can."""
    upstream = known.get(gate.job)
    if upstream is None:
        names = known.keys() - {job.name}
        remedy = nearest(gate.job, names) if len(names) <= MOST_COMPARED else ""
        if not remedy.endswith("?") and not 0 < len(names) <= MOST_NAMES:
            remedy = "correct the name"
        if complete:
            return "is a job that does not exist, or that is or would be retired", remedy
        return "is a job that no checked source declares", or_elsewhere(remedy)
    at_boot = is_reboot(upstream.schedule or "")
    if at_boot or (upstream.schedule is None and not upstream.after):
        what = "that runs when a host boots" if at_boot else "without a schedule"
        return f"is a job {what}, so it has no plan_times", "give it a schedule of times"
    if gate.scope == GLOBAL and upstream.scope_kind != GLOBAL:
        message = f"has scopes of the kind {shown(upstream.scope_kind)}, so it has no scope global"
        return message, 'use scope = "same" in a job with the same scopes'
    if gate.scope != GLOBAL and upstream.scope_kind != job.scope_kind:
        kinds = f"{shown(upstream.scope_kind)}, and this job of the kind {shown(job.scope_kind)}"
        remedy = "require a job with the same scopes"
        if upstream.scope_kind == GLOBAL:
            remedy = f'write {{ job = "{gate.job}", scope = "global" }}'
        return f"has scopes of the kind {kinds}", remedy
    return None


def cycle(name: str, known: Mapping[str, Job]) -> tuple[str, ...]:
    """Return the shortest path of required jobs from this job to itself; empty if there is none."""
    paths: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    for path in paths:
        job = known.get(path[-1])
        for _, gate in () if job is None else requirements(job):
            if gate.job == name:
                return (*path, name)
            if gate.job not in seen:
                seen.add(gate.job)
                paths.append((*path, gate.job))
    return ()
